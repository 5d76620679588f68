//! How a message is answered: a result or an error of JSON-RPC 2.0, with the status over HTTP that goes with it.

use axum::{body::Body, http::StatusCode, response::Response};
use bytes::Bytes;
use fleet::{
    call::Language,
    said,
    wire::{code::Code, message::Message},
};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

use super::{
    answer_code::AnswerCode,
    envelope::ToldFailure,
    revision::{Revision, SERVED},
};
use crate::{
    answer,
    headers::{ANSWER, Speaker},
    refusal::Refused,
};

/// The id of a request, as it was sent: a string or a whole number.
#[derive(Debug, Clone)]
pub(super) struct RpcId(pub(super) Box<RawValue>);

/// The answer to a request: a message, and what is said of it where HTTP carries it.
#[derive(Debug)]
pub(super) struct RpcReply {
    pub(super) body: Bytes,
    speaker: Speaker,
    pub(super) status: StatusCode,
    pub(super) code: AnswerCode,
}

impl RpcReply {
    /// The same, of which this is known.
    pub(super) fn coded(self, code: AnswerCode) -> Self {
        Self { code, ..self }
    }

    /// The same with what is held as long as its bytes are in memory: until they were written to the client.
    pub(super) fn holding<T: Send + Sync + 'static>(self, held: T) -> Self {
        struct HeldBody<T> {
            bytes: Bytes,
            _held: T,
        }

        impl<T> AsRef<[u8]> for HeldBody<T> {
            fn as_ref(&self) -> &[u8] {
                &self.bytes
            }
        }

        let body = Bytes::from_owner(HeldBody {
            bytes: self.body,
            _held: held,
        });
        Self { body, ..self }
    }

    /// As it goes over HTTP; its code is among the extensions.
    pub(super) fn over_http(self) -> Response {
        let mut response = answer::plain(self.body, self.speaker, self.status);
        response.extensions_mut().insert(self.code);
        response
    }
}

/// An error of the protocol. What becomes of a call is none: it is a result that says so.
#[derive(Debug, Clone)]
pub(super) struct RpcError {
    number: i32,
    status: StatusCode,
    what: Message,
    data: Value,
}

impl RpcError {
    /// The body is no JSON; `what` and `code` say what is wrong with it.
    pub(super) fn parse(code: &str, what: Message) -> Self {
        Self::new(-32_700, StatusCode::BAD_REQUEST, code, what)
    }

    /// It is JSON, and no message.
    pub(super) fn invalid_request(what: Message) -> Self {
        let code = Code::InvalidArguments.as_str();
        Self::new(-32_600, StatusCode::BAD_REQUEST, code, what)
    }

    /// A header of HTTP says what cannot be answered.
    pub(super) fn not_like_this(status: StatusCode, what: Message) -> Self {
        Self::new(-32_600, status, Code::HeaderInvalid.as_str(), what)
    }

    /// No such method is served in this revision.
    pub(super) fn unknown_method(revision: Revision, method: &str) -> Self {
        let status = match revision {
            Revision::Modern => StatusCode::NOT_FOUND,
            // There it would mean that a session is over.
            Revision::Legacy => StatusCode::OK,
        };
        let method: String = method.chars().take(100).collect();
        let what = said!(
            "this server has no method {method}; docs/mcp.md lists those that it has",
            "这个服务器没有方法 {method}；docs/mcp.md 列出了所有方法"
        );
        Self::new(-32_601, status, Code::NotFound.as_str(), what)
    }

    /// The parameters are not right.
    pub(super) fn invalid_params(what: Message) -> Self {
        let code = Code::InvalidArguments.as_str();
        Self::new(-32_602, StatusCode::OK, code, what)
    }

