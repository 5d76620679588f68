//! The parser: one pass over the bytes, every limit enforced before anything large is built.
//!
//! A parser of its own: a general one keeps the last of two equal keys, rounds numbers that it cannot represent, and recurses
//! without a bound. Number tokens are kept exactly as sent.

mod cursor;
mod error;
mod fault;
mod reserved;
mod string;

use serde_json::{Map, Number, Value, map::Entry};

use self::{
    cursor::Cursor,
    fault::{Expected, Fault, Parsed, truncated},
    string::Text,
};
pub use self::{
    error::{ParseCode, ParseError},
    reserved::has_reserved_key,
};
use crate::{
    limits::Limits,
    message::{Message, said},
    number::NumberShape,
};

/// Reads the arguments of a call: one JSON object and nothing else.
///
/// # Errors
///
/// The first error, with its place; `invalid_arguments` when the body is JSON but not an object.
pub fn parse(body: &[u8], limits: &Limits) -> Result<Value, ParseError> {
    let message = match parse_any(body, limits)? {
        object @ Value::Object(_) => return Ok(object),
        Value::String(_) => Message::fixed(
            "the arguments are a string; send the JSON object itself, not its text",
            "参数是一个字符串；请直接发送 JSON 对象，而不是它的文本",
        ),
        Value::Array(_) => Message::fixed(
            "the arguments are an array; send one JSON object",
            "参数是一个数组；请发送一个 JSON 对象",
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) => Message::fixed(
            "the arguments are not a JSON object; send one, if need be {}",
            "参数不是 JSON 对象；请发送一个对象，必要时发送 {}",
        ),
    };
    Err(ParseError::of_the_whole(
        ParseCode::InvalidArguments,
        message,
    ))
}

/// Reads one JSON value of any kind, for headers, answers and bodies that are not arguments.
///
/// # Errors
///
/// The first error, with its place.
pub fn parse_any(body: &[u8], limits: &Limits) -> Result<Value, ParseError> {
    if body.len() > limits.bytes {
        let (bytes, max) = (body.len(), limits.bytes);
        return Err(ParseError::of_the_whole(
            ParseCode::PayloadTooLarge,
            said!(
                "the body has {bytes} bytes; at most {max} are allowed",
                "请求体有 {bytes} 字节；最多允许 {max} 字节"
            ),
        ));
    }
    let mut cursor = Cursor::new(body, limits);
    cursor.document().map_err(|fault| fault.into_error())
}

