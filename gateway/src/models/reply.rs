//! What a vendor's client gets of a decided call: the reply that stands in its result, byte for byte, or why there is none. Pure.

use std::borrow::Cow;

use axum::{
    http::{HeaderName, HeaderValue, StatusCode},
    response::Response,
};
use bytes::Bytes;
use fleet::{
    call::{CallOutcome, Language},
    ids::CallId,
    manifest::ChatProtocol,
    wire::{code::Code, message::Message},
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::error::{ModelError, name};
use crate::{
    answer::plain,
    headers::{COST, DEGRADED, OUTCOME, ROUTE, STATE, Speaker},
};

/// A reply, and what of its result stands in headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelReply {
    pub(crate) call: CallId,
    /// The vendor's object.
    pub(crate) bytes: Bytes,
    route: Option<String>,
    cost: Option<String>,
    state: String,
    outcome: Option<String>,
    degraded: Option<String>,
}

/// What an answer about a call has for a vendor's client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ModelAnswer {
    Reply(ModelReply),
    /// The call has worked, and its answer has not all of the reply: the ledger has.
    Kept(Box<ModelReply>),
    Failed(ModelError),
}

#[derive(Debug, Deserialize)]
struct CallEnvelope<'a> {
    #[serde(default)]
    call_id: Option<CallId>,
    state: String,
    #[serde(default)]
    outcome: Option<String>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<EnvelopeError<'a>>,
    #[serde(default)]
    degraded: Option<EnvelopeDegraded>,
}

#[derive(Debug, Deserialize)]
struct EnvelopeDegraded {
    kind: String,
}

#[derive(Debug, Deserialize)]
struct EnvelopeError<'a> {
    code: String,
    message: String,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    retry_after_ms: Option<u64>,
    #[serde(borrow, default)]
    details: Option<&'a RawValue>,
}

/// What of a result is looked at; all of it may be missing.
#[derive(Debug, Default, Deserialize)]
struct ChatResult<'a> {
    #[serde(borrow, default)]
    reply: Option<&'a RawValue>,
    #[serde(default)]
    route: Option<String>,
    #[serde(default)]
    cost: Option<ReplyCost>,
}

#[derive(Debug, Deserialize)]
struct ReplyCost {
    amount: String,
    currency: String,
}

impl ModelAnswer {
    /// Of the bytes of an answer about a call that is decided, or whose request was refused.
    pub(crate) fn read(bytes: &Bytes, language: Language) -> Self {
        let Ok(envelope) = serde_json::from_slice::<CallEnvelope<'_>>(bytes) else {
            return Self::Failed(unreadable(None, language));
        };
        let outcome: Option<CallOutcome> = envelope
            .outcome
            .as_deref()
            .and_then(|word| word.parse().ok());
        let has_worked = matches!(outcome, Some(CallOutcome::Success | CallOutcome::Fallback));
        let (Some(call), true) = (envelope.call_id, has_worked) else {
            return Self::Failed(failed(&envelope, language));
        };
        let told = envelope.result.map(RawValue::get).unwrap_or_default();
        let is_live = outcome == Some(CallOutcome::Success);
        let reply = ModelReply {
            call,
            bytes: Bytes::new(),
            route: None,
            cost: None,
            state: envelope.state,
            outcome: envelope.outcome,
            degraded: envelope.degraded.map(|degraded| degraded.kind),
        };
        match reply.clone().with(told, |text| bytes.slice_ref(text)) {
            Some(reply) => Self::Reply(reply),
            None if is_live => Self::Kept(Box::new(reply)),
            // What its manifest says instead of a reply is for callers of the contract.
            None => Self::Failed(unreadable(Some(call), language)),
        }
    }
}

impl ModelReply {
    /// The same with what stands in the result as the ledger has it; `None`: there is no reply in it.
    pub(crate) fn in_ledger(self, result: Bytes) -> Option<Self> {
        let text = std::str::from_utf8(&result).ok()?.to_owned();
        self.with(&text, Bytes::copy_from_slice)
    }

