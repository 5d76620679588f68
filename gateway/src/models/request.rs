//! The body of a vendor's request: which tool is meant, what its arguments are, and whether the answer is a stream. Pure.
//!
//! Nothing of it is read as a value: the arguments are the bytes that were sent, without `model`.

use bytes::Bytes;
use fleet::{
    ids::ToolName,
    wire::{code::Code, message::Message},
};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    form::{Fields, wrong},
    refusal::Refused,
};

/// A request to a model.
#[derive(Debug)]
pub(crate) struct ModelRequest {
    /// The tool; `None`: no tool can have the name that is given.
    pub(crate) tool: Option<ToolName>,
    /// Byte for byte.
    pub(crate) arguments: Bytes,
    /// Whether the answer is a stream.
    pub(crate) is_stream: bool,
    /// Whether the caller of a chat completion wants the chunk of a stream with its tokens.
    pub(crate) wants_usage: bool,
}

/// What of the options of a stream is read here.
#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

impl ModelRequest {
    /// Of these bytes.
    ///
    /// # Errors
    ///
    /// They are no object; `model` is not there, or stands there twice, or is no text; `stream` is neither true nor false.
    pub(crate) fn read(body: &[u8]) -> Result<Self, Refused> {
        if body.is_empty() {
            return Err(wrong(body));
        }
        let mut fields = Fields::read(body)?;
        let Some(model) = only(&fields, "model")? else {
            let what = Message::fixed(
                "model must be there and name a chat tool",
                "必须给出 model，其值是 chat 工具的名称",
            );
            return Err(bad("model", what));
        };
        let model: String = serde_json::from_str(model.get()).map_err(|_no_text| {
            let what = Message::fixed(
                "model must be a string, the name of a chat tool",
                "model 必须是字符串，即 chat 工具的名称",
            );
            bad("model", what)
        })?;
        let is_stream = match only(&fields, "stream")? {
            None => false,
            Some(stream) => {
                let read: Option<bool> = serde_json::from_str(stream.get()).map_err(|_other| {
                    let what = Message::fixed(
                        "stream must be true or false",
                        "stream 必须是 true 或 false",
                    );
                    bad("stream", what)
                })?;
                read.unwrap_or_default()
            }
        };
        let options = fields.values("stream_options").next();
        let options: StreamOptions = options
            .and_then(|options| serde_json::from_str(options.get()).ok())
            .unwrap_or_default();
        fields.remove("model");
        Ok(Self {
            wants_usage: options.include_usage,
            tool: model.parse().ok(),
            arguments: fields.to_text().into(),
            is_stream,
        })
    }
}

/// The value of this member.
///
/// # Errors
///
/// It stands there twice: which one is meant nobody knows.
fn only<'a>(fields: &'a Fields, name: &'a str) -> Result<Option<&'a RawValue>, Refused> {
    let mut values = fields.values(name);
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        (_, Some(_)) => {
            let what = Message::fixed(
                "the body names a member twice that the gateway reads",
                "请求体中网关要读取的字段出现了两次",
            );
            Err(Refused::new(Code::DuplicateKey, what).at(format!("/{name}")))
        }
    }
}

fn bad(name: &str, what: Message) -> Refused {
    Refused::new(Code::InvalidArguments, what).at(format!("/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_what_was_sent_without_the_model() {
        let body = br#"{ "messages": [{"n" : 9007199254740993, "n": 1E2}], "model":"ask" , "stream": true,"x":0.10}"#;
        let read = ModelRequest::read(body).unwrap();
        assert_eq!(read.tool.unwrap().as_str(), "ask");
        assert!(read.is_stream);
        assert_eq!(
            read.arguments,
            r#"{"messages":[{"n" : 9007199254740993, "n": 1E2}],"stream":true,"x":0.10}"#
        );
        let escaped = ModelRequest::read(br#"{"mod\u0065l":"ask","stream":null}"#).unwrap();
        assert_eq!(
            (&escaped.arguments[..], escaped.is_stream),
            (&br#"{"stream":null}"#[..], false)
        );
        for none in ["gpt-4.1", "", "a\\nb", "\u{6a21}"] {
            let body = format!("{{\"model\":\"{none}\"}}");
            assert!(ModelRequest::read(body.as_bytes()).unwrap().tool.is_none());
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_name() {
        for (body, code) in [
            ("", Code::MalformedJson),
            ("[]", Code::InvalidArguments),
            ("{", Code::TruncatedArguments),
            ("{\"a\":1}", Code::InvalidArguments),
            ("{\"model\":7}", Code::InvalidArguments),
            ("{\"model\":null}", Code::InvalidArguments),
            ("{\"model\":\"a\",\"model\":\"b\"}", Code::DuplicateKey),
            (
                "{\"model\":\"a\",\"stream\":\"yes\"}",
                Code::InvalidArguments,
            ),
            ("{\"model\":\"a\",\"stream\":1}", Code::InvalidArguments),
            (
                "{\"model\":\"a\",\"stream\":true,\"stream\":false}",
                Code::DuplicateKey,
            ),
        ] {
            let refused = ModelRequest::read(body.as_bytes()).unwrap_err();
            assert_eq!(refused.code(), code, "{body}");
        }
    }
}
