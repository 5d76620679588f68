//! What follows from an executor's answer.

#![deny(clippy::wildcard_enum_match_arm)]

use std::time::Duration;

use super::{
    known::Known,
    record::{EndingKind, json},
    table::{Happened, effect_after},
};
use crate::{
    call::{EffectKnown, Language, State},
    manifest::RetryPolicy,
    outcome::{Outcome, ToolFailure},
    retry::{self, RetryDecision, Situation},
    taken_back::{AttemptCost, TakenBack},
    wire::{code::Code, error::ErrorBody, message::Message},
};

/// What decides about another attempt, besides [`Known`].
#[derive(Debug, Clone, Copy)]
pub struct Tries<'a> {
    /// The tool's policy.
    pub policy: &'a RetryPolicy,
    /// How many attempts count against the tool's limit, this one included.
    pub spent: u32,
    /// Why the platform ended the attempt, where the tool was not the reason.
    pub taken_back: Option<TakenBack>,
    /// The pause before the next attempt.
    pub pause: Duration,
    /// How much of the call's time is left.
    pub remaining: Duration,
    /// How long the tool still honours its downstream key; `None` where it has none.
    pub key_remaining: Option<Duration>,
}

/// What follows from an executor's answer.
pub(super) fn after_run(
    outcome: &Outcome,
    tries: &Tries<'_>,
    known: &Known,
) -> (EndingKind, &'static str) {
    let decision = retry::decide(&tries.situation(known), outcome);
    let own = outcome
        .failure()
        .map_or("applied", |failure| failure.code.as_str());
    let failure = || {
        let what = Message::fixed("the tool failed", "工具失败了");
        let failed = || ToolFailure::new(Code::ToolCrashed, what);
        outcome.failure().cloned().unwrap_or_else(failed)
    };
    let (language, effect) = (known.language, effect_after(known.effect, outcome.word()));
    let failed =
        |failure: &ToolFailure| EndingKind::failed(State::Running, failure, effect, language);
    let cancelled = Code::Cancelled.as_str();
    match decision {
        RetryDecision::Succeed => (succeeded(outcome, effect, language), own),
        RetryDecision::Again(pause) => {
            let taken_back = tries.taken_back;
            let cost = taken_back.map_or(AttemptCost::Spent, TakenBack::cost);
            let again = EndingKind::again(State::Running, pause, cost);
            (again, taken_back.map_or(own, TakenBack::as_str))
        }
        RetryDecision::Fail => (failed(&failure()), own),
        RetryDecision::Exhausted => {
            let exhausted = retry::exhausted(tries.spent, &failure(), language);
            (failed(&exhausted), own)
        }
        RetryDecision::OutOfTime => {
            let late = retry::out_of_time(&failure(), language);
            (failed(&late), own)
        }
        RetryDecision::Doubt => (EndingKind::doubt(State::Running, &failure(), language), own),
        RetryDecision::Cancelled => {
            let kind = EndingKind::cancelled(&failure(), effect, language);
            (kind, cancelled)
        }
        RetryDecision::FailCancelled => {
            let failure = retry::cancelled(&failure(), language);
            (failed(&failure), cancelled)
        }
    }
}

impl<'a> Tries<'a> {
    const fn situation(&self, known: &Known) -> Situation<'a> {
        Situation {
            effect: known.effect,
            policy: self.policy,
            attempts_spent: self.spent,
            taken_back: self.taken_back,
            pause: self.pause,
            remaining: self.remaining,
            earlier_unknown: known.earlier_unknown,
            key_remaining: self.key_remaining,
            cancelled: known.cancelled,
        }
    }
}

fn succeeded(outcome: &Outcome, effect: EffectKnown, language: Language) -> EndingKind {
    let (result, flaw) = match outcome {
        Outcome::Applied { result, flaw } => (Some(result.get().to_owned()), flaw.as_ref()),
        Outcome::NotStarted(_) | Outcome::DefiniteFailure(_) | Outcome::Unknown(_) => {
            (None, outcome.failure())
        }
    };
    let error = flaw.map(|flaw| json(&ErrorBody::failed(flaw, effect, language)));
    EndingKind::over(State::Running, Happened::Worked, effect, result, error)
}
