//! An answer of the fleet as one over HTTP: its bytes as they came, its status from the table, and headers for who does not read
//! bodies.

use axum::{
    body::Body,
    http::{
        HeaderValue, StatusCode,
        header::{CONTENT_TYPE, LOCATION, RETRY_AFTER},
    },
    response::Response,
};
use bytes::Bytes;
use fleet::{call::State, ids::CallId, wire::code::Code};
use fleet_client::Answer;
use serde::Deserialize;

use crate::{
    headers::{ANSWER, CALL_ID, DEGRADED, OUTCOME, STATE, Speaker},
    status::{Column, Verdict},
};

/// Where calls are found.
pub(crate) const CALLS: &str = "/v1/calls";
/// Where a refusal's number stands.
const SERVICE_CODE: &str = "Nats-Service-Error-Code";
/// When to ask again for a call that goes on.
const AGAIN: &str = "1";

/// What the gateway reads of an answer. States and codes are words, for a later release may have more.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Glimpse {
    #[serde(default)]
    pub(crate) call_id: Option<CallId>,
    #[serde(default)]
    pub(crate) tool: String,
    #[serde(default)]
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) replayed: bool,
    #[serde(default)]
    outcome: Option<String>,
    #[serde(default)]
    degraded: Option<Degraded>,
    #[serde(default)]
    error: Option<Failure>,
}

#[derive(Debug, Clone, Deserialize)]
struct Degraded {
    kind: String,
}

#[derive(Debug, Clone, Deserialize)]
struct Failure {
    code: String,
    #[serde(default)]
    retry_after_ms: Option<u64>,
}

impl Glimpse {
    /// What these bytes say; nothing, where they are no envelope.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    /// Whether the request was refused.
    pub(crate) fn is_refused(&self) -> bool {
        self.state == "refused"
    }

    /// With which code the request was refused, where it was; `unavailable` where that is a word of a later release.
    pub(crate) fn refusal(&self) -> Option<Code> {
        let code = self.code().unwrap_or(Code::Unavailable);
        self.is_refused().then_some(code)
    }

    /// Whether the call goes on.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_refused() && self.state_of_call().is_some_and(|state| !is_decided(state))
    }

    /// Whether the request was refused for a reason that passes by itself.
    pub(crate) fn may_pass(&self) -> bool {
        let passing = [Code::Overloaded, Code::RateLimited, Code::StoreUnavailable];
        self.is_refused() && self.code().is_some_and(|code| passing.contains(&code))
    }

    /// Whether it was refused, for there is no such call for who asks.
    pub(crate) fn is_not_found(&self) -> bool {
        self.is_refused() && self.code() == Some(Code::NotFound)
    }

    /// Whether it was refused, for the call has gone on, or was over.
    pub(crate) fn is_too_late(&self) -> bool {
        let late = [Code::Conflict, Code::AlreadyTerminal];
        self.is_refused() && self.code().is_some_and(|code| late.contains(&code))
    }

    /// Whether it waits for somebody outside the fleet, whom its caller has to be told about.
    pub(crate) fn awaits(&self) -> bool {
        self.state_of_call() == Some(State::AwaitingClient)
    }

    fn state_of_call(&self) -> Option<State> {
        self.state.parse().ok()
    }

    fn code(&self) -> Option<Code> {
        self.error.as_ref()?.code.parse().ok()
    }

    /// What it says of a call.
    fn verdict(&self) -> Option<Verdict> {
        if self.is_refused() {
            return self.code().map(Verdict::Refused);
        }
        let state = self.state_of_call()?;
        if !is_decided(state) {
            return Some(Verdict::Open);
        }
        // The answer to a cancellation has no outcome.
        let outcome = self.outcome.as_deref().and_then(|word| word.parse().ok());
        Some(match outcome {
            Some(outcome) => Verdict::Decided(state, outcome),
            None => Verdict::Done,
        })
    }
}

/// A call in doubt is decided until somebody settles it: waiting longer changes nothing.
const fn is_decided(state: State) -> bool {
    state.is_terminal() || matches!(state, State::InDoubt)
}

/// The answer about one call, or the refusal of a request about it.
pub(crate) fn of_call(answer: &Answer, column: Column) -> Response {
    of_call_as(answer, column, Bytes::clone)
}

/// The same, where one about a call that goes on is told as `shown` has it.
pub(crate) fn of_call_as(
    answer: &Answer,
    column: Column,
    shown: impl FnOnce(&Bytes) -> Bytes,
) -> Response {
    let glimpse = Glimpse::of(answer.bytes());
    let body = match glimpse.is_open() {
        true => shown(answer.bytes()),
        false => answer.bytes().clone(),
    };
    let speaker = if glimpse.is_refused() {
        Speaker::Door
    } else {
        Speaker::Call
    };
    let status = match glimpse.verdict() {
        Some(verdict) => verdict.status(column),
        None => unknown(answer, &glimpse),
    };
    let mut response = plain(body, speaker, status);
    let headers = response.headers_mut();
    let lines = [
        (STATE, (speaker == Speaker::Call).then_some(&glimpse.state)),
        (
            OUTCOME,
            glimpse
                .outcome
                .as_ref()
                .filter(|_| speaker == Speaker::Call),
        ),
        (
            DEGRADED,
            glimpse.degraded.as_ref().map(|degraded| &degraded.kind),
        ),
    ];
    for (name, word) in lines {
        if let Some(value) = word.and_then(|word| HeaderValue::try_from(word).ok()) {
            headers.insert(name, value);
        }
    }
    if let Some(call) = glimpse.call_id {
        let id = HeaderValue::try_from(call.to_string()).expect("an id is plain text");
        headers.insert(CALL_ID, id);
        if glimpse.is_open() {
            let place = format!("{CALLS}/{call}");
            let place = HeaderValue::try_from(place).expect("an id is plain text");
            headers.insert(LOCATION, place);
        }
    }
    if let Some(after) = retry_after(&glimpse) {
        headers.insert(RETRY_AFTER, after);
    }
    response
}