impl Cursor<'_> {
    fn document(&mut self) -> Parsed<Value> {
        if self.text.starts_with('\u{feff}') {
            return Err(Fault::new(
                ParseCode::MalformedJson,
                Message::fixed(
                    "the body starts with a byte order mark; send it without",
                    "请求体以字节顺序标记开头；请去掉它",
                ),
            ));
        }
        self.skip_space();
        if self.at == self.body_bytes {
            return Err(Fault::new(
                ParseCode::MalformedJson,
                Message::fixed(
                    "the body is empty; send a JSON object, if need be {}",
                    "请求体是空的；请发送一个 JSON 对象，必要时发送 {}",
                ),
            ));
        }
        let value = self.value(0)?;
        self.skip_space();
        if self.at == self.body_bytes {
            Ok(value)
        } else {
            Err(self.unexpected(Expected::End))
        }
    }

    /// Reads a value inside `depth` containers; `at` stands on its first byte.
    fn value(&mut self, depth: usize) -> Parsed<Value> {
        self.nodes += 1;
        if self.nodes > self.limits.nodes {
            return Err(self.too_many_nodes());
        }
        match self.peek() {
            Some(b'{') => self.enter(depth).and_then(|depth| self.object(depth)),
            Some(b'[') => self.enter(depth).and_then(|depth| self.array(depth)),
            Some(b'"') => self.quoted(Text::String).map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(depth).map(Value::Number),
            Some(b't') => self.literal("true", Value::Bool(true)),
            Some(b'f') => self.literal("false", Value::Bool(false)),
            Some(b'n') => self.literal("null", Value::Null),
            Some(_) | None => Err(self.unexpected(Expected::Value)),
        }
    }

    fn enter(&mut self, depth: usize) -> Parsed<usize> {
        let max = self.limits.depth;
        if depth >= max {
            return Err(Fault::new(
                ParseCode::DepthExceeded,
                said!(
                    "arrays and objects are nested deeper than {max} levels; send a flatter value",
                    "数组和对象的嵌套超过 {max} 层；请减少嵌套"
                ),
            ));
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
                return Err(self.unexpected(Expected::Key));
            }
            let key = self.quoted(Text::Key)?;
            let count = entries.len();
            let place = match entries.entry(key) {
                Entry::Vacant(place) => place,
                Entry::Occupied(taken) => return Err(duplicate(taken.key())),
            };
            self.check_key(place.key(), count)?;
            self.skip_space();
            if !self.eat(b':') {
                return Err(self.unexpected(Expected::Colon).under(place.key()));
            }
            self.skip_space();
            match self.value(depth) {
                Ok(value) => place.insert(value),
                Err(fault) => return Err(fault.under(place.key())),
            };
            self.skip_space();
            if self.eat(b'}') {
                return Ok(Value::Object(entries));
            }
            if !self.eat(b',') {
                return Err(self.unexpected(Expected::CommaOrBrace));
            }
            self.skip_space();
        }
    }

    /// Whether an object of `count` keys may get this one too.
    fn check_key(&self, key: &str, count: usize) -> Parsed<()> {
        let max = self.limits.keys;
        if count >= max {
            return Err(Fault::new(
                ParseCode::TooManyNodes,
                said!(
                    "an object has more than {max} keys; send fewer",
                    "有一个对象的键超过 {max} 个；请减少"
                ),
            ));
        }
        // serde_json writes numbers and raw values as objects with these keys, so a stored object would be read back as
        // something else.
        if key.starts_with(reserved::KEYS) {
            let message = Message::fixed(
                "this key is reserved; use another one",
                "这个键是保留键；请改用其他键",
            );
            return Err(Fault::new(ParseCode::InvalidArguments, message).under(key));
        }
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Parsed<Value> {
        let mut items = Vec::new();
        if self.eat(b']') {
            return Ok(Value::Array(items));
        }
        loop {
            match self.value(depth) {
                Ok(item) => items.push(item),
                Err(fault) => return Err(fault.under(&items.len().to_string())),
            }
            self.skip_space();
            if self.eat(b']') {
                return Ok(Value::Array(items));
            }
            if !self.eat(b',') {
                return Err(self.unexpected(Expected::CommaOrBracket));
            }
            self.skip_space();
        }
    }

    fn literal(&mut self, word: &str, value: Value) -> Parsed<Value> {
        let rest = &self.text[self.at..];
        if rest.starts_with(word) {
            self.at += word.len();
            return Ok(value);
        }
        if word.starts_with(rest) {
            self.at = self.text.len();
        }
        Err(self.unexpected(Expected::Value))
    }

    fn number(&mut self, depth: usize) -> Parsed<Number> {
        let rest = &self.text[self.at..];
        let max = self.limits.number_chars;
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let parts = rest.bytes().take(max.saturating_add(1));
        let length = parts.take_while(is_part).count();
        if length > max {
            return Err(Fault::new(
                ParseCode::NumberTooLong,
                said!(
                    "a number has more than {max} characters; round it (in quotes it fits only where the schema says string)",
                    "有一个数字超过 {max} 个字符；请四舍五入（只有在模式要求 string 的地方才能加引号发送）"
                ),
            ));
        }
        let token = &rest[..length];
        // At the end of the body more digits may have been meant. In a container the body is cut off anyway.
        if self.at + length == self.body_bytes
            && (depth > 0 || NumberShape::of(token).is_none())
            && NumberShape::begins(token)
        {
            return Err(truncated());
        }
        let Some(shape) = NumberShape::of(token) else {
            let at = self.at;
            return Err(Fault::new(
                ParseCode::MalformedJson,
                said!(
                    "the number at byte {at} is not a JSON number such as 7, -1.5 or 2e9",
                    "第 {at} 字节处的数字不是 7、-1.5 或 2e9 这样的 JSON 数字"
                ),
            ));
        };
        if !shape.is_kept_exactly(token) {
            return Err(Fault::new(
                ParseCode::NumberOutOfRange,
                Message::fixed(
                    "a number is outside what is kept exactly, integers of 64 bits and decimals up to 1e308; send one within it \
                     (in quotes it fits only where the schema says string)",
                    "有一个数字超出能够精确保存的范围（整数 64 位，小数的绝对值不超过 1e308）；请发送此范围内的数字\
                     （只有在模式要求 string 的地方才能加引号发送）",
                ),
            ));
        }
        self.at += length;
        Ok(Number::from_string_unchecked(token.to_owned()))
    }

    fn too_many_nodes(&self) -> Box<Fault> {
        let max = self.limits.nodes;
        Fault::new(
            ParseCode::TooManyNodes,
            said!(
                "there are more than {max} values in the body; send fewer",
                "请求体中的值超过 {max} 个；请减少"
            ),
        )
    }
}

fn duplicate(key: &str) -> Box<Fault> {
    let message = Message::fixed(
        "the same key stands twice in one object; send it once",
        "同一个对象中有两个相同的键；请只保留一个",
    );
    Fault::new(ParseCode::DuplicateKey, message).under(key)
}

#[cfg(test)]
mod tests;
