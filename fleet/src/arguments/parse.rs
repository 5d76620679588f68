//! The parser at the door: one pass over the bytes, every limit enforced before anything large is built.
//!
//! It is our own because a general parser keeps the last of two equal keys, rounds what it cannot hold
//! and recurses as deep as it is told to. Number tokens are kept exactly as sent.

use serde_json::{Map, Number, Value};

use super::{pointer_segment, shorten};
use crate::wire::code::Code;

/// What one body may be. Every limit is inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the whole body; beyond: `payload_too_large`.
    pub bytes: usize,
    /// Arrays and objects inside one another, the outermost counted; beyond: `depth_exceeded`. Keep it below 500.
    pub depth: usize,
    /// Values in all, containers counted; beyond: `too_many_nodes`.
    pub nodes: usize,
    /// Keys of one object; beyond: `too_many_nodes`.
    pub keys: usize,
    /// Bytes of one key, unescaped; beyond: `key_too_long`.
    pub key_bytes: usize,
    /// Bytes of one string, unescaped; beyond: `string_too_long`.
    pub string_bytes: usize,
    /// Characters of one number; beyond: `number_too_long`.
    pub number_chars: usize,
}

impl Limits {
    /// What the arguments of a call may be.
    pub const DEFAULT: Self = Self {
        bytes: 256 * 1024,
        depth: 64,
        nodes: 10_000,
        keys: 1_000,
        key_bytes: 256,
        string_bytes: 128 * 1024,
        number_chars: 64,
    };

    /// The largest exponent of a number, either way: what a double holds and a database does not blow up.
    pub const EXPONENT_MAX: u32 = 308;

    /// Bytes of the pointer in an error; a longer one is cut and ends in an ellipsis.
    pub const PATH_BYTES: usize = 512;
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Why a body was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    /// The stable code.
    pub code: Code,
    /// JSON pointer to the value that is wrong; empty for the whole body.
    pub path: String,
    /// One sentence: what is wrong and what to send instead. At most one character of the body is in it.
    pub message: String,
}

/// Reads the arguments of a call: one JSON object and nothing else.
///
/// # Errors
///
/// The first thing that is wrong, with its place; `invalid_arguments` when it is JSON but not an object.
pub fn parse(body: &[u8], limits: &Limits) -> Result<Value, ParseError> {
    let message = match parse_any(body, limits)? {
        object @ Value::Object(_) => return Ok(object),
        Value::String(_) => "the arguments are a string; send the JSON object itself, not its text",
        Value::Array(_) => "the arguments are an array; send one JSON object",
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            "the arguments are not a JSON object; send one, if need be {}"
        }
    };
    Err(ParseError {
        code: Code::InvalidArguments,
        path: String::new(),
        message: message.to_owned(),
    })
}

/// Reads one JSON value of any kind, for headers and bodies that are not arguments.
///
/// # Errors
///
/// The first thing that is wrong, with its place.
pub fn parse_any(body: &[u8], limits: &Limits) -> Result<Value, ParseError> {
    let mut parser = Parser {
        body,
        at: 0,
        nodes: 0,
        limits,
    };
    parser.document().map_err(Fault::into_error)
}

/// A failure on its way out; each container that it leaves adds its segment.
struct Fault {
    code: Code,
    message: String,
    /// The innermost segment first.
    segments: Vec<String>,
}

type Parsed<T> = Result<T, Fault>;

impl Fault {
    fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            segments: Vec::new(),
        }
    }

    fn under(mut self, segment: &str) -> Self {
        self.segments.push(pointer_segment(segment).into_owned());
        self
    }

    fn into_error(self) -> ParseError {
        let mut path = String::new();
        for segment in self.segments.iter().rev() {
            path.push('/');
            path.push_str(segment);
        }
        let path = shorten(&path, Limits::PATH_BYTES).into_owned();
        ParseError {
            code: self.code,
            path,
            message: self.message,
        }
    }
}

/// What kind of text is being read, and how long it may be.
#[derive(Clone, Copy)]
enum Text {
    Key,
    String,
}

struct Parser<'a> {
    body: &'a [u8],
    at: usize,
    nodes: usize,
    limits: &'a Limits,
}

