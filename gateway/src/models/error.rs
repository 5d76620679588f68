//! Why there is no reply, as a vendor's client reads it: the vendor's status and body, our code and message. Pure.

use axum::{
    http::{HeaderName, HeaderValue, StatusCode, header::RETRY_AFTER},
    response::Response,
};
use fleet::{
    call::Language,
    ids::CallId,
    manifest::ChatProtocol,
    wire::{code::Code, message::Message},
};
use serde_json::{Value, json};

use super::{
    fault::{kind, spoken, status},
    protocol::request_id,
};
use crate::{
    answer::plain,
    headers::{CALL_ID, Speaker},
    refusal::Refused,
};

/// Has the vendors' clients send nothing again by themselves: what ended a call would end another one, which is paid, too.
pub(crate) const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
pub(crate) const NEVER: HeaderValue = HeaderValue::from_static("false");

/// Why there is no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelError {
    /// Who says so.
    pub(super) speaker: Speaker,
    pub(super) status: u16,
    /// Ours; a word, for a later release may have more.
    pub(super) code: String,
    pub(super) message: String,
    /// Where in the body it is wrong, as a JSON pointer.
    pub(super) path: Option<String>,
    pub(super) retry_after_ms: Option<u64>,
    /// The call, where there is one.
    pub(super) call: Option<CallId>,
}

impl ModelError {
    /// That the gateway cannot tell what became of a call, or all of it, in whole sentences.
    pub(super) fn of_call(
        code: Code,
        what: &Message,
        call: Option<CallId>,
        language: Language,
    ) -> Self {
        Self {
            speaker: Speaker::Gateway,
            status: status(code, None),
            code: code.as_str().to_owned(),
            message: what.told(language).to_owned(),
            path: None,
            retry_after_ms: None,
            call,
        }
    }

    /// That the gateway refuses or cannot do something, before there is a call.
    pub(crate) fn refused(refused: &Refused, language: Language) -> Self {
        let envelope = refused.envelope(language);
        let error = envelope.error;
        let (message, path, retry_after_ms) = error
            .map(|error| (error.message, error.path, error.retry_after_ms))
            .unwrap_or_default();
        Self {
            speaker: Speaker::Gateway,
            status: status(refused.code(), None),
            code: refused.code().as_str().to_owned(),
            message,
            path,
            retry_after_ms,
            call: None,
        }
    }

    /// With this code, where that is known; `vendors`: the status that the vendor answered with.
    pub(super) fn status_of(code: &str, vendors: Option<u16>) -> u16 {
        let code: Option<Code> = code.parse().ok();
        // A word of a later release.
        code.map_or(500, |code| status(code, vendors))
    }

    /// What it says, and of which call.
    pub(super) fn words(&self) -> String {
        match self.call {
            Some(call) => format!("{} (call {call})", self.message.trim_end()),
            None => self.message.clone(),
        }
    }

    /// The body of an answer.
    pub(crate) fn body(&self, protocol: ChatProtocol) -> Value {
        let kind = kind(self.status, protocol);
        match protocol {
            ChatProtocol::OpenaiChat | ChatProtocol::OpenaiResponses => json!({"error": {
                "message": self.words(),
                "type": kind,
                "param": self.path,
                "code": self.code,
            }}),
            ChatProtocol::Anthropic => json!({
                "type": "error",
                "error": {"type": kind, "message": self.words(), "code": self.code},
                "request_id": self.call,
            }),
        }
    }

    /// The event with which a stream ends that cannot go on, and the vendor's word for it. `number`: its own, where events have numbers.
    pub(super) fn event(&self, protocol: ChatProtocol, number: u64) -> (&'static str, Value) {
        let mut body = self.body(protocol);
        if protocol == ChatProtocol::OpenaiResponses {
            // Beside what the vendor documents the object that its packages raise: a reader that passes over the event would take
            // the stream for whole.
            let members = json!({
                "type": "error",
                "code": self.code,
                "message": self.words(),
                "param": self.path,
                "sequence_number": number,
            });
            if let (Some(body), Some(members)) = (body.as_object_mut(), members.as_object()) {
                body.extend(members.clone());
            }
        }
        ("error", body)
    }

    /// The answer.
    pub(crate) fn response(&self, protocol: ChatProtocol) -> Response {
        let status = StatusCode::from_u16(self.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = self.body(protocol).to_string();
        let mut response = plain(body, self.speaker, spoken(status, protocol));
        let headers = response.headers_mut();
        if let Some(call) = self.call {
            name(headers, call, protocol);
        }
        if let Some(after) = self.retry_after_ms {
            let seconds = after.div_ceil(1_000).max(1).to_string();
            if let Ok(seconds) = HeaderValue::try_from(seconds) {
                headers.insert(RETRY_AFTER, seconds);
            }
        }
        response
    }
}

/// Names the call in the headers of an answer, by our name and by that of the vendor.
pub(super) fn name(headers: &mut axum::http::HeaderMap, call: CallId, protocol: ChatProtocol) {
    let id = HeaderValue::try_from(call.to_string()).expect("an id is plain text");
    headers.insert(request_id(protocol), id.clone());
    headers.insert(CALL_ID, id);
}

/// What the gateway itself refuses, before there is a call.
pub(crate) fn refusal(refused: &Refused, protocol: ChatProtocol, language: Language) -> Response {
    let error = ModelError::refused(refused, language);
    let mut told = refused.carrying(String::new());
    // Its own, where that is another than its code's.
    let status = told.status();
    let error = ModelError {
        status: status.as_u16(),
        ..error
    };
    *told.status_mut() = spoken(status, protocol);
    *told.body_mut() = error.body(protocol).to_string().into();
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error() -> ModelError {
        ModelError {
            speaker: Speaker::Call,
            status: 429,
            code: "rate_limited".to_owned(),
            message: "Slow down.".to_owned(),
            path: Some("/messages".to_owned()),
            retry_after_ms: Some(1_500),
            call: None,
        }
    }

    #[test]
    fn an_error_has_the_shape_of_its_vendor() {
        let call = CallId::generate();
        let error = ModelError {
            call: Some(call),
            ..error()
        };
        let words = format!("Slow down. (call {call})");
        assert_eq!(
            error.body(ChatProtocol::OpenaiChat),
            json!({"error": {"message": words, "type": "rate_limit_error", "param": "/messages", "code": "rate_limited"}})
        );
        assert_eq!(
            error.body(ChatProtocol::Anthropic),
            json!({"type": "error", "request_id": call, "error": {"type": "rate_limit_error", "message": words, "code": "rate_limited"}})
        );
        let response = error.response(ChatProtocol::Anthropic);
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(response.status(), 429);
        assert_eq!(
            (header("retry-after"), header("request-id")),
            ("2".to_owned(), call.to_string())
        );
    }

    #[test]
    fn a_code_of_a_later_release_is_a_server_error() {
        assert_eq!(ModelError::status_of("too_loud", Some(400)), 500);
        assert_eq!(ModelError::status_of("tool_error", Some(400)), 400);
    }
}
