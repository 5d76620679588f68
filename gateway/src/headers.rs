//! The headers that the gateway adds to answers and reads for itself. Their names are promises; `fleet::wire::headers` has those that
//! it passes on.

use axum::http::{HeaderName, HeaderValue};

/// Who speaks: a word of [`Speaker`].
pub(crate) const ANSWER: HeaderName = HeaderName::from_static("toolfleet-answer");
/// The state of the call.
pub(crate) const STATE: HeaderName = HeaderName::from_static("toolfleet-state");
/// The outcome of the call, once it is decided.
pub(crate) const OUTCOME: HeaderName = HeaderName::from_static("toolfleet-outcome");
/// The call.
pub(crate) const CALL_ID: HeaderName = HeaderName::from_static("toolfleet-call-id");
/// The route on which a model answered.
pub(crate) const ROUTE: HeaderName = HeaderName::from_static("toolfleet-route");
/// What a model's reply cost: an amount and its currency.
pub(crate) const COST: HeaderName = HeaderName::from_static("toolfleet-cost");
/// What kind of answer stands in for the tool's.
pub(crate) const DEGRADED: HeaderName = HeaderName::from_static("toolfleet-degraded");
/// Whose call it is, where a token is for more than one tenant.
pub(crate) const TENANT: HeaderName = HeaderName::from_static("toolfleet-tenant");
/// The language of messages.
pub(crate) const LANGUAGE: HeaderName = HeaderName::from_static("toolfleet-language");
/// What becomes of the call when its caller goes away.
pub(crate) const ON_DISCONNECT: HeaderName = HeaderName::from_static("toolfleet-on-disconnect");
/// Data for the tool; the gateway adds who asks.
pub(crate) const META: HeaderName = HeaderName::from_static("toolfleet-meta");
/// How the caller wants to be answered.
pub(crate) const PREFER: HeaderName = HeaderName::from_static("prefer");
/// The last event that somebody was told who follows a session.
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// The session of a call.
pub(crate) const SESSION: HeaderName = HeaderName::from_static("toolfleet-session");
/// What a file is called.
pub(crate) const FILE_NAME: HeaderName = HeaderName::from_static("toolfleet-file-name");
/// The hash of what is sent.
pub(crate) const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");
/// The hash of a file, of which perhaps a part is sent.
pub(crate) const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");
/// The same key is the same call.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The token, as clients of some vendors send it.
pub(crate) const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Who speaks in an answer, so that a failed call is told from a failed gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaker {
    /// The call: the body is its envelope.
    Call,
    /// A dispatcher: it has refused the request, or has done what it asked for.
    Door,
    /// The gateway.
    Gateway,
}

impl Speaker {
    /// The word.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Door => "door",
            Self::Gateway => "gateway",
        }
    }

    /// As the value of [`ANSWER`].
    pub(crate) fn value(self) -> HeaderValue {
        HeaderValue::from_static(self.as_str())
    }
}
