//! `tools/call`: the call that a request asks for, and the headers with which it is submitted.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header::CACHE_CONTROL};
use bytes::Bytes;
use fleet::{
    ids::IdempotencyKey,
    wire::{code::Code, message::Message},
};

use super::{members::RawMembers, message::RpcRequest, rpc::RpcError};
use crate::{forward, refusal::Refused};

/// `_meta` with the key of a call.
const KEY: &str = "io.toolfleet/idempotency-key";
/// What `_meta` says of the trace. It is asked first: headers are those of what stands between.
const TRACE: [&str; 3] = ["traceparent", "tracestate", "baggage"];
/// The header that names the files of a call.
const FILES: &str = "toolfleet-files";

/// The call that a request asks for.
#[derive(Debug, Clone)]
pub(super) struct CalledTool {
    /// The tool, by a name that there may be or not.
    pub(super) name: String,
    /// Byte for byte.
    pub(super) arguments: Bytes,
    /// The key that the client gives.
    pub(super) key: Option<IdempotencyKey>,
}

impl CalledTool {
    /// Of the parameters of a request.
    ///
    /// # Errors
    ///
    /// There is no name, or what is given as a key is none.
    pub(super) fn read(request: &RpcRequest) -> Result<Self, RpcError> {
        let Some(name) = request.params.text("name") else {
            let what = Message::fixed("params.name must be a string", "params.name 必须是字符串");
            return Err(RpcError::invalid_params(what));
        };
        let key = match request.meta.get(KEY) {
            None => None,
            Some(_) => {
                let text = request.meta.text(KEY).and_then(|text| text.parse().ok());
                Some(text.ok_or_else(no_key)?)
            }
        };
        let arguments = request.params.get("arguments").cloned();
        Ok(Self {
            name,
            arguments: arguments.unwrap_or_else(|| Bytes::from_static(b"{}")),
            key,
        })
    }
}

/// What a client answers that was asked something about its call.
#[derive(Debug, Default)]
pub(super) struct ClientAnswers {
    /// What it sends back: which question of which call it answers.
    pub(super) state: Option<String>,
    /// By the names of what was asked.
    pub(super) responses: Option<RawMembers>,
}

impl ClientAnswers {
    /// Of the parameters of a request.
    ///
    /// # Errors
    ///
    /// They are not of the form that the protocol has.
    pub(super) fn read(request: &RpcRequest) -> Result<Self, RpcError> {
        let state = match request.params.get("requestState") {
            None => None,
            Some(_) => Some(
                request
                    .params
                    .text("requestState")
                    .ok_or_else(RpcError::wrong_state)?,
            ),
        };
        let responses = request.params.get("inputResponses").map(RawMembers::of);
        let responses = responses.transpose().map_err(|_no_object| {
            RpcError::invalid_params(Message::fixed(
                "params.inputResponses must be an object",
                "params.inputResponses 必须是对象",
            ))
        })?;
        Ok(Self { state, responses })
    }
}

fn no_key() -> RpcError {
    let what = Message::fixed(
        "params._meta[\"io.toolfleet/idempotency-key\"] must be 1 to 255 visible ASCII characters",
        "params._meta[\"io.toolfleet/idempotency-key\"] 必须是 1 到 255 个可见的 ASCII 字符",
    );
    RpcError::invalid_params(what)
}

/// The headers of a submission: those of the request that begin with `Toolfleet-`, and the trace.
///
/// # Errors
///
/// As for a call over HTTP: a line is no text, says itself who asks, or names a session of a turn.
pub(super) fn headers(
    given: &HeaderMap,
    request: &RpcRequest,
    principal: Option<&str>,
) -> Result<async_nats::HeaderMap, Refused> {
    let mut sent = given.clone();
    // What a client's library sends for itself is no wish about an answer that is kept.
    sent.remove(CACHE_CONTROL);
    if let Some(parent) = traced(request, TRACE[0]) {
        for name in TRACE {
            sent.remove(name);
        }
        sent.insert(HeaderName::from_static(TRACE[0]), parent);
        for name in &TRACE[1..] {
            if let Some(value) = traced(request, name) {
                sent.insert(HeaderName::from_static(name), value);
            }
        }
    }
    forward::own_names(&sent)?;
    forward::headers(&sent, principal)
}

