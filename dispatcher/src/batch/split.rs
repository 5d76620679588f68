//! Splits the body of a batch into its calls. The contents of a call are not read here.
//!
//! A body that is not JSON is refused as a whole. Anything else that may be wrong with a call is found when that call is read,
//! by the same parser and under the same limits as the arguments of a single call.

use std::fmt;

use fleet::{
    said,
    wire::{code::Code, message::Message},
};
use serde::{
    Deserialize,
    de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{error::Category, value::RawValue};

use crate::refusal::Refusal;

/// The most calls in one batch.
pub(super) const CALLS_MAX: usize = 1_000;
/// The most bytes of a whole batch, where the server carries as many.
pub(super) const BODY_MAX: usize = 8 * 1024 * 1024;
/// The most members of one object of ours; it has fewer fields.
const FIELDS_MAX: usize = 64;

/// The calls of a batch, each as it was written.
pub(super) fn split(body: &[u8]) -> Result<Vec<&RawValue>, Refusal> {
    if body.len() > BODY_MAX {
        let count = body.len();
        let what = said!(
            "the body has {count} bytes; a batch may have {BODY_MAX}",
            "请求体有 {count} 字节；一批最多 {BODY_MAX} 字节"
        );
        return Err(Refusal::new(Code::PayloadTooLarge, what));
    }
    let text = std::str::from_utf8(body).map_err(|broken| {
        let at = broken.valid_up_to();
        let what = said!(
            "the bytes at {at} are not UTF-8; send the body as UTF-8",
            "位置 {at} 处的字节不是 UTF-8；请以 UTF-8 发送请求体"
        );
        Refusal::new(Code::InvalidUnicode, what)
    })?;
    serde_json::from_str::<IgnoredAny>(text).map_err(|error| not_json(&error))?;
    let form = || Refusal::new(Code::InvalidArguments, FORM);
    let Fields(fields) = Fields::of(text).ok_or_else(form)?;
    let calls = match fields.as_slice() {
        [(name, calls)] if name == "calls" => *calls,
        [(first, _), (second, _)] if first == "calls" && second == "calls" => {
            let what = Message::fixed(
                "the key calls stands twice in the body",
                "键 calls 在请求体中出现了两次",
            );
            return Err(Refusal::new(Code::DuplicateKey, what));
        }
        _ => return Err(form()),
    };
    let calls: Calls = serde_json::from_str(calls.get()).map_err(|_no_array| form())?;
    match calls.count {
        0 => Err(form()),
        count if count > CALLS_MAX => {
            let what = said!(
                "the batch has {count} calls; at most {CALLS_MAX} are taken at once",
                "这一批有 {count} 个调用；一次最多接受 {CALLS_MAX} 个"
            );
            Err(Refusal::new(Code::PayloadTooLarge, what))
        }
        _ => Ok(calls.first),
    }
}

const FORM: Message = Message::fixed(
    "the body must be one object {\"calls\": [...]} with 1 to 1000 calls and nothing else in it",
    "请求体必须是一个对象 {\"calls\": [...]}，包含 1 到 1000 个调用，不含其他内容",
);

fn not_json(error: &serde_json::Error) -> Refusal {
    if error.classify() == Category::Eof {
        let what = Message::fixed(
            "the body ends in the middle of a value; send all of it",
            "请求体在一个值的中间结束；请完整发送",
        );
        return Refusal::new(Code::TruncatedArguments, what);
    }
    let (line, column) = (error.line(), error.column());
    let what = said!(
        "the body is not JSON from line {line}, column {column} on",
        "从第 {line} 行第 {column} 列起，请求体不是 JSON"
    );
    Refusal::new(Code::MalformedJson, what)
}

/// The members of an object in their order, repeated ones included.
pub(super) struct Fields<'a>(pub(super) Vec<(String, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// `None`: it is no object, has more members than allowed, or a key that is not valid text.
    pub(super) fn of(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(member) = members.next_entry::<String, &RawValue>()? {
                    if fields.len() >= FIELDS_MAX {
                        return Err(A::Error::custom("too many members"));
                    }
                    fields.push(member);
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

/// The elements of an array, at most as many as allowed, and how many there are.
struct Calls<'a> {
    first: Vec<&'a RawValue>,
    count: usize,
}

impl<'de> Deserialize<'de> for Calls<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements;

        impl<'de> Visitor<'de> for Elements {
            type Value = Calls<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Calls<'de>, A::Error> {
                let mut first = Vec::new();
                while first.len() < CALLS_MAX
                    && let Some(element) = elements.next_element::<&RawValue>()?
                {
                    first.push(element);
                }
                let mut count = first.len();
                while count >= CALLS_MAX && elements.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Calls { first, count })
            }
        }

        deserializer.deserialize_seq(Elements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(body: &str) -> Code {
        split(body.as_bytes()).unwrap_err().code
    }

    #[test]
    fn a_call_is_handed_on_byte_for_byte() {
        let body = br#" {"calls" : [ {"args": {"n": 9007199254740993.10, "n": 1e999}} , 7] } "#;
        let calls = split(body).unwrap();
        let texts: Vec<&str> = calls.iter().map(|call| call.get()).collect();
        assert_eq!(
            texts,
            [r#"{"args": {"n": 9007199254740993.10, "n": 1e999}}"#, "7"]
        );
    }

    #[test]
    fn a_body_that_is_not_json_or_no_batch_is_refused_with_its_code() {
        for (body, expected) in [
            ("", Code::TruncatedArguments),
            (r#"{"calls":[{"tool":"x"}"#, Code::TruncatedArguments),
            (r#"{"calls":[{"tool":}]}"#, Code::MalformedJson),
            (r#"{"calls":[01]}"#, Code::MalformedJson),
            (r#"{"calls":[1]} x"#, Code::MalformedJson),
            ("\u{feff}{\"calls\":[1]}", Code::MalformedJson),
            (r#"{"calls":[1],"calls":[2]}"#, Code::DuplicateKey),
            (r#"{"calls":[1],"more":1}"#, Code::InvalidArguments),
            (r#"{"calls":[]}"#, Code::InvalidArguments),
            (r#"{"calls":{}}"#, Code::InvalidArguments),
            ("[1]", Code::InvalidArguments),
        ] {
            assert_eq!(code(body), expected, "{body}");
        }
        let broken = split(b"{\"calls\":[\"\xff\"]}").unwrap_err();
        assert_eq!(broken.code, Code::InvalidUnicode);
    }

    #[test]
    fn neither_depth_nor_length_is_a_danger() {
        let calls = |count: usize| format!("{{\"calls\":[{}1]}}", "1,".repeat(count - 1));
        assert_eq!(split(calls(1_000).as_bytes()).unwrap().len(), 1_000);
        assert_eq!(code(&calls(1_001)), Code::PayloadTooLarge);
        assert_eq!(code(&" ".repeat(BODY_MAX + 1)), Code::PayloadTooLarge);
        let deep = format!("{}1{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
        let body = format!("{{\"calls\":[{deep}]}}");
        assert_eq!(split(body.as_bytes()).unwrap().len(), 1);
    }
}
