//! Keys and strings: their escapes, their encoding, their length.

use super::{Fault, Parsed, Parser, truncated};
use crate::wire::code::Code;

/// What kind of text is being read, and how long it may be.
#[derive(Clone, Copy)]
pub(super) enum Text {
    Key,
    String,
}

impl Parser<'_> {
    /// Reads a key or a string; `at` stands on the opening quote.
    pub(super) fn text(&mut self, kind: Text) -> Parsed<String> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let rest = &self.body[self.at..];
            let end = rest
                .iter()
                .position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
            let run = &rest[..end.unwrap_or(rest.len())];
            self.check_length(kind, text.len() + run.len())?;
            text.push_str(self.utf8(run, end.is_none())?);
            self.at += run.len();
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                Some(control) => {
                    let message =
                        format!("a string holds the control character U+{control:04X}; escape it");
                    return Err(Fault::new(Code::MalformedJson, message));
                }
                None => return Err(truncated()),
            }
        }
    }

    fn check_length(&self, kind: Text, length: usize) -> Parsed<()> {
        let (what, max, code) = match kind {
            Text::Key => ("a key", self.limits.key_bytes, Code::KeyTooLong),
            Text::String => ("a string", self.limits.string_bytes, Code::StringTooLong),
        };
        if length <= max {
            return Ok(());
        }
        Err(Fault::new(
            code,
            format!("{what} is longer than {max} bytes"),
        ))
    }

    fn utf8<'b>(&self, run: &'b [u8], ends_body: bool) -> Parsed<&'b str> {
        std::str::from_utf8(run).map_err(|error| {
            if ends_body && error.error_len().is_none() {
                return truncated();
            }
            let at = self.at + error.valid_up_to();
            Fault::new(
                Code::InvalidUnicode,
                format!("the bytes at {at} are not UTF-8; send the body as UTF-8"),
            )
        })
    }

    /// Reads one escape; `at` stands on the backslash.
    fn escape(&mut self) -> Parsed<char> {
        self.at += 1;
        let escaped = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            Some(_) | None => return Err(self.unexpected("one of \"\\/bfnrtu after a backslash")),
        };
        self.at += 1;
        Ok(escaped)
    }

    /// Reads `uXXXX`, or the two halves of a surrogate pair; `at` stands on the `u`.
    fn unicode_escape(&mut self) -> Parsed<char> {
        let lone = || {
            Fault::new(
                Code::InvalidUnicode,
                "a string holds half of a surrogate pair; escape both halves",
            )
        };
        let unit = self.hex_escape()?;
        let code_point = match unit {
            0 => {
                return Err(Fault::new(
                    Code::NulNotAllowed,
                    "a string holds the character U+0000; leave it out",
                ));
            }
            0xd800..=0xdbff => {
                for expected in [b'\\', b'u'] {
                    match self.peek() {
                        None => return Err(truncated()),
                        Some(byte) if byte != expected => return Err(lone()),
                        Some(_) if expected == b'\\' => self.at += 1,
                        Some(_) => {}
                    }
                }
                match self.hex_escape()? {
                    low @ 0xdc00..=0xdfff => 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00),
                    _ => return Err(lone()),
                }
            }
            other => other,
        };
        char::from_u32(code_point).ok_or_else(lone)
    }

    /// Reads the `u` of an escape and its four digits.
    fn hex_escape(&mut self) -> Parsed<u32> {
        self.at += 1;
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            unit = unit * 16
                + digit.ok_or_else(|| self.unexpected("four hexadecimal digits after \\u"))?;
            self.at += 1;
        }
        Ok(unit)
    }
}