/// The answer of an endpoint that is about no single call, or its refusal.
pub(crate) fn of_door(answer: &Answer) -> Response {
    let glimpse = Glimpse::of(answer.bytes());
    if glimpse.is_refused() {
        of_call(answer, Column::Plain)
    } else {
        plain(
            answer.bytes().clone(),
            Speaker::Door,
            Verdict::Done.status(Column::Plain),
        )
    }
}

/// JSON, by whoever it is.
pub(crate) fn plain(body: impl Into<Bytes>, speaker: Speaker, status: StatusCode) -> Response {
    let mut response = Response::new(Body::from(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ANSWER, speaker.value());
    response
}

/// The status of a word that this release does not know: the number that the dispatcher gave a refusal, 200 for a state.
fn unknown(answer: &Answer, glimpse: &Glimpse) -> StatusCode {
    let number = answer
        .headers()
        .and_then(|headers| headers.get(SERVICE_CODE));
    let number = number.and_then(|number| number.as_str().parse::<u16>().ok());
    let number = number.filter(|number| (400..=599).contains(number));
    let status = number.and_then(|number| StatusCode::from_u16(number).ok());
    match status {
        Some(status) => status,
        None if glimpse.is_refused() => StatusCode::BAD_REQUEST,
        None => StatusCode::OK,
    }
}

/// Whole seconds, at least one: for a call that goes on, and for a refusal that passes.
fn retry_after(glimpse: &Glimpse) -> Option<HeaderValue> {
    if glimpse.is_open() {
        return Some(HeaderValue::from_static(AGAIN));
    }
    let error = glimpse.error.as_ref().filter(|_| glimpse.is_refused())?;
    let seconds = error.retry_after_ms?.div_ceil(1_000).max(1);
    HeaderValue::try_from(seconds.to_string()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &'static str) -> Answer {
        Answer::from(async_nats::Message {
            subject: "_INBOX.x".into(),
            reply: None,
            payload: Bytes::from_static(text.as_bytes()),
            headers: None,
            status: None,
            description: None,
            length: 0,
        })
    }

    fn header<'a>(response: &'a Response, name: &str) -> &'a str {
        let value = response.headers().get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    const ID: &str = "01980000-0000-7000-8000-000000000000";

    #[test]
    fn an_envelope_says_by_headers_what_it_says_in_its_body() {
        let stale = answer(
            r#"{"call_id":"01980000-0000-7000-8000-000000000000","tool":"t","state":"failed","outcome":"fallback","degraded":{"kind":"stale"}}"#,
        );
        let response = of_call(&stale, Column::Plain);
        assert_eq!(response.status(), 200);
        for (name, value) in [
            ("toolfleet-answer", "call"),
            ("toolfleet-state", "failed"),
            ("toolfleet-outcome", "fallback"),
            ("toolfleet-degraded", "stale"),
            ("toolfleet-call-id", ID),
            ("retry-after", ""),
            ("location", ""),
        ] {
            assert_eq!(header(&response, name), value, "{name}");
        }
    }

    #[test]
    fn a_call_that_goes_on_says_where_and_when_to_ask() {
        let open = answer(
            r#"{"call_id":"01980000-0000-7000-8000-000000000000","tool":"t","state":"queued","replayed":false}"#,
        );
        let response = of_call(&open, Column::ByOutcome);
        assert_eq!(response.status(), 202);
        assert_eq!(header(&response, "location"), format!("/v1/calls/{ID}"));
        assert_eq!(header(&response, "retry-after"), "1");
    }

    #[test]
    fn a_refusal_is_the_doors_and_says_when_to_come_again() {
        let busy = answer(
            r#"{"call_id":null,"state":"refused","outcome":"system_error","error":{"code":"overloaded","retry_after_ms":1500}}"#,
        );
        let response = of_call(&busy, Column::Plain);
        assert_eq!(response.status(), 503);
        assert_eq!(header(&response, "toolfleet-answer"), "door");
        assert_eq!(header(&response, "retry-after"), "2");
        assert_eq!(header(&response, "toolfleet-state"), "");
    }

    #[test]
    fn words_of_a_later_release_are_no_server_error() {
        let new = of_call(&answer(r#"{"state":"resting"}"#), Column::Plain);
        assert_eq!(new.status(), 200);
        let refused = r#"{"state":"refused","error":{"code":"too_loud"}}"#;
        assert_eq!(of_call(&answer(refused), Column::Plain).status(), 400);
    }

    #[test]
    fn a_cancellation_that_was_heard_is_not_over_before_the_call_is() {
        let asked = r#"{"call_id":"01980000-0000-7000-8000-000000000000","state":"running","result":"cancel_requested"}"#;
        assert_eq!(of_call(&answer(asked), Column::Plain).status(), 202);
        let done = r#"{"call_id":"01980000-0000-7000-8000-000000000000","state":"cancelled","result":"cancelled"}"#;
        assert_eq!(of_call(&answer(done), Column::ByOutcome).status(), 200);
    }
}
