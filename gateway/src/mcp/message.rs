//! One message of JSON-RPC 2.0 in a body. The values of its parameters stay the bytes that they are.

use bytes::Bytes;
use fleet::{call::Language, wire::message::Message};
use serde_json::value::RawValue;

use super::{
    members::{NoMembers, RawMembers},
    rpc::{RpcError, RpcId},
};
use crate::form;

/// By which notification a client cancels a request.
pub(super) const CANCELLED: &str = "notifications/cancelled";

/// What a client sends.
#[derive(Debug, Clone)]
pub(super) enum RpcMessage {
    /// It is answered.
    Request(RpcRequest),
    /// It is taken.
    Notification(RpcNotification),
}

/// A request.
#[derive(Debug, Clone)]
pub(super) struct RpcRequest {
    pub(super) id: RpcId,
    pub(super) method: String,
    pub(super) params: RawMembers,
    /// `_meta` of the parameters.
    pub(super) meta: RawMembers,
}

/// What a client says, and waits for no answer.
#[derive(Debug, Clone)]
pub(super) struct RpcNotification {
    pub(super) method: String,
    /// Empty where they cannot be read: nobody is told of it.
    pub(super) params: RawMembers,
}

/// Why a message is not taken, and of which request it was one, where that can be said.
#[derive(Debug)]
pub(super) struct NoMessage {
    pub(super) id: Option<RpcId>,
    pub(super) error: RpcError,
    /// The response that it is, which only who has asked something takes.
    pub(super) response: Option<Box<RpcResponse>>,
}

/// A response of a client.
#[derive(Debug)]
pub(super) struct RpcResponse {
    /// To which request; `None`: no text, as ours are.
    pub(super) id: Option<String>,
    /// `None`: an error.
    pub(super) result: Option<Bytes>,
}

impl From<RpcError> for NoMessage {
    fn from(error: RpcError) -> Self {
        of(None, error)
    }
}

impl RpcMessage {
    /// The message that fills this body.
    ///
    /// # Errors
    ///
    /// It is no JSON, or not one message. Time is linear in the bytes of the body; nothing of it is copied.
    pub(super) fn read(body: &Bytes) -> Result<Self, NoMessage> {
        if body.trim_ascii_start().starts_with(b"[")
            && serde_json::from_slice::<&RawValue>(body).is_ok()
        {
            let what = Message::fixed(
                "one message for each POST: this server takes no batch",
                "每个 POST 只能有一条消息：这个服务器不接受批量消息",
            );
            return Err(RpcError::invalid_request(what).into());
        }
        let fields = RawMembers::of(body).map_err(|why| no_object(body, why))?;
        let id = fields.get("id").map(rpc_id).transpose()?;
        if fields.text("jsonrpc").as_deref() != Some("2.0") {
            let what = Message::fixed("jsonrpc must be \"2.0\"", "jsonrpc 必须是 \"2.0\"");
            return Err(of(id, RpcError::invalid_request(what)));
        }
        let Some(method) = fields.text("method") else {
            let what = Message::fixed(
                "method must be a string; a response is taken in the session (Mcp-Session-Id) in which was asked, and nowhere else",
                "method 必须是字符串；响应只在发出请求的会话（Mcp-Session-Id）中接受",
            );
            let is_response = fields.get("result").or(fields.get("error")).is_some();
            let response = (is_response && fields.get("method").is_none()).then(|| {
                Box::new(RpcResponse {
                    id: fields.text("id"),
                    result: fields.get("result").cloned(),
                })
            });
            return Err(NoMessage {
                response,
                ..of(id, RpcError::invalid_request(what))
            });
        };
        let Some(id) = id else {
            let params = fields.get("params");
            let params = params.and_then(|params| RawMembers::of(params).ok());
            return Ok(Self::Notification(RpcNotification {
                method,
                params: params.unwrap_or_default(),
            }));
        };
        let params = match fields.get("params") {
            None => RawMembers::default(),
            Some(params) => RawMembers::of(params)
                .map_err(|why| of(Some(id.clone()), no_params("params", why)))?,
        };
        let meta = match params.get("_meta") {
            None => RawMembers::default(),
            Some(meta) => RawMembers::of(meta)
                .map_err(|why| of(Some(id.clone()), no_params("params._meta", why)))?,
        };
        Ok(Self::Request(RpcRequest {
            id,
            method,
            params,
            meta,
        }))
    }
}

fn of(id: Option<RpcId>, error: RpcError) -> NoMessage {
    NoMessage {
        id,
        error,
        response: None,
    }
}

/// An id is a string or a whole number, written without a fraction or an exponent.
fn rpc_id(value: &Bytes) -> Result<RpcId, RpcError> {
    id_of(value).ok_or_else(|| {
        RpcError::invalid_request(Message::fixed(
            "id must be a string or a whole number",
            "id 必须是字符串或整数",
        ))
    })
}

/// The id, or the token of the same form, that this value of JSON is.
pub(super) fn id_of(value: &[u8]) -> Option<RpcId> {
    let text = str::from_utf8(value).unwrap_or_default();
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_string = serde_json::from_str::<String>(text).is_ok();
    (is_whole || is_string).then(|| {
        let raw = RawValue::from_string(text.to_owned());
        RpcId(raw.expect("a value of JSON was read before"))
    })
}

