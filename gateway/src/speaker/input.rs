//! What the speaker hears: one message of the session's stream at a time.

use std::sync::Arc;

use fleet::{
    call::{CallOutcome, State},
    wire::{
        code::Code,
        envelope::{Envelope, EnvelopeState},
        event::Event,
    },
};
use time::OffsetDateTime;

use super::header::TurnHeader;

/// One message of the stream.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeakerInput {
    /// Its place in the stream, which rises from message to message.
    pub seq: u64,
    /// When the stream took it: the only clock there is.
    pub at: OffsetDateTime,
    /// What it says.
    pub news: News,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// Which calls the turn has.
    Header(Box<TurnHeader>),
    /// Something happened to a call.
    Event(Event),
    /// A call is over, and this is its row.
    ///
    /// [`super::Speech::wants_row`] says for which events the row has to be read. The row of a call that is over never changes, so
    /// it is the same for every gateway and for every replay. Where the stream has lost the event, one that is made from the row does
    /// as well, if every gateway makes it at the same place.
    Finished {
        /// The event `finished`.
        event: Event,
        /// The row.
        row: Box<FinalRow>,
    },
    /// Something that is none of this, such as an event of a later release. Only its time counts.
    Other,
}

/// What the row of a call that is over says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinalRow {
    /// Its state.
    pub state: State,
    /// What it came to.
    pub outcome: CallOutcome,
    /// The tool's answer, as JSON text, which all who follow the turn may share.
    pub result: Option<Arc<String>>,
    /// What went wrong.
    pub error: Option<FinalError>,
}

/// What went wrong with a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinalError {
    /// The stable code.
    pub code: Code,
    /// The same in words, for a model.
    pub message: String,
}

impl FinalRow {
    /// What an envelope says; `None` for a refusal, which has no call.
    pub fn of(envelope: &Envelope) -> Option<Self> {
        let EnvelopeState::Of(state) = envelope.state else {
            return None;
        };
        Some(Self {
            state,
            outcome: envelope.outcome,
            result: envelope
                .result
                .as_ref()
                .map(|result| Arc::new(result.get().to_owned())),
            error: envelope.error.as_ref().map(|error| FinalError {
                code: error.code,
                message: error.message.clone(),
            }),
        })
    }
}
