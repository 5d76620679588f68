//! The answer to a request.

use bytes::Bytes;
use fleet::{
    bus::connect::Bus,
    call::Language,
    ids::CallId,
    registry::Registry,
    wire::{
        code::Code,
        envelope::{Accepted, EncodedEnvelope, Envelope},
    },
};

use crate::{
    files::room::FileTurn,
    refusal::{self, Refusal},
    request::Request,
};

/// An answer: its bytes, and whether it is a refusal, which also goes into the service's error headers.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) body: Bytes,
    /// Of bytes that are no JSON: what they are.
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) refused: Option<(Code, String)>,
    pub(crate) call: Option<CallId>,
    /// Held until it is written to the connection.
    pub(crate) held: Option<Box<FileTurn>>,
}

impl Answer {
    pub(crate) fn accepted(accepted: &Accepted) -> Self {
        let body = serde_json::to_vec(accepted)
            .expect("an envelope has only string keys")
            .into();
        Self {
            body,
            headers: Vec::new(),
            refused: None,
            call: Some(accepted.call_id),
            held: None,
        }
    }

    /// A result; without its body when NATS cannot carry it, for the caller must learn that the call succeeded.
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
            headers: Vec::new(),
            refused: None,
            call,
            held: None,
        }
    }

    /// A result as a worker has written it. It is parsed only where NATS cannot carry it.
    pub(crate) fn told(envelope: EncodedEnvelope, bytes_max: usize, language: Language) -> Self {
        let call = envelope.call();
        let decoded = (envelope.len() > bytes_max).then(|| envelope.decode().ok());
        match decoded.flatten() {
            Some(decoded) => Self::result(decoded, bytes_max, language),
            None => Self {
                body: envelope.into_bytes(),
                headers: Vec::new(),
                refused: None,
                call: Some(call),
                held: None,
            },
        }
    }

    /// A refusal of this request, in its caller's language, whatever else is wrong with the request.
    pub(crate) fn refusal(registry: &Registry, request: &Request<'_>, refusal: &Refusal) -> Self {
        let language = refusal::language_for(registry, request.language(), request.name);
        // For the error headers, which are ASCII.
        let refused = Some((refusal.code, refusal.error(Language::En).message));
        Self {
            body: refusal.envelope(request.name, language).to_bytes().into(),
            headers: Vec::new(),
            refused,
            call: None,
            held: None,
        }
    }

    /// Bytes that are no JSON, and what they are: visible ASCII.
    pub(crate) fn bytes(body: Bytes, headers: Vec<(&'static str, String)>) -> Self {
        Self {
            body,
            headers,
            refused: None,
            call: None,
            held: None,
        }
    }

    pub(crate) fn json(text: String) -> Self {
        Self {
            body: text.into(),
            headers: Vec::new(),
            refused: None,
            call: None,
            held: None,
        }
    }
}

impl Answer {
    /// Once it is on its way, this is dropped.
    pub(crate) fn holding(self, held: FileTurn) -> Self {
        Self {
            held: Some(Box::new(held)),
            ..self
        }
    }
}

/// The most bytes of an answer: the server's limit, less room for headers and protocol.
pub(crate) fn bytes_max(bus: &Bus) -> usize {
    bus.payload_max().saturating_sub(4 * 1024)
}
