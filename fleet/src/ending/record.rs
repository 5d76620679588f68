//! The order to the ledger about a call, and what the ledger says of a call that it has moved.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::table::{Decision, Happened, Words};
use crate::{
    call::{CallOutcome, Effect, EffectKnown, Language, State},
    fallback::{self, StandIn, Unanswered},
    ids::{AttemptId, CallId, DispatcherId, Label},
    large_result,
    manifest::{LargeResult, Sensitive},
    outcome::{OutcomeWord, ToolFailure, effect_after},
    retry,
    state::{Move, next},
    taken_back::AttemptCost,
    telemetry::metrics,
    wire::{
        code::Code,
        envelope::{DecidedCall, Envelope, Timing},
        error::ErrorBody,
        event::{Event, Happening, SessionCall},
        message::Message,
    },
};

/// The ending that the ledger is to record for a call.
#[derive(Debug, Clone)]
pub struct Ending {
    /// The call.
    pub call_id: CallId,
    /// The condition for it.
    pub guard: Guard,
    /// What happens.
    pub kind: EndingKind,
    /// How the attempt ended, where one did.
    pub attempt: Option<EndedAttempt>,
    /// The author of the record: `worker <id>`, `sweep`, …
    pub actor: String,
    /// The reason, one word or a short clause.
    pub reason: String,
}

/// The condition that must still hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// This attempt runs the call, or has left it in doubt.
    Attempt(AttemptId),
    /// The call is queued, or waits for a yes or for what its tool asked, and has not moved since this revision.
    Queued(i32),
}

/// What happens to the call.
#[derive(Debug, Clone)]
pub enum EndingKind {
    /// It has ended.
    End(Decision),
    /// It waits for another attempt.
    Again {
        /// The pause, in milliseconds.
        pause_ms: i64,
        /// What the ended attempt counts against.
        cost: AttemptCost,
    },
    /// Its effect may have happened.
    Doubt(Decision),
}

/// How an attempt ended.
#[derive(Debug, Clone)]
pub struct EndedAttempt {
    /// The outcome in a word.
    pub outcome: OutcomeWord,
    /// What is known about the effect.
    pub effect: EffectKnown,
    /// The failure, JSON text.
    pub error: Option<String>,
    /// Whether the worker has seen it end: nothing that was started for it can act any more.
    pub has_stopped: bool,
}

impl EndedAttempt {
    /// An attempt of a tool with this effect class. `has_stopped`: nothing that was started for it can act any
    /// more.
    pub fn of(
        effect: Effect,
        word: OutcomeWord,
        failure: Option<&ToolFailure>,
        has_stopped: bool,
        language: Language,
    ) -> Self {
        let transaction = effect == Effect::Transaction;
        Self {
            // Recording it moves the row that a transaction's COMMIT needs, so the transaction has not committed and never
            // will.
            outcome: match word {
                OutcomeWord::Unknown if transaction => OutcomeWord::DefiniteFailure,
                word => word,
            },
            effect: effect_after(effect, word),
            error: failure.map(|failure| json(&failure.told(language))),
            has_stopped: has_stopped || transaction,
        }
    }
}

impl EndingKind {
    /// The word for it in the statement.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::End(_) => "end",
            Self::Again { .. } => "again",
            Self::Doubt(_) => "doubt",
        }
    }

    /// What the call is decided as; `None` where it is not.
    pub const fn decision(&self) -> Option<&Decision> {
        match self {
            Self::End(decision) | Self::Doubt(decision) => Some(decision),
            Self::Again { .. } => None,
        }
    }

    pub(super) fn again(pause: Duration, cost: AttemptCost) -> Self {
        const {
            assert!(matches!(
                next(State::Running, Move::Again),
                Ok(State::Queued)
            ));
            assert!(matches!(
                next(State::AwaitingClient, Move::Again),
                Ok(State::Queued)
            ));
        };
        Self::Again {
            pause_ms: i64::try_from(pause.as_millis()).unwrap_or(i64::MAX),
            cost,
        }
    }

    pub(super) fn doubt(from: State, failure: &ToolFailure, language: Language) -> Self {
        let error = json(&ErrorBody::in_doubt(failure, language));
        let (happened, unknown) = (Happened::InDoubt, EffectKnown::Unknown);
        Self::Doubt(Decision::by(from, happened, unknown, Some(error)))
    }

    /// The call has ended without success, and will not be tried again.
    pub(super) fn failed(
        from: State,
        failure: &ToolFailure,
        effect: EffectKnown,
        language: Language,
    ) -> Self {
        let happened = if failure.code == Code::ToolError {
            Happened::SaidNo
        } else {
            Happened::CouldNot
        };
        Self::unanswered(from, happened, failure, effect, language)
    }

    /// The call was refused before its attempt.
    pub(super) fn refused(failure: &ToolFailure, effect: EffectKnown, language: Language) -> Self {
        let happened = match failure.code {
            // Who asked for it can mend that, and nobody else.
            Code::InvalidArguments | Code::NotFound | Code::BudgetExceeded => Happened::Misasked,
            Code::ToolError => Happened::SaidNo,
            _ => Happened::CouldNot,
        };
        Self::unanswered(State::Queued, happened, failure, effect, language)
    }

    fn unanswered(
        from: State,
        happened: Happened,
        failure: &ToolFailure,
        effect: EffectKnown,
        language: Language,
    ) -> Self {
        let error = json(&ErrorBody::failed(failure, effect, language));
        Self::End(Decision::by(from, happened, effect, Some(error)))
    }

    /// The call was cancelled while it ran, and had no effect; `last` is the outcome of its attempt.
    pub(super) fn cancelled(last: &ToolFailure, effect: EffectKnown, language: Language) -> Self {
        let failure = retry::cancelled(last, language);
        let error = json(&ErrorBody::failed(&failure, effect, language));
        let happened = Happened::Cancelled;
        Self::End(Decision::by(State::Running, happened, effect, Some(error)))
    }
}