    /// The parameters lack what says how the message is to be read.
    pub(super) fn malformed_meta(what: Message) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            ..Self::invalid_params(what)
        }
    }

    /// There is no such tool for who asks.
    pub(super) fn unknown_tool(name: &str) -> Self {
        let name: String = name.chars().take(100).collect();
        let what = said!(
            "there is no tool named {name}; tools/list has those that there are",
            "没有名为 {name} 的工具；可用的工具见 tools/list"
        );
        let code = Code::UnknownTool.as_str();
        Self::new(-32_602, StatusCode::OK, code, what)
    }

    /// A header is missing, stands there twice, or says something else than the body.
    pub(super) fn header_mismatch(what: Message) -> Self {
        let code = Code::HeaderInvalid.as_str();
        Self::new(-32_020, StatusCode::BAD_REQUEST, code, what)
    }

    /// The message speaks a revision that is not served.
    pub(super) fn unsupported(requested: &str) -> Self {
        let what = Message::fixed(
            "this server does not speak this version of the protocol",
            "这个服务器不支持这个协议版本",
        );
        let requested: String = requested.chars().take(100).collect();
        let error = Self::new(
            -32_022,
            StatusCode::BAD_REQUEST,
            Code::HeaderInvalid.as_str(),
            what,
        );
        error
            .with("supported", json!(SERVED))
            .with("requested", json!(requested))
    }

    /// There is no such thing for who asks.
    pub(super) fn unknown(what: Message) -> Self {
        Self::new(-32_602, StatusCode::OK, Code::NotFound.as_str(), what)
    }

    /// There is no resource at this address for who asks.
    pub(super) fn unknown_resource(revision: Revision, uri: &str) -> Self {
        let shown: String = uri.chars().take(200).collect();
        let what = said!("there is no resource {shown}", "没有资源 {shown}");
        let number = match revision {
            Revision::Modern => -32_602,
            Revision::Legacy => -32_002,
        };
        let error = Self::new(number, StatusCode::OK, Code::NotFound.as_str(), what);
        error.with("uri", json!(shown))
    }

    /// What is asked for needs a client that can do more than this one says it can.
    pub(super) fn missing_capability(what: Message, required: &Value) -> Self {
        let code = Code::InvalidArguments.as_str();
        let error = Self::new(-32_021, StatusCode::BAD_REQUEST, code, what);
        error.with("requiredCapabilities", required.clone())
    }

    /// What a dispatcher refuses of a request that has no result of its own: by its code, which says whose fault it is.
    pub(super) fn told_by_door(failure: &ToldFailure) -> Self {
        let what = Message::new(failure.message.clone(), failure.message.clone());
        let is_clients = failure
            .code
            .parse()
            .is_ok_and(|code: Code| code.status() < 429);
        let number = if is_clients { -32_602 } else { -32_603 };
        let error = Self::new(number, StatusCode::OK, &failure.code, what);
        error.with("retry_after_ms", json!(failure.retry_after_ms))
    }

    /// The client cannot be asked what the tool asks: these capabilities are missing, as `lacks` says.
    pub(super) fn lacks(capabilities: &Value, lacks: &Message) -> Self {
        let what = said!(
            "{lacks} Nothing was done.",
            "{lacks}没有执行任何操作。",
            lacks
        );
        let code = Code::InvalidArguments.as_str();
        let error = Self::new(-32_021, StatusCode::BAD_REQUEST, code, what);
        error.with("requiredCapabilities", capabilities.clone())
    }

    /// The session of an older revision is not here, or not any more: its client begins anew.
    pub(super) fn no_session() -> Self {
        let what = Message::fixed(
            "this gateway has no such session: initialize again, or send the request without Mcp-Session-Id",
            "这个网关没有该会话：请重新 initialize，或去掉 Mcp-Session-Id 再发送请求",
        );
        let code = Code::NotFound.as_str();
        Self::new(-32_600, StatusCode::NOT_FOUND, code, what)
    }

    /// What a client sends back with its answers was not signed here, is about another request, or its time is over.
    pub(super) fn wrong_state() -> Self {
        Self::invalid_params(Message::fixed(
            "params.requestState is not one that was given with this request, or its ten minutes are over; send the request without it",
            "params.requestState 不是随这个请求给出的，或已超过十分钟；请去掉它再发送请求",
        ))
    }

    /// What the gateway refuses of a request that is about no call, or of one that it did not read.
    pub(super) fn refused(refused: &Refused, language: Language) -> Self {
        let envelope = refused.envelope(language);
        let error = envelope.error.expect("a refusal has an error");
        let what = Message::new(error.message.clone(), error.message);
        let number = if refused.is_senders() {
            -32_600
        } else {
            -32_603
        };
        let refused = Self::new(number, StatusCode::OK, error.code.as_str(), what);
        refused.with("retry_after_ms", json!(error.retry_after_ms))
    }

    fn new(number: i32, status: StatusCode, code: &str, what: Message) -> Self {
        Self {
            number,
            status,
            what,
            data: json!({ "code": code }),
        }
    }

    fn with(mut self, name: &str, value: Value) -> Self {
        self.data[name] = value;
        self
    }

    /// The answer. `id`: of the request, where it could be read.
    pub(super) fn told(&self, id: Option<&RpcId>, language: Language) -> RpcReply {
        let mut whole = json!({
            "jsonrpc": "2.0",
            // Of what could not be read it is null, as JSON-RPC 2.0 wants it; clients that hold to it take no error without one.
            "id": null,
            "error": {
                "code": self.number,
                "message": self.what.told(language),
                "data": self.data,
            },
        });
        if let Some(RpcId(id)) = id {
            whole["id"] = serde_json::from_str(id.get()).expect("an id was read before");
        }
        RpcReply {
            body: whole.to_string().into(),
            speaker: Speaker::Gateway,
            status: self.status,
            code: AnswerCode::of_failure(self.data["code"].as_str().unwrap_or_default()),
        }
    }
}

