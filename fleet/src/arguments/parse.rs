//! The parser at the door: one pass over the bytes, every limit enforced before anything large is built.
//!
//! It is our own because a general parser keeps the last of two equal keys, rounds what it cannot hold
//! and recurses as deep as it is told to. Number tokens are kept exactly as sent.

mod number;
mod text;

use serde_json::{Map, Number, Value};

use self::{number::NumberShape, text::Text};
use super::{Limits, pointer_segment, shorten};
use crate::wire::code::Code;

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

#[cfg(test)]
mod tests;
