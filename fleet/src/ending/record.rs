//! The order to the ledger about a call: an ending, its guard, and the end of the attempt.

use std::time::Duration;

use serde::Serialize;

use super::table::{Happened, Words, effect_after};
use crate::{
    call::{CallOutcome, Effect, EffectKnown, Language, Source, State},
    ids::{AttemptId, CallId},
    manifest::Sensitive,
    outcome::{OutcomeWord, ToolFailure},
    retry,
    state::{Move, next},
    taken_back::AttemptCost,
    wire::{code::Code, error::ErrorBody, message::Message},
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
    /// The call is queued and has not moved since this revision.
    Queued(i32),
}

/// What happens to the call.
#[derive(Debug, Clone)]
pub enum EndingKind {
    /// It is over.
    End {
        /// The terminal state.
        state: State,
        /// What it came to.
        outcome: CallOutcome,
        /// Where the answer comes from.
        source: Source,
        /// What is known about the effect.
        effect: EffectKnown,
        /// The tool's answer, JSON text.
        result: Option<String>,
        /// The error as callers will read it, JSON text.
        error: Option<String>,
        /// Why the answer is not the live one, JSON text.
        degraded: Option<String>,
    },
    /// It waits for another attempt.
    Again {
        /// The pause, in milliseconds.
        pause_ms: i64,
        /// What the ended attempt counts against.
        cost: AttemptCost,
    },
    /// Its effect may have happened.
    Doubt {
        /// The error as callers will read it, JSON text.
        error: String,
    },
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
    pub over: bool,
}

impl EndedAttempt {
    /// An attempt of a tool with this effect class. `over`: nothing that was started for it can act any more.
    pub fn of(
        effect: Effect,
        word: OutcomeWord,
        failure: Option<&ToolFailure>,
        over: bool,
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
            over: over || transaction,
        }
    }
}

impl EndingKind {
    /// The word for it in the statement.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::End { .. } => "end",
            Self::Again { .. } => "again",
            Self::Doubt { .. } => "doubt",
        }
    }

    pub(super) fn again(from: State, pause: Duration, cost: AttemptCost) -> Self {
        moved(from, Move::Again);
        Self::Again {
            pause_ms: i64::try_from(pause.as_millis()).unwrap_or(i64::MAX),
            cost,
        }
    }

    pub(super) fn doubt(from: State, failure: &ToolFailure, language: Language) -> Self {
        moved(from, Happened::InDoubt.words().event);
        Self::Doubt {
            error: json(&ErrorBody::in_doubt(failure, language)),
        }
    }

    /// The call is over without success, and will not be tried again.
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
        Self::with_error(from, happened, failure, effect, language)
    }

    /// The call was cancelled while it ran, and had no effect; `last` is the outcome of its attempt.
    pub(super) fn cancelled(last: &ToolFailure, effect: EffectKnown, language: Language) -> Self {
        let failure = retry::cancelled(last, language);
        let happened = Happened::Cancelled;
        Self::with_error(State::Running, happened, &failure, effect, language)
    }

    pub(super) fn with_error(
        from: State,
        happened: Happened,
        failure: &ToolFailure,
        effect: EffectKnown,
        language: Language,
    ) -> Self {
        let error = json(&ErrorBody::failed(failure, effect, language));
        Self::over(from, happened, effect, None, Some(error))
    }

    pub(super) fn over(
        from: State,
        happened: Happened,
        effect: EffectKnown,
        result: Option<String>,
        error: Option<String>,
    ) -> Self {
        let Words {
            event,
            outcome,
            source,
        } = happened.words();
        Self::End {
            state: moved(from, event),
            outcome,
            source,
            effect,
            result,
            error,
            degraded: None,
        }
    }

    /// The same without the tool's answer, which could not be stored.
    fn without_result(mut self, language: Language) -> Self {
        if let Self::End {
            effect,
            result,
            error,
            ..
        } = &mut self
        {
            let what = Message::fixed(
                "the tool's answer could not be stored",
                "工具返回的结果无法保存",
            );
            let flaw = ToolFailure::new(Code::OutputInvalid, what);
            *result = None;
            *error = Some(json(&ErrorBody::failed(&flaw, *effect, language)));
        }
        self
    }
}

impl Ending {
    /// The same with the part of the tool's answer that may be stored; `None` where that is all of it.
    pub fn keeping(&self, sensitive: Option<&Sensitive>) -> Option<Self> {
        let EndingKind::End {
            result: Some(result),
            ..
        } = &self.kind
        else {
            return None;
        };
        let kept = sensitive?.kept(result)?;
        let mut keeping = self.clone();
        if let EndingKind::End { result, .. } = &mut keeping.kind {
            *result = Some(kept);
        }
        Some(keeping)
    }

    /// The same without the tool's answer, which could not be stored. The success stands.
    #[must_use]
    pub fn without_result(self, language: Language) -> Self {
        Self {
            kind: self.kind.without_result(language),
            ..self
        }
    }
}

/// The state of the call after a move.
fn moved(from: State, event: Move) -> State {
    next(from, event).expect("every fact is one about a call that can move so")
}

/// As it is stored.
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("errors have only string keys")
}