/// The answer with this result. `speaker`: who has made it.
pub(super) fn completed(id: &RpcId, result: &impl Serialize, speaker: Speaker) -> RpcReply {
    #[derive(Serialize)]
    struct Completed<'a, T> {
        jsonrpc: &'static str,
        id: &'a RawValue,
        result: &'a T,
    }

    let whole = Completed {
        jsonrpc: "2.0",
        id: &id.0,
        result,
    };
    let body = serde_json::to_vec(&whole).expect("an answer has only string keys");
    RpcReply {
        body: body.into(),
        speaker,
        status: StatusCode::OK,
        code: AnswerCode::Ok,
    }
}

/// A notification is taken: there is nothing to say.
pub(super) fn taken() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    let headers = response.headers_mut();
    headers.insert(ANSWER, Speaker::Gateway.value());
    response
}

/// Marks an answer of the revision that has marks: it is complete.
pub(super) const fn result_type(revision: Revision) -> Option<&'static str> {
    match revision {
        Revision::Modern => Some("complete"),
        Revision::Legacy => None,
    }
}

/// Who serves, in the answers of the revision that has no handshake.
pub(super) const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// Who serves.
pub(super) fn server_info() -> Value {
    json!({ "name": "toolfleet", "version": env!("CARGO_PKG_VERSION") })
}

#[cfg(test)]
mod tests {
    use axum::http::header::CONTENT_TYPE;

    use super::{super::revision::MODERN, *};

    #[test]
    fn an_id_comes_back_as_it_was_sent() {
        for id in [
            "1",
            "-7",
            "1152921504606846976",
            "\"a\\u4e2d\"",
            "123456789012345678901234567890",
        ] {
            let id = RpcId(RawValue::from_string(id.to_owned()).unwrap());
            let error = RpcError::unknown_tool("x").told(Some(&id), Language::En);
            assert_eq!(error.status, 200);
            for reply in [&error, &completed(&id, &json!({}), Speaker::Gateway)] {
                let told: Value = serde_json::from_slice(&reply.body).unwrap();
                let sent: Value = serde_json::from_str(id.0.get()).unwrap();
                assert_eq!(told["id"], sent);
            }
            let error = error.over_http();
            assert_eq!(error.headers()[CONTENT_TYPE], "application/json");
        }
    }

    #[test]
    fn what_an_answer_holds_is_free_when_its_bytes_are_gone() {
        let held = std::sync::Arc::new(());
        let id = RpcId(RawValue::from_string("1".to_owned()).unwrap());
        let reply = completed(&id, &json!({}), Speaker::Gateway);
        let bytes = reply.body.clone();
        let reply = reply.holding(std::sync::Arc::clone(&held));
        assert_eq!(reply.body, bytes);
        let (body, response) = (reply.body.clone(), reply.over_http());
        drop(response);
        assert_eq!(std::sync::Arc::strong_count(&held), 2);
        drop(body);
        assert_eq!(std::sync::Arc::strong_count(&held), 1);
    }

    #[test]
    fn versions_that_are_served_are_named_in_the_refusal_of_others() {
        let error = RpcError::unsupported("1900-01-01");
        assert_eq!(error.number, -32_022);
        assert_eq!(error.data["requested"], "1900-01-01");
        assert_eq!(error.data["supported"][0], MODERN);
    }
}
