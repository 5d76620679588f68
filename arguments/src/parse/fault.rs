//! The message for a body that is refused, and its place.

use super::{
    cursor::Cursor,
    error::{ParseCode, ParseError},
};
use crate::{
    limits::Limits,
    message::{Message, said},
    pointer::pointer_segment,
    shorten::shorten,
};

/// A failure on its way out; each container that it leaves adds its segment to the place.
pub(super) struct Fault {
    code: ParseCode,
    message: Message,
    /// The innermost segment first.
    segments: Vec<String>,
}

/// Boxed, because every value that is read passes through one of these.
pub(super) type Parsed<T> = Result<T, Box<Fault>>;

impl Fault {
    pub(super) fn new(code: ParseCode, message: Message) -> Box<Self> {
        Box::new(Self {
            code,
            message,
            segments: Vec::new(),
        })
    }

    pub(super) fn under(mut self: Box<Self>, segment: &str) -> Box<Self> {
        self.segments.push(pointer_segment(segment).into_owned());
        self
    }

    pub(super) fn into_error(self) -> ParseError {
        let mut path = String::new();
        for segment in self.segments.iter().rev() {
            path.push('/');
            path.push_str(segment);
        }
        ParseError {
            code: self.code,
            path: shorten(&path, Limits::PATH_BYTES).into_owned(),
            message: self.message,
        }
    }
}

/// What should stand at a place where something else stands.
#[derive(Clone, Copy)]
pub(super) enum Expected {
    Value,
    Key,
    Colon,
    CommaOrBrace,
    CommaOrBracket,
    Escape,
    HexDigits,
    End,
}

impl Expected {
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Value => ("a JSON value", "JSON 值"),
            Self::Key => ("a key in double quotes", "双引号中的键"),
            Self::Colon => ("':' after the key", "键后的 ':'"),
            Self::CommaOrBrace => ("',' or '}'", "',' 或 '}'"),
            Self::CommaOrBracket => ("',' or ']'", "',' 或 ']'"),
            Self::Escape => (
                "one of \"\\/bfnrtu after a backslash",
                "反斜杠后的 \"\\/bfnrtu 之一",
            ),
            Self::HexDigits => (
                "four hexadecimal digits after \\u",
                "\\u 后的四位十六进制数字",
            ),
            Self::End => (
                "the end of the body after the first value",
                "请求体在第一个值之后结束",
            ),
        }
    }
}

/// What such a character usually means, where JSON has none.
const fn hint(found: char) -> (&'static str, &'static str) {
    match found {
        '\'' => (
            "; JSON strings stand in double quotes",
            "；JSON 字符串要用双引号",
        ),
        '/' | '#' => ("; JSON has no comments", "；JSON 不支持注释"),
        '}' | ']' => (
            "; JSON has no trailing commas and closes what it opened last",
            "；JSON 不允许末尾多余的逗号，后打开的括号要先关闭",
        ),
        'N' | 'I' | 'T' | 'F' => (
            "; JSON has only true, false, null and finite numbers",
            "；JSON 只有 true、false、null 和有限的数字",
        ),
        '+' | '.' => (
            "; a JSON number starts with a digit or a minus",
            "；JSON 数字以数字或减号开头",
        ),
        '`' => (
            "; send the JSON alone, without a code fence",
            "；只发送 JSON，不要用代码块包裹",
        ),
        _ => ("", ""),
    }
}

impl Cursor<'_> {
    /// The failure at the current character, or at the end of the text.
    pub(super) fn unexpected(&self, expected: Expected) -> Box<Fault> {
        let Some(found) = self.text[self.at..].chars().next() else {
            return if self.text.len() == self.body_bytes {
                truncated()
            } else {
                self.not_utf8()
            };
        };
        let (expected, wanted) = expected.words();
        let (hint, tip) = hint(found);
        let at = self.at;
        Fault::new(
            ParseCode::MalformedJson,
            said!(
                "expected {expected}, found {found:?} at byte {at}{hint}",
                "第 {at} 字节处应为：{wanted}；实际是 {found:?}{tip}"
            ),
        )
    }

    /// The failure where the text ends inside a string.
    pub(super) fn cut_in_string(&self) -> Box<Fault> {
        if self.cut_in_character || self.text.len() == self.body_bytes {
            truncated()
        } else {
            self.not_utf8()
        }
    }

    fn not_utf8(&self) -> Box<Fault> {
        let at = self.text.len();
        Fault::new(
            ParseCode::InvalidUnicode,
            said!(
                "the bytes at {at} are not UTF-8; send the body as UTF-8",
                "从第 {at} 字节起不是有效的 UTF-8；请以 UTF-8 发送请求体"
            ),
        )
    }
}

pub(super) fn truncated() -> Box<Fault> {
    Fault::new(
        ParseCode::TruncatedArguments,
        Message::fixed(
            "the body ends in the middle of a value; send all of it",
            "请求体在一个值的中间就结束了；请发送完整的请求体",
        ),
    )
}
