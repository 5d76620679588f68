//! What a request is answered with.

use bytes::Bytes;
use fleet::{
    call::EffectKnown,
    ids::CallId,
    store::{DecisionError, StoreError},
    telemetry::report,
    wire::{
        code::Code,
        envelope::{Accepted, Envelope},
        error::ErrorBody,
    },
};

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
    pub(crate) fn result(envelope: Envelope, bytes_max: usize) -> Self {
        let (call, body) = (envelope.call_id, envelope.to_bytes());
        let body = if body.len() <= bytes_max {
            body
        } else {
            envelope.without_result(body.len(), bytes_max).to_bytes()
        };
        Self {
            body: body.into(),
            refused: None,
            call,
        }
    }

    pub(crate) fn refusal(tool: &str, refusal: Refusal) -> Self {
        let refused = Some((refusal.error.code, refusal.error.message.clone()));
        Self {
            body: refusal.envelope(tool).to_bytes().into(),
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

/// A refusal at the door.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) error: ErrorBody,
    /// `none`, but for the ledger's silence: then nobody knows.
    effect: EffectKnown,
}

impl Refusal {
    pub(crate) fn new(code: Code, what: &str) -> Self {
        ErrorBody::refused(code, what).into()
    }

    /// The ledger did not say whether it took the call.
    pub(crate) fn unconfirmed(has_key: bool) -> Self {
        Self {
            error: ErrorBody::unconfirmed(has_key),
            effect: EffectKnown::Unknown,
        }
    }

    /// The ledger cannot be read.
    pub(crate) fn unreadable(error: &StoreError) -> Self {
        tracing::warn!(error = report(error), "the ledger cannot be read");
        Self {
            error: ErrorBody::unreadable(),
            effect: EffectKnown::Unknown,
        }
    }

    /// A decision that was asked for was not made, or nobody knows; asking again is safe.
    pub(crate) fn undecided(error: DecisionError) -> Self {
        match error {
            DecisionError::Invalid(what) => Self::new(Code::InvalidArguments, &what),
            DecisionError::Store(error) => Self::unreadable(&error),
        }
    }

    /// The envelope that says so.
    pub(crate) fn envelope(&self, tool: &str) -> Envelope {
        Envelope {
            effect: self.effect,
            ..Envelope::refused(tool, self.error.clone())
        }
    }

    /// The same in other words.
    pub(crate) fn with(&self, error: ErrorBody) -> Self {
        Self {
            error,
            effect: self.effect,
        }
    }

    pub(crate) fn not_found() -> Self {
        Self::new(Code::NotFound, "there is no such call")
    }
}

impl From<ErrorBody> for Refusal {
    fn from(error: ErrorBody) -> Self {
        Self {
            error,
            effect: EffectKnown::None,
        }
    }
}
