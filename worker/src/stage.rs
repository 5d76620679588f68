//! What an attempt is between two steps: each step consumes the one before and returns the next.
//!
//! ```text
//! Gated ─claim─▶ Running ─execute─▶ Executed
//! ```

use std::sync::Arc;

use fleet::{
    ending::Moved,
    ids::{AttemptId, CallId},
    outcome::{Outcome, OutcomeWord, ToolFailure},
    registry::Tool,
    store::claim::Claimed,
    taken_back::TakenBack,
};
use tokio::time::Instant;

use crate::{
    executors::{Prepared, StopReason},
    programs::ProgramSlot,
    redact::RedactedFailures,
    running::Entry,
};

/// A rendered request, and which values of its call are not to be told.
pub(crate) struct Rendered {
    pub(crate) prepared: Box<dyn Prepared>,
    pub(crate) redact: RedactedFailures,
}

/// A call whose request is ready to go out.
pub(crate) struct Gated {
    pub(crate) call: CallId,
    pub(crate) tool: Arc<Tool>,
    pub(crate) args_hash: [u8; 32],
    pub(crate) rendered: Rendered,
    /// Of a program: its slot, until it is over.
    pub(crate) program: Option<ProgramSlot>,
}

/// A claimed call.
pub(crate) struct Running {
    pub(crate) claimed: Claimed,
    pub(crate) attempt_id: AttemptId,
    pub(crate) tool: Arc<Tool>,
    /// Hash of the arguments that were prepared; the row's are the truth.
    pub(crate) args_hash: [u8; 32],
    pub(crate) rendered: Rendered,
    /// Of a program: its slot, until it is over.
    pub(crate) program: Option<ProgramSlot>,
    /// When the claim was sent, before the ledger's clock started: the attempt ends by it.
    pub(crate) claim_sent: Instant,
    pub(crate) entry: Entry,
}

/// An attempt that is over; the world may have changed.
pub(crate) struct Executed {
    pub(crate) claimed: Claimed,
    pub(crate) attempt_id: AttemptId,
    pub(crate) tool: Arc<Tool>,
    pub(crate) claim_sent: Instant,
    pub(crate) entry: Entry,
    pub(crate) execution: Execution,
}

/// What came of a claimed attempt.
#[derive(Debug)]
pub(crate) enum Execution {
    /// The executor was run, and says this.
    Ran(Outcome),
    /// The executor was run, and what it did committed together with the call's end: there is nothing left to record.
    Committed(Outcome, Box<Moved>),
    /// The executor did not come back, or came back by a panic, or left something behind: what it started may still act.
    Abandoned(Outcome),
    /// The platform took the attempt back before anything was started, for this reason: no tool has spent it.
    TakenBack(TakenBack, ToolFailure),
    /// Nothing was started, for an attempt before may have had its effect and the tool would not recognise its key.
    KeyForgotten(ToolFailure),
}

impl Execution {
    /// The word for how the attempt ended.
    pub(crate) const fn word(&self) -> OutcomeWord {
        match self {
            Self::Ran(outcome) | Self::Committed(outcome, _) | Self::Abandoned(outcome) => {
                outcome.word()
            }
            Self::TakenBack(..) | Self::KeyForgotten(_) => OutcomeWord::NotStarted,
        }
    }

    /// Whether nothing that was started for the attempt can act any more.
    pub(crate) const fn is_over(&self) -> bool {
        match self {
            Self::Ran(_) | Self::Committed(..) | Self::TakenBack(..) | Self::KeyForgotten(_) => {
                true
            }
            Self::Abandoned(_) => false,
        }
    }

    /// Why it did not do what was asked, if it did not.
    pub(crate) const fn failure(&self) -> Option<&ToolFailure> {
        match self {
            Self::Ran(outcome) | Self::Committed(outcome, _) | Self::Abandoned(outcome) => {
                outcome.failure()
            }
            Self::TakenBack(_, failure) | Self::KeyForgotten(failure) => Some(failure),
        }
    }
}

impl Executed {
    /// Why the platform ended the attempt, where it was not the tool: what was found before it was started, what the executor
    /// says, or that it was told to end because the worker leaves and has no answer of the tool.
    pub(crate) fn why_taken_back(&self) -> Option<TakenBack> {
        let said = || self.execution.failure()?.why_taken_back();
        let drained = || {
            let unanswered = match self.execution.word() {
                OutcomeWord::NotStarted | OutcomeWord::Unknown => true,
                OutcomeWord::Applied | OutcomeWord::DefiniteFailure => false,
            };
            unanswered && self.entry.stop.asked() == Some(StopReason::Drained)
        };
        match &self.execution {
            Execution::TakenBack(why, _) => Some(*why),
            Execution::KeyForgotten(_) => None,
            Execution::Ran(_) | Execution::Committed(..) | Execution::Abandoned(_) => {
                said().or_else(|| drained().then_some(TakenBack::WorkerLeft))
            }
        }
    }
}
