//! What a request is answered with.

use bytes::Bytes;
use fleet::{
    call::{EffectKnown, Language},
    ids::CallId,
    store::{DecisionError, StoreError},
    telemetry::report,
    wire::{
        code::Code,
        envelope::{Accepted, EncodedEnvelope, Envelope},
        error::ErrorBody,
        message::Message,
    },
};
use serde_json::Value;

/// An answer: its bytes, and whether it is a refusal, which also goes into the service's error headers.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) body: Bytes,
    pub(crate) refused: Option<(Code, String)>,
    pub(crate) call: Option<CallId>,
}

impl Answer {
    pub(crate) fn accepted(accepted: &Accepted) -> Self {
        let body = serde_json::to_vec(accepted)
            .expect("an envelope has only string keys")
            .into();
        Self {
            body,
            refused: None,
            call: Some(accepted.call_id),
        }
    }

    /// A result, without its body when NATS cannot carry it: that the call succeeded must be told all the same.
    pub(crate) fn result(envelope: Envelope, bytes_max: usize, language: Language) -> Self {
        let (call, body) = (envelope.call_id, envelope.to_bytes());
        let body = if body.len() <= bytes_max {
            body
        } else {
            let short = envelope.without_result(body.len(), bytes_max, language);
            short.to_bytes()
        };
        Self {
            body: body.into(),
            refused: None,
            call,
        }
    }

    /// A result that a worker has written, as it came. Only one that NATS cannot carry is read.
    pub(crate) fn told(envelope: EncodedEnvelope, bytes_max: usize, language: Language) -> Self {
        let call = envelope.call();
        let decoded = (envelope.len() > bytes_max).then(|| envelope.decode().ok());
        match decoded.flatten() {
            Some(decoded) => Self::result(decoded, bytes_max, language),
            None => Self {
                body: envelope.into_bytes(),
                refused: None,
                call: Some(call),
            },
        }
    }

    pub(crate) fn refusal(tool: &str, refusal: &Refusal, language: Language) -> Self {
        // Headers of NATS are ASCII, and whoever reads them is no model.
        let refused = Some((refusal.code, refusal.error(Language::En).message));
        Self {
            body: refusal.envelope(tool, language).to_bytes().into(),
            refused,
            call: None,
        }
    }

    pub(crate) fn json(text: String) -> Self {
        Self {
            body: text.into(),
            refused: None,
            call: None,
        }
    }
}

/// A refusal at the door. It is put into words where the envelope is written, in the caller's language.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) code: Code,
    why: Why,
    path: Option<String>,
    /// In English and in Chinese: sentences may stand in it.
    details: Option<Box<[Value; 2]>>,
}

/// What was refused, and what that means.
#[derive(Debug, Clone)]
enum Why {
    /// A call: nothing was stored and nothing ran. Or something that was asked about a call: it stays as it is.
    Refused(Message),
    /// The latter, for so many milliseconds.
    TooEarly(Message, u64),
    /// The ledger did not say whether it took the call.
    Unconfirmed { has_key: bool },
    /// The ledger cannot be read.
    Unreadable,
}

impl Refusal {
    pub(crate) fn new(code: Code, what: Message) -> Self {
        Self::because(code, Why::Refused(what))
    }

    pub(crate) fn too_early(code: Code, what: Message, retry_after_ms: u64) -> Self {
        Self::because(code, Why::TooEarly(what, retry_after_ms))
    }

    /// The ledger did not say whether it took the call.
    pub(crate) const fn unconfirmed(has_key: bool) -> Self {
        Self::because(Code::StoreUnavailable, Why::Unconfirmed { has_key })
    }

    /// The ledger cannot be read.
    pub(crate) fn unreadable(error: &StoreError) -> Self {
        tracing::warn!(error = report(error), "the ledger cannot be read");
        Self::because(Code::StoreUnavailable, Why::Unreadable)
    }

    /// A decision that was asked for was not made, or nobody knows; asking again is safe.
    pub(crate) fn undecided(error: DecisionError) -> Self {
        match error {
            DecisionError::Invalid(what) => {
                let chinese = format!("账本不接受这个请求：{what}");
                Self::new(Code::InvalidArguments, Message::new(what, chinese))
            }
            DecisionError::Store(error) => Self::unreadable(&error),
        }
    }

    pub(crate) fn not_found() -> Self {
        Self::new(
            Code::NotFound,
            Message::fixed("there is no such call", "不存在这个调用"),
        )
    }

    /// With the argument that is to blame.
    pub(crate) fn at(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// With more for programs and people.
    pub(crate) fn with_details(mut self, details: impl Fn(Language) -> Value) -> Self {
        self.details = Some(Box::new([Language::En, Language::Zh].map(details)));
        self
    }

    /// As a caller reads it.
    pub(crate) fn error(&self, language: Language) -> ErrorBody {
        let code = self.code;
        let error = match &self.why {
            Why::Refused(what) => ErrorBody::refused(code, what, language),
            Why::TooEarly(what, wait_ms) => ErrorBody::too_early(code, what, *wait_ms, language),
            Why::Unconfirmed { has_key } => ErrorBody::unconfirmed(*has_key, language),
            Why::Unreadable => ErrorBody::unreadable(language),
        };
        ErrorBody {
            path: self.path.clone(),
            details: self.details.as_deref().map(|[english, chinese]| {
                let told = match language {
                    Language::En => english,
                    Language::Zh => chinese,
                };
                told.clone()
            }),
            ..error
        }
    }

    /// The envelope that says so.
    pub(crate) fn envelope(&self, tool: &str, language: Language) -> Envelope {
        self.envelope_of(tool, self.error(language))
    }

    /// The same in other words.
    pub(crate) fn envelope_of(&self, tool: &str, error: ErrorBody) -> Envelope {
        Envelope {
            effect: match &self.why {
                // Nobody knows.
                Why::Unconfirmed { .. } | Why::Unreadable => EffectKnown::Unknown,
                Why::Refused(_) | Why::TooEarly(..) => EffectKnown::None,
            },
            ..Envelope::refused(tool, error)
        }
    }

    const fn because(code: Code, why: Why) -> Self {
        Self {
            code,
            why,
            path: None,
            details: None,
        }
    }
}