    fn with(self, result: &str, cut: impl FnOnce(&[u8]) -> Bytes) -> Option<Self> {
        let result: ChatResult<'_> = serde_json::from_str(result).ok()?;
        let reply = result.reply.filter(|reply| reply.get().starts_with('{'))?;
        Some(Self {
            bytes: cut(reply.get().as_bytes()),
            route: result.route,
            cost: result
                .cost
                .map(|ReplyCost { amount, currency }| format!("{amount} {currency}")),
            ..self
        })
    }

    /// The answer: the reply, and nothing around it.
    pub(crate) fn response(self, protocol: ChatProtocol) -> Response {
        let mut response = plain(self.bytes.clone(), Speaker::Call, StatusCode::OK);
        self.mark(response.headers_mut(), protocol);
        response
    }

    /// Says in headers what its result says beside the reply.
    pub(crate) fn mark(&self, headers: &mut axum::http::HeaderMap, protocol: ChatProtocol) {
        name(headers, self.call, protocol);
        let lines: [(HeaderName, Option<&String>); 5] = [
            (ROUTE, self.route.as_ref()),
            (COST, self.cost.as_ref()),
            (STATE, Some(&self.state)),
            (OUTCOME, self.outcome.as_ref()),
            (DEGRADED, self.degraded.as_ref()),
        ];
        for (name, word) in lines {
            if let Some(value) = word.and_then(|word| HeaderValue::try_from(word).ok()) {
                headers.insert(name, value);
            }
        }
    }
}

/// What of a failure's details is looked at.
#[derive(Debug, Default, Deserialize)]
struct FailureDetails<'a> {
    /// The vendor's.
    #[serde(default)]
    status: Option<u16>,
    /// The last attempt's failure, where this one is around it.
    #[serde(borrow, default)]
    last: Option<LastFailure<'a>>,
}

#[derive(Debug, Deserialize)]
struct LastFailure<'a> {
    #[serde(borrow)]
    code: Cow<'a, str>,
    #[serde(default)]
    retry_after_ms: Option<u64>,
    #[serde(borrow, default)]
    details: Option<&'a RawValue>,
}

impl<'a> FailureDetails<'a> {
    /// What cannot be read says nothing.
    fn read(details: Option<&'a RawValue>) -> Self {
        let details = details.map(RawValue::get);
        let read = details.and_then(|details| serde_json::from_str(details).ok());
        read.unwrap_or_default()
    }
}

/// The failure of a call, or the refusal of its request.
fn failed(envelope: &CallEnvelope<'_>, language: Language) -> ModelError {
    let Some(error) = &envelope.error else {
        return unreadable(envelope.call_id, language);
    };
    let FailureDetails { status, last } = FailureDetails::read(error.details);
    // That several attempts were made says nothing of why: what the last one came to does, as if it had been the only one.
    let last = last.filter(|_| error.code == Code::RetriesExhausted.as_str());
    let status = match &last {
        Some(last) => ModelError::status_of(&last.code, FailureDetails::read(last.details).status),
        None => ModelError::status_of(&error.code, status),
    };
    ModelError {
        speaker: match envelope.call_id {
            Some(_) => Speaker::Call,
            None => Speaker::Door,
        },
        status,
        code: error.code.clone(),
        message: error.message.clone(),
        path: error.path.clone(),
        retry_after_ms: error
            .retry_after_ms
            .or(last.and_then(|last| last.retry_after_ms)),
        call: envelope.call_id,
    }
}

