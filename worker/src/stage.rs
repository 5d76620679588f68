//! The stages of an attempt: each step consumes one and returns the next.
//!
//! ```text
//! Gated ─claim─▶ Running ─execute─▶ Executed
//! ```

use std::{sync::Arc, time::Duration};

use fleet::{
    ending::{EndedAttempt, Known, Moved},
    fallback::StandIn,
    ids::{AttemptId, CallId, Label},
    input::ToolWish,
    manifest::Visibility,
    modes::InterceptMode,
    outcome::{Outcome, OutcomeWord, ToolFailure},
    registry::Tool,
    store::claim::Claimed,
    taken_back::TakenBack,
    wire::code::Code,
};
use secrecy::SecretString;
use tokio::time::Instant;

use crate::{
    breaker::permit::BreakerPermit,
    executors::{Prepared, StopReason},
    files::AttemptFiles,
    onion::Round,
    programs::ProgramSlot,
    redact::RedactedFailures,
    running::Entry,
};

/// A rendered request, and the sensitive values of its call.
pub(crate) struct Rendered {
    pub(crate) prepared: Box<dyn Prepared>,
    /// Whether running it starts a program.
    pub(crate) is_program: bool,
    pub(crate) redact: RedactedFailures,
}

impl Rendered {
    /// Why it may not run, if it needs somebody who follows the session of its call and nobody can.
    pub(crate) fn unfollowed(&self, tool: &Tool, session: Option<&Label>) -> Option<ToolFailure> {
        let is_hidden = tool.manifest.visibility == Visibility::Hidden;
        let failure = || self.prepared.unfollowed();
        (session.is_none() || is_hidden).then(failure).flatten()
    }

    /// The same as a result.
    pub(crate) fn followed(
        self,
        tool: &Tool,
        session: Option<&Label>,
    ) -> Result<Self, ToolFailure> {
        match self.unfollowed(tool, session) {
            Some(failure) => Err(failure),
            None => Ok(self),
        }
    }
}

/// A call whose request is ready to go out.
pub(crate) struct Gated {
    pub(crate) call: CallId,
    pub(crate) tool: Arc<Tool>,
    /// Hash of the arguments that were rendered. Where it differs from the row's, the row is right.
    pub(crate) args_hash: [u8; 32],
    /// What was hashed, where another tool may be asked with it.
    pub(crate) args: Option<String>,
    pub(crate) rendered: Rendered,
    /// The interceptors of the program that it began with, if there are any.
    pub(crate) round: Option<Box<Round>>,
    /// The slot of a program, until it is over.
    pub(crate) program: Option<ProgramSlot>,
    /// What the rate limit of its tool may do; `None`: the tool has no policy and no limit, neither of starts nor of attempts.
    pub(crate) limited: Option<InterceptMode>,
    /// How long its attempt may take, if its call has as much time left.
    pub(crate) timeout: Duration,
    /// That its target may be tried, where its tool has a breaker.
    pub(crate) breaker: Option<BreakerPermit>,
    /// That it is not tried: the call is claimed only to ask another tool in its place.
    pub(crate) shut: Option<Box<ToolFailure>>,
}

/// A claimed call.
pub(crate) struct Running {
    pub(crate) gated: Gated,
    pub(crate) attempt: Attempt,
}

/// A claim: the attempt that it began, whose state lasts until the attempt is recorded.
pub(crate) struct Attempt {
    pub(crate) tool: Arc<Tool>,
    pub(crate) claimed: Claimed,
    pub(crate) id: AttemptId,
    /// Whether a place of its tool was taken with the claim: the end of the attempt frees it.
    pub(crate) took_place: bool,
    /// When the claim was sent, before the ledger's clock started. The attempt's deadline counts from it.
    pub(crate) claim_sent: Instant,
    /// How long it was to take; less where its call has less time left.
    pub(crate) timeout: Duration,
    /// What its message had of its arguments, if it was right, and if another tool may need them.
    pub(crate) args: Option<String>,
    /// What its call names of files. None before its tool is run.
    pub(crate) files: AttemptFiles,
    /// With what its tool may answer later, if its manifest says that it may.
    pub(crate) completion_token: Option<SecretString>,
    pub(crate) entry: Entry,
}

/// An attempt that has ended; its effect may have taken place.
pub(crate) struct Executed {
    pub(crate) attempt: Attempt,
    pub(crate) execution: Execution,
    /// The interceptors that hear of its end.
    pub(crate) round: Option<Box<Round>>,
    /// What was decided before its outcome is recorded, where it has failed and its tool has a fallback.
    pub(crate) judged: Option<Box<JudgedAttempt>>,
}