impl Parser<'_> {
    fn document(&mut self) -> Parsed<Value> {
        if self.body.len() > self.limits.bytes {
            return Err(Fault::new(
                Code::PayloadTooLarge,
                format!(
                    "the body has {} bytes; at most {} are allowed",
                    self.body.len(),
                    self.limits.bytes
                ),
            ));
        }
        if self.body.starts_with(b"\xef\xbb\xbf") {
            return Err(Fault::new(
                Code::MalformedJson,
                "the body starts with a byte order mark; send it without",
            ));
        }
        self.skip_space();
        if self.peek().is_none() {
            return Err(Fault::new(
                Code::MalformedJson,
                "the body is empty; send a JSON object, if need be {}",
            ));
        }
        let value = self.value(0)?;
        self.skip_space();
        match self.peek() {
            None => Ok(value),
            Some(_) => Err(self.unexpected("the end of the body after the first value")),
        }
    }

    /// Reads a value inside `depth` containers; `at` stands on its first byte.
    fn value(&mut self, depth: usize) -> Parsed<Value> {
        self.nodes += 1;
        if self.nodes > self.limits.nodes {
            let message = format!(
                "there are more than {} values in the body",
                self.limits.nodes
            );
            return Err(Fault::new(Code::TooManyNodes, message));
        }
        match self.peek() {
            Some(b'{') => self.enter(depth).and_then(|depth| self.object(depth)),
            Some(b'[') => self.enter(depth).and_then(|depth| self.array(depth)),
            Some(b'"') => self.text(Text::String).map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number().map(Value::Number),
            Some(b't') => self.literal("true", Value::Bool(true)),
            Some(b'f') => self.literal("false", Value::Bool(false)),
            Some(b'n') => self.literal("null", Value::Null),
            Some(_) | None => Err(self.unexpected("a JSON value")),
        }
    }

    fn enter(&mut self, depth: usize) -> Parsed<usize> {
        if depth >= self.limits.depth {
            let message = format!(
                "arrays and objects are nested deeper than {} levels",
                self.limits.depth
            );
            return Err(Fault::new(Code::DepthExceeded, message));
        }
        self.at += 1;
        self.skip_space();
        Ok(depth + 1)
    }

    fn object(&mut self, depth: usize) -> Parsed<Value> {
        let mut entries = Map::new();
        if self.eat(b'}') {
            return Ok(Value::Object(entries));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a key in double quotes"));
            }
            let key = self.text(Text::Key)?;
            self.check_key(&key, &entries)?;
            self.skip_space();
            if !self.eat(b':') {
                return Err(self.unexpected("':' after the key").under(&key));
            }
            self.skip_space();
            let value = self.value(depth).map_err(|fault| fault.under(&key))?;
            entries.insert(key, value);
            self.skip_space();
            if self.eat(b'}') {
                return Ok(Value::Object(entries));
            }
            if !self.eat(b',') {
                return Err(self.unexpected("',' or '}'"));
            }
            self.skip_space();
        }
    }

    fn check_key(&self, key: &str, entries: &Map<String, Value>) -> Parsed<()> {
        if entries.contains_key(key) {
            return Err(Fault::new(
                Code::DuplicateKey,
                "the same key stands twice in one object",
            )
            .under(key));
        }
        if entries.len() >= self.limits.keys {
            let message = format!("an object has more than {} keys", self.limits.keys);
            return Err(Fault::new(Code::TooManyNodes, message));
        }
        // serde_json spells numbers and raw values as objects with these keys: what is stored as an object would
        // be read back as something else.
        if key.starts_with("$serde_json::private::") {
            return Err(Fault::new(
                Code::InvalidArguments,
                "this key is reserved; use another one",
            )
            .under(key));
        }
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Parsed<Value> {
        let mut items = Vec::new();
        if self.eat(b']') {
            return Ok(Value::Array(items));
        }
        loop {
            let item = self
                .value(depth)
                .map_err(|fault| fault.under(&items.len().to_string()))?;
            items.push(item);
            self.skip_space();
            if self.eat(b']') {
                return Ok(Value::Array(items));
            }
            if !self.eat(b',') {
                return Err(self.unexpected("',' or ']'"));
            }
            self.skip_space();
        }
    }

    fn literal(&mut self, word: &str, value: Value) -> Parsed<Value> {
        let rest = &self.body[self.at..];
        if rest.starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(value)
        } else if word.as_bytes().starts_with(rest) {
            Err(truncated())
        } else {
            Err(self.unexpected("a JSON value"))
        }
    }

    /// Reads a key or a string; `at` stands on the opening quote.
    fn text(&mut self, kind: Text) -> Parsed<String> {
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

    fn number(&mut self) -> Parsed<Number> {
        let rest = &self.body[self.at..];
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let length = rest
            .iter()
            .position(|byte| !is_part(byte))
            .unwrap_or(rest.len());
        if length > self.limits.number_chars {
            let message = format!(
                "a number has more than {} characters",
                self.limits.number_chars
            );
            return Err(Fault::new(Code::NumberTooLong, message));
        }
        let token = std::str::from_utf8(&rest[..length]).expect("the parts of a number are ASCII");
        let Some(shape) = NumberShape::of(token) else {
            if length == rest.len() && !token.ends_with(|c: char| c.is_ascii_digit()) {
                return Err(truncated());
            }
            let message = format!(
                "the number at byte {} is not a JSON number such as 7, -1.5 or 2e9",
                self.at
            );
            return Err(Fault::new(Code::MalformedJson, message));
        };
        if !shape.is_kept_exactly(token) {
            return Err(Fault::new(
                Code::NumberOutOfRange,
                "a number is outside what is kept exactly: integers of 64 bits, decimals up to 1e308; send it as a string",
            ));
        }
        self.at += length;
        Ok(Number::from_string_unchecked(token.to_owned()))
    }

    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// What to say about the byte at hand, or about the end of the body.
    fn unexpected(&self, expected: &str) -> Fault {
        let rest = &self.body[self.at..];
        let Some(&first) = rest.first() else {
            return truncated();
        };
        let text = match std::str::from_utf8(rest) {
            Ok(text) => text,
            Err(error) if error.valid_up_to() > 0 => {
                std::str::from_utf8(&rest[..error.valid_up_to()]).expect("checked up to here")
            }
            Err(_) => {
                let message = format!(
                    "the bytes at {} are not UTF-8; send the body as UTF-8",
                    self.at
                );
                return Fault::new(Code::InvalidUnicode, message);
            }
        };
        let hint = match first {
            b'\'' => "; JSON strings stand in double quotes",
            b'/' | b'#' => "; JSON has no comments",
            b'}' | b']' => "; JSON has no trailing commas and closes what it opened last",
            b'N' | b'I' | b'T' | b'F' => "; JSON has only true, false, null and finite numbers",
            b'+' | b'.' => "; a JSON number starts with a digit or a minus",
            _ => "",
        };
        let found = text.chars().next().expect("the text is not empty");
        Fault::new(
            Code::MalformedJson,
            format!(
                "expected {expected}, found {found:?} at byte {}{hint}",
                self.at
            ),
        )
    }
}