/// What `_meta` says of the trace; nothing where that is no header.
fn traced(request: &RpcRequest, name: &str) -> Option<HeaderValue> {
    HeaderValue::try_from(request.meta.text(name)?).ok()
}

/// The files that a request names, as its header has them.
pub(super) fn files(given: &HeaderMap) -> String {
    let lines = given.get_all(FILES).iter();
    let lines: Vec<&str> = lines.filter_map(|line| line.to_str().ok()).collect();
    lines.join("\n")
}

/// Refuses a key that only the gateway gives out.
///
/// # Errors
///
/// As said.
pub(super) fn own_key(key: &IdempotencyKey) -> Result<(), Refused> {
    forward::own_name(key.as_str()).map_err(|_ours| {
        let what = Message::fixed(
            "keys that begin with turn_ or mcp- are the gateway's own: take another",
            "以 turn_ 或 mcp- 开头的幂等键由网关自己使用：请使用其他值",
        );
        Refused::new(Code::InvalidIdempotencyKey, what)
    })
}

#[cfg(test)]
mod tests {
    use super::{super::message::RpcMessage, *};

    fn request(params: &str) -> RpcRequest {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        match RpcMessage::read(&Bytes::from(body)) {
            Ok(RpcMessage::Request(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn arguments_are_the_bytes_that_they_were() {
        let of = |params: &str| CalledTool::read(&request(params));
        let called = of(r#"{"name":"t","arguments": {"b" : 1.10,"b":2} }"#).unwrap();
        assert_eq!(&called.arguments[..], br#"{"b" : 1.10,"b":2}"#);
        assert_eq!(&of(r#"{"name":"t"}"#).unwrap().arguments[..], b"{}");
        for whatever in ["null", "\"x\"", "[1]"] {
            let called = of(&format!(r#"{{"name":"t","arguments":{whatever}}}"#)).unwrap();
            assert_eq!(&called.arguments[..], whatever.as_bytes());
        }
        assert!(of("{}").is_err() && of(r#"{"name":1}"#).is_err());
    }

    #[test]
    fn a_key_is_a_key_or_the_request_is_not_right() {
        let of = |key: &str| {
            CalledTool::read(&request(&format!(
                r#"{{"name":"t","_meta":{{"io.toolfleet/idempotency-key":{key}}}}}"#
            )))
        };
        assert_eq!(of("\"k-1\"").unwrap().key.unwrap().as_str(), "k-1");
        for wrong in ["null", "1", "\"\"", "\"a b\"", "{}"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_trace_is_that_of_the_message_before_that_of_the_connection() {
        let mut given = HeaderMap::new();
        for (name, value) in [
            ("traceparent", "00-header"),
            ("tracestate", "header=1"),
            ("cache-control", "no-cache"),
            ("toolfleet-run", "r"),
            ("mcp-method", "tools/call"),
        ] {
            given.insert(name, value.parse().unwrap());
        }
        let sent = |params: &str| {
            let sent = headers(&given, &request(params), None).unwrap();
            let get = |name: &str| sent.get(name).map(|value| value.to_string());
            (
                get("traceparent"),
                get("tracestate"),
                get("cache-control"),
                get("toolfleet-run"),
            )
        };
        let some = |text: &str| Some(text.to_owned());
        let (header, message) = (
            r#"{"name":"t"}"#,
            r#"{"name":"t","_meta":{"traceparent":"00-meta"}}"#,
        );
        assert_eq!(
            sent(header),
            (some("00-header"), some("header=1"), None, some("r"))
        );
        assert_eq!(sent(message), (some("00-meta"), None, None, some("r")));
        // What is no header is no trace.
        let odd = r#"{"name":"t","_meta":{"traceparent":"a\nb"}}"#;
        assert_eq!(sent(odd).0, some("00-header"));
    }
}