impl Ending {
    /// The same with the part of the tool's answer that may be stored; `None` where that is all of it.
    pub fn keeping(&self, sensitive: Option<&Sensitive>) -> Option<Self> {
        let EndingKind::End(decision) = &self.kind else {
            return None;
        };
        let kept = sensitive?.kept(decision.result.as_deref()?)?;
        let mut keeping = self.clone();
        if let EndingKind::End(decision) = &mut keeping.kind {
            decision.result = Some(kept);
        }
        Some(keeping)
    }

    /// The same with what callers get in place of a large answer, where the tool has said so.
    #[must_use]
    pub fn shortened(mut self, large: Option<&LargeResult>, language: Language) -> Self {
        if let (EndingKind::End(decision), Some(large)) = (&mut self.kind, large)
            && let Some(result) = decision.result.as_deref()
        {
            decision.preview = large_result::preview(self.call_id, result, large, language);
        }
        self
    }

    /// What went wrong, where the call ends without its tool's answer and another one may stand in.
    pub fn cause_of_fallback(&self, is_cancelled: bool, is_probe: bool) -> Option<Code> {
        let EndingKind::End(decision) = &self.kind else {
            return None;
        };
        // What stands in is there already, or the tool's answer.
        if decision.outcome != CallOutcome::SystemError {
            return None;
        }
        let error: ErrorBody = serde_json::from_str(decision.error.as_deref()?).ok()?;
        fallback::cause(&Unanswered {
            state: decision.state,
            error: &error,
            is_cancelled,
            is_probe,
        })
    }

    /// The same with an answer that stands in for the tool's, which could not for this reason. The call has failed as before, and keeps
    /// its error.
    #[must_use]
    pub fn answered_by(mut self, stand_in: &StandIn, cause: Code) -> Self {
        if let EndingKind::End(decision) = &mut self.kind {
            let Words {
                outcome, source, ..
            } = Happened::StoodInFor(stand_in.kind).words();
            (decision.outcome, decision.source) = (outcome, source);
            decision.result = Some(stand_in.result.clone());
            decision.degraded = Some(stand_in.degraded(cause));
        }
        self
    }

    /// The same with the answer that its caller gets, JSON text.
    #[must_use]
    pub fn with_result(mut self, result: String) -> Self {
        if let EndingKind::End(decision) = &mut self.kind {
            decision.result = Some(result);
        }
        self
    }

    /// Whether another answer stands in for the tool's.
    pub fn is_stood_in_for(&self) -> bool {
        let decision = self.kind.decision();
        decision.is_some_and(|decision| decision.outcome == CallOutcome::Fallback)
    }

    /// The same without the answer that stands in, which could not be stored.
    #[must_use]
    pub fn without_stand_in(mut self) -> Self {
        if let EndingKind::End(decision) = &mut self.kind {
            let Words {
                outcome, source, ..
            } = Happened::CouldNot.words();
            *decision = Decision {
                outcome,
                source,
                result: None,
                preview: None,
                degraded: None,
                ..decision.clone()
            };
        }
        self
    }

    /// Whether it ends the call with an answer.
    pub fn has_result(&self) -> bool {
        let decision = self.kind.decision();
        decision.is_some_and(|decision| decision.result.is_some())
    }