fn truncated() -> Fault {
    Fault::new(
        Code::TruncatedArguments,
        "the body ends in the middle of a value; send all of it",
    )
}

/// The parts of a number token that decide whether it is kept exactly.
struct NumberShape<'a> {
    integer: bool,
    /// The digits of the exponent, without its sign.
    exponent: &'a str,
}

impl<'a> NumberShape<'a> {
    /// `None` when the token is not a number by the grammar of JSON.
    fn of(token: &'a str) -> Option<Self> {
        let unsigned = token.strip_prefix('-').unwrap_or(token);
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => {
                let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
                (mantissa, Some(digits))
            }
            None => (unsigned, None),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (mantissa, None),
        };
        let digits =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let valid = digits(whole)
            && (whole == "0" || !whole.starts_with('0'))
            && fraction.is_none_or(digits)
            && exponent.is_none_or(digits);
        let integer = fraction.is_none() && exponent.is_none();
        valid.then(|| Self {
            integer,
            exponent: exponent.unwrap_or("0"),
        })
    }

    fn is_kept_exactly(&self, token: &str) -> bool {
        if self.integer {
            return token.parse::<i64>().is_ok() || token.parse::<u64>().is_ok();
        }
        let exponent = self.exponent.parse::<u32>();
        exponent.is_ok_and(|exponent| exponent <= Limits::EXPONENT_MAX)
            && token.parse::<f64>().is_ok_and(f64::is_finite)
    }
}

#[cfg(test)]
mod tests;