/// What is wrong with a body that has no members.
fn no_object(body: &[u8], why: NoMembers) -> NoMessage {
    match why {
        NoMembers::Twice => RpcError::invalid_request(twice("the message", "消息")).into(),
        NoMembers::TooMany => RpcError::invalid_request(too_many("the message", "消息")).into(),
        NoMembers::NoObject if serde_json::from_slice::<&RawValue>(body).is_ok() => {
            let what = Message::fixed("a message is an object", "消息必须是对象");
            RpcError::invalid_request(what).into()
        }
        NoMembers::NoObject => {
            let refused = form::wrong(body);
            let [english, chinese] = [Language::En, Language::Zh].map(|language| {
                let error = refused.envelope(language).error;
                error.expect("a refusal has an error")
            });
            let what = Message::new(english.message, chinese.message);
            RpcError::parse(english.code.as_str(), what).into()
        }
    }
}

fn no_params(what: &str, why: NoMembers) -> RpcError {
    RpcError::malformed_meta(match why {
        NoMembers::Twice => twice(what, what),
        NoMembers::TooMany => too_many(what, what),
        NoMembers::NoObject => Message::new(
            format!("{what} must be an object"),
            format!("{what} 必须是对象"),
        ),
    })
}

fn twice(english: &str, chinese: &str) -> Message {
    Message::new(
        format!("a name stands twice in {english}"),
        format!("{chinese}中有重复的名称"),
    )
}

fn too_many(english: &str, chinese: &str) -> Message {
    Message::new(
        format!("there are too many members in {english}"),
        format!("{chinese}的成员太多"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<RpcMessage, NoMessage> {
        RpcMessage::read(&Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn a_request_has_its_parameters_as_they_were_sent() {
        let sent = r#" {"id":"x","method":"tools/call","jsonrpc":"2.0","params":{"name":"n","arguments": {"b":1.10,"a":9007199254740993,"b":2},"_meta":{"k":[1]}}} "#;
        let RpcMessage::Request(request) = read(sent).unwrap() else {
            panic!("a request");
        };
        assert_eq!(request.id.0.get(), "\"x\"");
        let arguments = request.params.get("arguments").unwrap();
        assert_eq!(&arguments[..], br#"{"b":1.10,"a":9007199254740993,"b":2}"#);
        assert_eq!(&request.meta.get("k").unwrap()[..], b"[1]");
        for notification in [
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","method":"x","params":[]}"#,
        ] {
            assert!(matches!(
                read(notification),
                Ok(RpcMessage::Notification(_))
            ));
        }
    }

    #[test]
    fn ids_are_strings_or_whole_numbers() {
        for id in ["0", "-1", "1152921504606846976", "\"\"", "\"a\\n\""] {
            let sent = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            let RpcMessage::Request(request) = read(&sent).unwrap() else {
                panic!("{id}");
            };
            assert_eq!(request.id.0.get(), id);
        }
        for id in ["null", "1.0", "1e3", "true", "[]", "{}", "\"\\ud800\""] {
            let sent = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            assert!(read(&sent).is_err(), "{id}");
        }
    }

    #[test]
    fn a_response_is_one_by_its_result_or_its_error() {
        for (text, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":"a","result":{"n":1.10}}"#,
                Some((Some("a"), Some(r#"{"n":1.10}"#))),
            ),
            (
                r#"{"jsonrpc":"2.0","id":"a","error":{"code":1}}"#,
                Some((Some("a"), None)),
            ),
            (
                r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
                Some((None, Some("{}"))),
            ),
            (r#"{"jsonrpc":"2.0","id":"a"}"#, None),
            (r#"{"jsonrpc":"2.0","id":"a","method":1,"result":{}}"#, None),
            (r#"{"id":"a","result":{}}"#, None),
        ] {
            let response = read(text).unwrap_err().response;
            let read = response.as_ref().map(|response| {
                let result = response.result.as_deref();
                (
                    response.id.as_deref(),
                    result.map(|result| str::from_utf8(result).unwrap()),
                )
            });
            assert_eq!(read, expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_message_says_what_is_wrong() {
        let number = |text: &str| {
            let told = read(text).unwrap_err().error.told(None, Language::En);
            assert_eq!(told.status, 400, "{text}");
            format!("{:?}", read(text).unwrap_err().error)
        };
        for (text, expected) in [
            ("", "-32700"),
            ("{", "-32700"),
            ("[", "-32700"),
            ("{}x", "-32700"),
            ("[]", "-32600"),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, "-32600"),
            ("1", "-32600"),
            ("\"a\"", "-32600"),
            ("{}", "-32600"),
            (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":1}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "-32600"),
            (
                r#"{"jsonrpc":"2.0","id":1,"id":1,"method":"ping"}"#,
                "-32600",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#,
                "-32602",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":null}"#,
                "-32602",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1,"a":1}}"#,
                "-32602",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":1}}"#,
                "-32602",
            ),
        ] {
            assert!(number(text).contains(expected), "{text}: {}", number(text));
        }
    }
}
