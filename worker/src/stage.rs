//! The stages of an attempt: each step consumes one and returns the next.
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

/// A rendered request, and the sensitive values of its call.
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
    /// The slot of a program, until it is over.
    pub(crate) program: Option<ProgramSlot>,
}

/// A claimed call.
pub(crate) struct Running {
    pub(crate) claimed: Claimed,
    pub(crate) attempt_id: AttemptId,
    pub(crate) tool: Arc<Tool>,
    /// Hash of the arguments that were prepared. Where it differs from the row's, the row is right.
    pub(crate) args_hash: [u8; 32],
    pub(crate) rendered: Rendered,
    /// The slot of a program, until it is over.
    pub(crate) program: Option<ProgramSlot>,
    /// When the claim was sent, before the ledger's clock started. The attempt's deadline counts from it.
    pub(crate) claim_sent: Instant,
    pub(crate) entry: Entry,
}

/// An attempt that is over; its effect may have taken place.
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
    /// The executor ran, with this outcome.
    Ran(Outcome),
    /// The executor ran, and its effect was committed together with the call's end: there is nothing left to record.
    Committed(Outcome, Box<Moved>),
    /// The executor panicked, did not return, or left something behind: what it started may still act.
    Abandoned(Outcome),
    /// The platform took the attempt back before anything was started: the attempt is not counted against the tool's limit.
    TakenBack(TakenBack, ToolFailure),
    /// Nothing was started, because an earlier attempt may have had its effect and the tool would not recognise the key any
    /// more.
    KeyForgotten(ToolFailure),
}

impl Execution {
    /// How the attempt ended, in a word.
    pub(crate) const fn word(&self) -> OutcomeWord {
        match self {
            Self::Ran(outcome) | Self::Committed(outcome, _) | Self::Abandoned(outcome) => {
                outcome.word()
            }
            Self::TakenBack(..) | Self::KeyForgotten(_) => OutcomeWord::NotStarted,
        }
    }

    /// Whether nothing that the attempt started can act any more.
    pub(crate) const fn is_over(&self) -> bool {
        match self {
            Self::Ran(_) | Self::Committed(..) | Self::TakenBack(..) | Self::KeyForgotten(_) => {
                true
            }
            Self::Abandoned(_) => false,
        }
    }

    /// Why it did not succeed, if it did not.
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
    /// Why the platform ended the attempt, where the tool was not the reason: a fact found before the start, the executor's
    /// word, or a worker that leaves without an answer of the tool.
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