/// What was decided about a failed attempt of a tool with a fallback. Of what comes afterwards only a cancellation changes it.
#[derive(Debug)]
pub(crate) struct JudgedAttempt {
    /// Why the platform ended the attempt, if it did.
    pub(crate) taken_back: Option<TakenBack>,
    /// Whether the retry budget of its tool has no token left.
    pub(crate) is_suppressed: bool,
    /// The answer that stands in, if its call ends now.
    pub(crate) stand_in: Option<StandIn>,
    /// Whether nothing that another tool started can act any more.
    pub(crate) has_stopped: bool,
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
    /// What the executor said, if it ran.
    pub(crate) const fn outcome(&self) -> Option<&Outcome> {
        match self {
            Self::Ran(outcome) | Self::Committed(outcome, _) | Self::Abandoned(outcome) => {
                Some(outcome)
            }
            Self::TakenBack(..) | Self::KeyForgotten(_) => None,
        }
    }

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
    pub(crate) const fn has_stopped(&self) -> bool {
        match self {
            Self::Ran(_) | Self::Committed(..) | Self::TakenBack(..) | Self::KeyForgotten(_) => {
                true
            }
            Self::Abandoned(_) => false,
        }
    }

    /// Why the answer of a success cannot be used.
    pub(crate) fn useless(&self) -> Option<Code> {
        match self {
            Self::Ran(outcome) | Self::Committed(outcome, _) | Self::Abandoned(outcome) => {
                outcome.useless().map(|flaw| flaw.code)
            }
            Self::TakenBack(..) | Self::KeyForgotten(_) => None,
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

impl Attempt {
    /// How many attempts count against the tool's limit, this one included.
    pub(crate) fn spent(&self) -> u32 {
        let claimed = &self.claimed;
        let spent = claimed.attempt.saturating_sub(claimed.unspent_attempts);
        spent.max(1)
    }

    /// When it must have ended.
    pub(crate) fn own_until(&self) -> Instant {
        self.claim_sent + millis(self.claimed.timeout_ms)
    }

    /// Whether more than half of its time is over. A tool that is started then is likely to be stopped in the middle, and what a write
    /// has done is unknown; not started, it is tried again.
    pub(crate) fn is_late(&self) -> bool {
        self.claim_sent.elapsed() > millis(self.claimed.timeout_ms) / 2
    }

    /// How much time is left to its call, by the claim's answer and this process's clock.
    pub(crate) fn remaining(&self) -> Duration {
        millis(self.claimed.remaining_ms).saturating_sub(self.claim_sent.elapsed())
    }

    /// How long ago the call's first attempt started.
    pub(crate) fn since_first_start(&self) -> Duration {
        millis(self.claimed.since_first_start_ms).saturating_add(self.claim_sent.elapsed())
    }

    /// How long the tool still honours the call's key; `None` where it has none.
    pub(crate) fn key_remaining(&self) -> Option<Duration> {
        let honoured = self.tool.manifest.idempotency.as_ref()?.valid_for;
        Some(honoured.saturating_sub(self.since_first_start()))
    }
}

/// A duration of the ledger.
pub(crate) fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

impl Executed {
    /// What is known of its call now.
    pub(crate) fn known(&self) -> Known {
        let attempt = &self.attempt;
        Known {
            effect: attempt.claimed.effect,
            language: attempt.claimed.language,
            cancelled: attempt.entry.stop.asked() == Some(StopReason::Cancelled),
            earlier_unknown: attempt.claimed.effect_unknown,
            applied_late: false,
        }
    }

    /// How the attempt ended, without what becomes of its call.
    pub(crate) fn ended(&self) -> EndedAttempt {
        let (claimed, execution) = (&self.attempt.claimed, &self.execution);
        EndedAttempt::of(
            claimed.effect,
            execution.word(),
            execution.failure(),
            self.has_stopped(),
            claimed.language,
        )
    }

    /// Whether nothing that the attempt started can act any more.
    pub(crate) fn has_stopped(&self) -> bool {
        let judged = self.judged.as_ref();
        self.execution.has_stopped() && judged.is_none_or(|judged| judged.has_stopped)
    }

    /// What its tool waits for, where its call may wait for that.
    pub(crate) fn wanted(&self) -> Option<&ToolWish> {
        let Execution::Ran(outcome) = &self.execution else {
            return None;
        };
        let wanted = outcome.failure()?.wanted()?;
        let may = match wanted {
            ToolWish::Completion => self.attempt.tool.manifest.completion.is_some(),
            ToolWish::Input(_) => true,
        };
        may.then_some(wanted)
    }

    /// Whether nothing was sent, because the breaker is open: the attempt was made to ask another tool.
    pub(crate) fn is_shut(&self) -> bool {
        let failure = self.execution.failure();
        failure.is_some_and(|failure| failure.code == Code::CircuitOpen)
    }

    /// Why the platform ended the attempt, where the tool was not the reason: a fact found before the start, the executor's
    /// word, or a worker that leaves without an answer of the tool.
    pub(crate) fn why_taken_back(&self) -> Option<TakenBack> {
        if let Some(judged) = &self.judged {
            return judged.taken_back;
        }
        let said = || self.execution.failure()?.why_taken_back();
        let drained = || {
            let unanswered = match self.execution.word() {
                OutcomeWord::NotStarted | OutcomeWord::Unknown => true,
                OutcomeWord::Applied | OutcomeWord::DefiniteFailure => false,
            };
            unanswered && self.attempt.entry.stop.asked() == Some(StopReason::Drained)
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
