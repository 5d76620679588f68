//! One answer of a dispatcher: its bytes, and how to read them.

use async_nats::{HeaderMap, Message};
use bytes::Bytes;
use fleet::ids::CallId;
use serde::Deserialize;

use crate::error::AskError;

/// An answer as it came. It is decoded only as far as the reader asks.
#[derive(Debug, Clone)]
pub struct Answer {
    bytes: Bytes,
    headers: Option<HeaderMap>,
}

impl Answer {
    /// Its bytes: an envelope, or the answer of another endpoint.
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The same answer with other bytes, as where a part of it is withheld.
    #[must_use]
    pub fn with_bytes(self, bytes: Bytes) -> Self {
        Self { bytes, ..self }
    }

    /// Its headers: a refusal has the code in `Nats-Service-Error-Code`.
    pub const fn headers(&self) -> Option<&HeaderMap> {
        self.headers.as_ref()
    }

    /// Its bytes as text.
    ///
    /// # Errors
    ///
    /// [`AskError::Unreadable`]: they are no UTF-8.
    pub fn text(&self) -> Result<&str, AskError> {
        std::str::from_utf8(&self.bytes).map_err(|wrong| AskError::Unreadable(wrong.into()))
    }

    /// The fields that every answer has.
    ///
    /// # Errors
    ///
    /// [`AskError::Unreadable`]: it is no JSON object.
    pub fn head(&self) -> Result<Head, AskError> {
        self.read()
    }

    /// The answer as one of the types of `fleet::wire`, or another type that reads JSON.
    ///
    /// # Errors
    ///
    /// [`AskError::Unreadable`]: it does not fit the type.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, AskError> {
        serde_json::from_slice(&self.bytes).map_err(|wrong| AskError::Unreadable(wrong.into()))
    }
}

impl From<Message> for Answer {
    fn from(message: Message) -> Self {
        Self {
            bytes: message.payload,
            headers: message.headers,
        }
    }
}

/// The fields that every answer has; an absent field has its default.
///
/// States, effects and codes are words, so that a word of a later release is no error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Head {
    /// The call; none where the request was refused.
    #[serde(default)]
    pub call_id: Option<CallId>,
    /// The state of the call, or `refused`.
    #[serde(default)]
    pub state: String,
    /// Whether a model should treat it as an error. An accepted envelope does not say.
    #[serde(default)]
    pub is_error: bool,
    /// Whether an earlier request made the call.
    #[serde(default)]
    pub replayed: bool,
    /// What is known of the tool's effect.
    #[serde(default)]
    pub effect: String,
    /// What went wrong.
    #[serde(default)]
    pub error: Option<HeadError>,
}

/// The error in an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct HeadError {
    /// The stable code.
    pub code: String,
    /// The sentence, in the language of the call.
    #[serde(default)]
    pub message: String,
    /// Whether the same request may succeed later.
    #[serde(default)]
    pub retryable: bool,
    /// How long to wait before that, in milliseconds.
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
}

impl Head {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// The bytes are no JSON object.
    pub fn of(answer: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(answer)
    }

    /// Whether the request was refused: there is no call.
    pub fn is_refused(&self) -> bool {
        self.state == "refused"
    }

    /// Whether the call is over or in doubt: no wait changes that.
    pub fn is_decided(&self) -> bool {
        matches!(
            self.state.as_str(),
            "succeeded" | "failed" | "cancelled" | "expired" | "in_doubt"
        )
    }

    /// Whether the request was refused for a reason that passes by itself.
    pub fn may_pass(&self) -> bool {
        self.is_refused()
            && matches!(
                self.code(),
                "overloaded" | "quota_exceeded" | "rate_limited" | "store_unavailable"
            )
    }

    /// Whether the tool's effect certainly did not happen.
    pub fn nothing_happened(&self) -> bool {
        self.effect == "none"
    }

    /// The code of its error; empty where there is none.
    pub fn code(&self) -> &str {
        self.error.as_ref().map_or("", |error| &error.code)
    }

    /// The sentence of its error; empty where there is none.
    pub fn message(&self) -> &str {
        self.error.as_ref().map_or("", |error| &error.message)
    }
}

#[cfg(test)]
mod tests {
    use fleet::{
        call::Language,
        wire::{code::Code, envelope::Envelope, error::ErrorBody, message::Message},
    };

    use super::*;

    fn refused(code: Code) -> Head {
        let what = Message::verbatim("no".to_owned());
        let envelope = Envelope::refused("", ErrorBody::refused(code, &what, Language::En));
        Head::of(&envelope.to_bytes()).unwrap()
    }

    #[test]
    fn an_accepted_envelope_is_no_error_and_an_answer_that_is_no_envelope_is() {
        let is_error = |answer: &str| Head::of(answer.as_bytes()).map(|head| head.is_error);
        assert!(!is_error(r#"{"state":"queued"}"#).unwrap());
        assert!(!is_error(r#"{"is_error":false}"#).unwrap());
        assert!(is_error(r#"{"is_error":true}"#).unwrap());
        assert!(is_error("pong").is_err());
    }

    #[test]
    fn only_some_refusals_pass_by_themselves() {
        for passing in [
            Code::Overloaded,
            Code::QuotaExceeded,
            Code::RateLimited,
            Code::StoreUnavailable,
        ] {
            assert!(refused(passing).may_pass(), "{passing}");
        }
        let wrong = refused(Code::InvalidArguments);
        assert!(wrong.is_refused() && !wrong.may_pass() && !wrong.is_decided());
        assert_eq!(wrong.code(), "invalid_arguments");
        assert!(wrong.message().starts_with("No"), "{}", wrong.message());
    }

    #[test]
    fn a_state_of_a_later_release_is_not_decided() {
        let head = Head::of(br#"{"state":"resting","effect":"none"}"#).unwrap();
        assert!(!head.is_decided() && !head.is_refused() && head.nothing_happened());
    }
}
