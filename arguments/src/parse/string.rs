//! Keys and strings: their escapes, their length.

use super::{
    cursor::Cursor,
    error::ParseCode,
    fault::{Expected, Fault, Parsed},
};
use crate::{
    message::{Message, said},
    plain,
};

/// What kind of text is being read, and how long it may be.
#[derive(Clone, Copy)]
pub(super) enum Text {
    Key,
    String,
}

impl<'a> Cursor<'a> {
    /// Reads a key or a string; `at` stands on the opening quote.
    pub(super) fn quoted(&mut self, kind: Text) -> Parsed<String> {
        self.at += 1;
        let run = self.run(kind, 0)?;
        if self.eat(b'"') {
            return Ok(run.to_owned());
        }
        let mut text = String::with_capacity(run.len() + 16);
        text.push_str(run);
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                Some(control) => {
                    return Err(Fault::new(
                        ParseCode::MalformedJson,
                        said!(
                            "a string holds the control character U+{control:04X}; escape it",
                            "字符串中有控制字符 U+{control:04X}；请转义"
                        ),
                    ));
                }
                None => return Err(self.cut_in_string()),
            }
            text.push_str(self.run(kind, text.len())?);
        }
    }

    /// Reads up to the end of the string or the next escape; `before` bytes of the text have been read.
    fn run(&mut self, kind: Text, before: usize) -> Parsed<&'a str> {
        let rest = &self.text[self.at..];
        let run = &rest[..plain::length(rest.as_bytes())];
        self.check_length(kind, before + run.len())?;
        self.at += run.len();
        Ok(run)
    }

    fn check_length(&self, kind: Text, length: usize) -> Parsed<()> {
        let max = match kind {
            Text::Key => self.limits.key_bytes,
            Text::String => self.limits.string_bytes,
        };
        if length <= max {
            return Ok(());
        }
        Err(match kind {
            Text::Key => Fault::new(
                ParseCode::KeyTooLong,
                said!(
                    "a key is longer than {max} bytes; use a shorter one",
                    "有一个键超过 {max} 字节；请改用更短的键"
                ),
            ),
            Text::String => Fault::new(
                ParseCode::StringTooLong,
                said!(
                    "a string is longer than {max} bytes; send less text",
                    "有一个字符串超过 {max} 字节；请缩短文本"
                ),
            ),
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
            Some(_) | None => return Err(self.unexpected(Expected::Escape)),
        };
        self.at += 1;
        Ok(escaped)
    }

    /// Reads `uXXXX`, or the two halves of a surrogate pair; `at` stands on the `u`.
    fn unicode_escape(&mut self) -> Parsed<char> {
        let unit = self.hex_escape()?;
        let code_point = match unit {
            0 => {
                return Err(Fault::new(
                    ParseCode::NulNotAllowed,
                    Message::fixed(
                        "a string holds the character U+0000; leave it out",
                        "字符串中有字符 U+0000；请去掉",
                    ),
                ));
            }
            0xd800..=0xdbff => {
                for expected in [b'\\', b'u'] {
                    match self.peek() {
                        None => return Err(self.unexpected(Expected::Escape)),
                        Some(byte) if byte != expected => return Err(lone_surrogate()),
                        Some(_) if expected == b'\\' => self.at += 1,
                        Some(_) => {}
                    }
                }
                match self.hex_escape()? {
                    low @ 0xdc00..=0xdfff => 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00),
                    _ => return Err(lone_surrogate()),
                }
            }
            other => other,
        };
        char::from_u32(code_point).ok_or_else(lone_surrogate)
    }

    /// Reads the `u` of an escape and its four digits.
    fn hex_escape(&mut self) -> Parsed<u32> {
        self.at += 1;
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            unit = unit * 16 + digit.ok_or_else(|| self.unexpected(Expected::HexDigits))?;
            self.at += 1;
        }
        Ok(unit)
    }
}

fn lone_surrogate() -> Box<Fault> {
    Fault::new(
        ParseCode::InvalidUnicode,
        Message::fixed(
            "a string holds half of a surrogate pair; escape both halves",
            "字符串中只有代理对的一半；请把两半都写出来",
        ),
    )
}