/// There is an answer, and no reply of a model in it.
pub(super) fn unreadable(call: Option<CallId>, language: Language) -> ModelError {
    let what = Message::fixed(
        "The call is over, and there is no reply of a model in what is kept of it.",
        "调用已结束，但保存的结果中没有模型的回复。",
    );
    ModelError::of_call(Code::OutputInvalid, &what, call, language)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "01980000-0000-7000-8000-000000000000";

    fn read(state: &str, outcome: &str, result: &str, error: &str) -> ModelAnswer {
        let text = format!(
            r#"{{"call_id":"{ID}","tool":"t","state":"{state}","outcome":"{outcome}","result":{result},"error":{error},"degraded":null}}"#
        );
        ModelAnswer::read(&text.into(), Language::En)
    }

    #[test]
    fn a_reply_keeps_its_bytes_and_the_rest_stands_in_headers() {
        let result = r#"{"reply": {"id" : "x", "n":1.10, "n":9007199254740993} ,"route":"main","cost":{"amount":"0.00038","currency":"USD"},"tried":[]}"#;
        let ModelAnswer::Reply(reply) = read("succeeded", "success", result, "null") else {
            panic!("there is a reply");
        };
        assert_eq!(
            reply.bytes,
            r#"{"id" : "x", "n":1.10, "n":9007199254740993}"#
        );
        let response = reply.response(ChatProtocol::OpenaiChat);
        let header = |name: &str| response.headers()[name].to_str().unwrap();
        for (name, value) in [
            ("toolfleet-answer", "call"),
            ("toolfleet-call-id", ID),
            ("x-request-id", ID),
            ("toolfleet-route", "main"),
            ("toolfleet-cost", "0.00038 USD"),
            ("toolfleet-state", "succeeded"),
        ] {
            assert_eq!(header(name), value, "{name}");
        }
    }

    #[test]
    fn a_reply_of_which_callers_get_a_part_is_in_the_ledger() {
        let preview = r#"{"$result":"x","bytes":5,"preview":"{"}"#;
        for result in [preview, "null"] {
            let ModelAnswer::Kept(kept) = read("succeeded", "success", result, "null") else {
                panic!("{result} is not all of it");
            };
            assert_eq!(kept.clone().in_ledger(preview.into()), None);
            let whole = kept.in_ledger(r#"{"reply":{"a":1}}"#.into()).unwrap();
            assert_eq!(whole.bytes, r#"{"a":1}"#);
        }
        // A stub is no reply, unless it looks like one.
        let stub = read("failed", "fallback", "{}", "null");
        assert!(matches!(stub, ModelAnswer::Failed(_)), "{stub:?}");
        let stale = read("failed", "fallback", r#"{"reply":{}}"#, "null");
        assert!(matches!(stale, ModelAnswer::Reply(_)), "{stale:?}");
    }

    #[test]
    fn a_failure_has_its_own_code_and_the_vendors_status() {
        let error = r#"{"code":"tool_error","message":"Bad words.","retryable":false,"retry_after_ms":null,"suggestion":"x","details":{"status":422}}"#;
        let ModelAnswer::Failed(failed) = read("failed", "business_error", "null", error) else {
            panic!("it has failed");
        };
        assert_eq!((failed.status, failed.code.as_str()), (422, "tool_error"));
        assert_eq!(failed.words(), format!("Bad words. (call {ID})"));
        let odd = r#"{"code":"later","message":"m","details":[1]}"#;
        let ModelAnswer::Failed(failed) = read("failed", "system_error", "null", odd) else {
            panic!("it has failed");
        };
        assert_eq!(failed.status, 500);
        for (last, status) in [
            (
                r#"{"code":"unavailable","message":"m","details":{"status":429}}"#,
                429,
            ),
            (r#"{"code":"unavailable","message":"m"}"#, 503),
            (r#"{"code":"timeout","message":"m","details":[1]}"#, 504),
            (r#"{"code":"tool_error","details":{"status":401}}"#, 502),
            (r#"{"code":"later"}"#, 500),
            ("7", 500),
        ] {
            let error = |code: &str| {
                format!(r#"{{"code":"{code}","message":"m","details":{{"last":{last}}}}}"#)
            };
            let read = |code: &str| match read("failed", "system_error", "null", &error(code)) {
                ModelAnswer::Failed(failed) => (failed.status, failed.code),
                answer => panic!("{answer:?}"),
            };
            let expected = (status, "retries_exhausted".to_owned());
            assert_eq!(read("retries_exhausted"), expected, "{last}");
            // The time is over, whatever there was before.
            assert_eq!(read("deadline_exceeded").0, 504, "{last}");
        }
        let none = ModelAnswer::read(&"nothing".into(), Language::En);
        assert!(matches!(
            none,
            ModelAnswer::Failed(ModelError { call: None, .. })
        ));
    }
}
