//! An attempt that was lost with its worker: how far it came is unknown.

#![deny(clippy::wildcard_enum_match_arm)]

use super::record::{EndedAttempt, EndingKind};
use crate::{
    call::{Effect, EffectKnown, State},
    outcome::{OutcomeWord, ToolFailure},
    retry::{self, Known, Loss, RetryDecision},
    said,
    taken_back::{AttemptCost, TakenBack},
    wire::{code::Code, message::Message},
};

/// An attempt whose worker is gone, or that is long overdue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostAttempt {
    /// Which of the two, and whether the worker was leaving in order.
    pub why: TakenBack,
    /// How many attempts of the call were lost before.
    pub before: u32,
    /// How many losses its tool allows.
    pub allowed: u32,
}

impl LostAttempt {
    /// How it ended.
    pub fn attempt(self, known: &Known) -> EndedAttempt {
        let (word, failure) = (OutcomeWord::Unknown, self.failure(known));
        let attempt = EndedAttempt::of(known.effect, word, Some(&failure), false, known.language);
        EndedAttempt {
            effect: match known.effect {
                // For a read too: the history has always had this word for a lost attempt.
                Effect::Read => EffectKnown::Unknown,
                Effect::Idempotent | Effect::Once | Effect::Transaction => attempt.effect,
            },
            ..attempt
        }
    }

    pub(super) fn decide(self, known: &Known) -> (EndingKind, &'static str) {
        let (loss, failure, language) = (self.loss(known), self.failure(known), known.language);
        let reason = if retry::is_poison(loss) {
            "poison"
        } else {
            self.why.as_str()
        };
        match retry::after_loss(loss) {
            RetryDecision::Again(pause) => {
                let again = EndingKind::again(pause, self.why.cost());
                (again, reason)
            }
            RetryDecision::Doubt => {
                let doubt = EndingKind::doubt(State::Running, &failure, language);
                (doubt, reason)
            }
            RetryDecision::Cancelled => {
                let cancelled = EndingKind::cancelled(&failure, known.untouched(), language);
                (cancelled, Code::Cancelled.as_str())
            }
            RetryDecision::Fail
            | RetryDecision::FailCancelled
            | RetryDecision::Suppressed
            | RetryDecision::Exhausted
            | RetryDecision::OutOfTime
            | RetryDecision::Succeed => {
                let untouched = known.untouched();
                let failed = EndingKind::failed(State::Running, &failure, untouched, language);
                (failed, reason)
            }
        }
    }

    fn loss(self, known: &Known) -> Loss {
        let counts = u32::from(self.why.cost() == AttemptCost::Lost);
        Loss {
            effect: known.effect,
            lost: self.before.saturating_add(counts),
            allowed: self.allowed,
            cancelled: known.cancelled,
        }
    }

    fn failure(self, known: &Known) -> ToolFailure {
        let loss = self.loss(known);
        let what = if retry::is_poison(loss) {
            let Loss { lost, allowed, .. } = loss;
            said!(
                "its worker was lost {lost} times while it ran, and its tool allows {allowed}, so it is not tried again",
                "执行它的 worker 在运行期间丢失了 {lost} 次，而工具只允许 {allowed} 次，因此不再尝试"
            )
        } else if self.why == TakenBack::WorkerLeft {
            Message::fixed(
                "the worker that ran the tool left before the tool had answered",
                "工具还没有响应，执行它的 worker 就离开了",
            )
        } else {
            Message::fixed(
                "the worker that ran the tool died or fell silent",
                "执行工具的 worker 终止或失去了联系",
            )
        };
        ToolFailure::new(Code::ToolCrashed, what)
    }
}
