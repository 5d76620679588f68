//! A call after a move, as the ledger returns it, and the messages about it.

use time::OffsetDateTime;

use super::{
    record::EndingKind,
    table::{Happened, Words},
};
use crate::{
    call::{CallOutcome, EffectKnown, State},
    ids::{CallId, DispatcherId, Label},
    wire::{
        envelope::{DecidedCall, Envelope},
        error::ErrorBody,
        event::{Event, Happening},
    },
};

/// A call that an ending has moved.
#[derive(Debug, Clone)]
pub struct Moved {
    /// Its revision: how often it has moved, this time included.
    pub rev: i32,
    /// When it moved.
    pub moved_at: OffsetDateTime,
    /// Its new state.
    pub state: State,
    /// Its tool.
    pub tool: String,
    /// The version it was accepted with.
    pub tool_version: i32,
    /// The caller's tenant.
    pub tenant: Label,
    /// The caller's session.
    pub session: Option<Label>,
    /// The dispatcher that accepted it.
    pub dispatcher: DispatcherId,
    /// How many attempts were made.
    pub attempts: i32,
    /// What was changed in the arguments, JSON text.
    pub coercions: Option<String>,
    /// Milliseconds from acceptance to the first attempt.
    pub queued_ms: i64,
    /// Milliseconds from there to the move.
    pub run_ms: i64,
}

impl Moved {
    /// The event about it, if the call is decided by the move.
    pub fn finished(&self, call: CallId, kind: &EndingKind) -> Option<Event> {
        let (outcome, error) = match kind {
            EndingKind::End { outcome, error, .. } => (*outcome, error.as_deref()),
            EndingKind::Doubt { error } => (CallOutcome::Unknown, Some(error.as_str())),
            EndingKind::Again { .. } => return None,
        };
        let error: Option<ErrorBody> = error.and_then(|error| serde_json::from_str(error).ok());
        Some(Event {
            call_id: call,
            sequence: Event::sequence(self.rev, 0),
            at: self.moved_at,
            what: Happening::Finished {
                state: self.state,
                outcome,
                attempts: self.attempts,
                code: error.map(|error| error.code),
            },
        })
    }

    /// The envelope of a call that this ending decided: the same bytes that a later reader makes from the row. `None` where it
    /// decided nothing, or where one of its texts is no JSON.
    pub fn envelope(&self, call: CallId, kind: EndingKind) -> Option<Envelope> {
        let (outcome, source, effect, result, error, degraded) = match kind {
            EndingKind::End {
                outcome,
                source,
                effect,
                result,
                error,
                degraded,
                ..
            } => (outcome, source, effect, result, error, degraded),
            EndingKind::Doubt { error } => {
                let Words {
                    outcome, source, ..
                } = Happened::InDoubt.words();
                let effect = EffectKnown::Unknown;
                (outcome, source, effect, None, Some(error), None)
            }
            EndingKind::Again { .. } => return None,
        };
        let decided = DecidedCall {
            call_id: call,
            tool: self.tool.clone(),
            tool_version: self.tool_version,
            state: self.state,
            outcome,
            source,
            effect,
            result,
            error,
            degraded,
            coercions: self.coercions.clone(),
            attempts: self.attempts,
            queued_ms: self.queued_ms,
            run_ms: self.run_ms,
        };
        decided.envelope().ok()
    }
}
