//! What a request is answered with.

use bytes::Bytes;
use fleet::{
    ids::CallId,
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

    pub(crate) fn result(envelope: &Envelope) -> Self {
        Self {
            body: envelope.to_bytes().into(),
            refused: None,
            call: envelope.call_id,
        }
    }

    pub(crate) fn refusal(tool: &str, error: ErrorBody) -> Self {
        let refused = Some((error.code, error.message.clone()));
        Self {
            body: Envelope::refused(tool, error).to_bytes().into(),
            refused,
            call: None,
        }
    }

    pub(crate) fn json(value: &serde_json::Value) -> Self {
        Self {
            body: value.to_string().into(),
            refused: None,
            call: None,
        }
    }
}