    /// Whether callers get something in place of the answer.
    pub fn is_shortened(&self) -> bool {
        let decision = self.kind.decision();
        decision.is_some_and(|decision| decision.preview.is_some())
    }

    /// The same with all of the answer for callers.
    #[must_use]
    pub fn whole(mut self) -> Self {
        if let EndingKind::End(decision) = &mut self.kind {
            decision.preview = None;
        }
        self
    }

    /// The same without the tool's answer, which could not be stored. The success stands, and of a large answer what callers would
    /// have got of it.
    #[must_use]
    pub fn without_result(mut self, large: Option<&LargeResult>, language: Language) -> Self {
        if let EndingKind::End(decision) = &mut self.kind {
            if decision.preview.take().is_some()
                && let (Some(large), Some(result)) = (large, decision.result.as_deref())
                && let Some(remains) = large_result::remains(self.call_id, result, large, language)
            {
                decision.result = Some(remains);
                return self;
            }
            let what = Message::fixed(
                "the tool's answer could not be stored",
                "工具返回的结果无法保存",
            );
            let flaw = ToolFailure::new(Code::OutputInvalid, what);
            let error = ErrorBody::failed(&flaw, decision.effect, language);
            (decision.result, decision.error) = (None, Some(json(&error)));
        }
        self
    }
}

/// What an event tells of a stored failure.
#[derive(Deserialize)]
struct FailureCode {
    code: Code,
}

/// As it is stored.
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("errors have only string keys")
}

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
    /// How long it waited, and how long it took from its first attempt to the move.
    pub timing: Timing,
}

impl Moved {
    /// Counts the call, if the move has ended it.
    pub fn count(&self, kind: &EndingKind) {
        if let EndingKind::End(decision) = kind {
            let took = self.timing.queued_ms + self.timing.run_ms;
            let took = Duration::from_millis(u64::try_from(took).unwrap_or(0));
            metrics().finished(&self.tool, decision.outcome, decision.source, took);
        }
    }

    /// The call, as far as it says who hears of it.
    pub fn followed(&self) -> SessionCall<'_> {
        SessionCall {
            tenant: &self.tenant,
            session: self.session.as_ref(),
            tool: &self.tool,
            tool_version: self.tool_version,
        }
    }

    /// The event about it, if there is one: the call is decided by the move, or an attempt is over and another may follow.
    pub fn event(&self, ending: &Ending) -> Option<Event> {
        let call = ending.call_id;
        match (&ending.kind, &ending.attempt) {
            (EndingKind::Again { .. }, Some(ended)) => Some(self.retrying(call, ended)),
            // It waited for somebody, and goes on.
            (EndingKind::Again { .. }, None) => None,
            (EndingKind::End(_) | EndingKind::Doubt(_), _) => self.finished(call, &ending.kind),
        }
    }

    fn retrying(&self, call: CallId, ended: &EndedAttempt) -> Event {
        let error = ended.error.as_deref();
        let failed = error.and_then(|error| serde_json::from_str::<FailureCode>(error).ok());
        Event {
            call_id: call,
            sequence: Event::sequence(self.rev, 0),
            at: self.moved_at,
            what: Happening::Retrying {
                attempt: u32::try_from(self.attempts).unwrap_or(0),
                code: failed.map(|failed| failed.code),
            },
        }
    }

    fn finished(&self, call: CallId, kind: &EndingKind) -> Option<Event> {
        let decision = kind.decision()?;
        let error = decision.error.as_deref();
        let error: Option<ErrorBody> = error.and_then(|error| serde_json::from_str(error).ok());
        Some(Event {
            call_id: call,
            sequence: Event::sequence(self.rev, 0),
            at: self.moved_at,
            what: Happening::Finished {
                state: self.state,
                outcome: decision.outcome,
                attempts: self.attempts,
                code: error.map(|error| error.code),
            },
        })
    }

    /// The envelope of a call that this ending decided: the same bytes that a later reader makes from the row. `None` where it
    /// decided nothing, or where one of its texts is no JSON.
    pub fn envelope(self, call: CallId, kind: EndingKind) -> Option<Envelope> {
        let decision = match kind {
            EndingKind::End(decision) | EndingKind::Doubt(decision) => decision,
            EndingKind::Again { .. } => return None,
        };
        let decided = DecidedCall {
            call_id: call,
            tool: self.tool,
            tool_version: self.tool_version,
            decision,
            coercions: self.coercions,
            attempts: self.attempts,
            timing: self.timing,
        };
        decided.envelope().ok()
    }
}
