//! **Again, later or never?** What follows an attempt: one pure table over effect class, outcome, error and attempts left.
//!
//! | outcome | `read` | `transaction` | `idempotent` | `once` |
//! |---|---|---|---|---|
//! | `applied` | succeed (a useless answer fails) | succeed | succeed | succeed |
//! | `not_started` | again | again | again | again |
//! | `definite_failure` | again if the policy covers the code | as `read` | as `read` | fail |
//! | `unknown` | again if the policy covers the code | as `read` | again while its key is honoured | **in doubt** |
//!
//! "Again" holds only while attempts and time are left. Otherwise `read` and `transaction` fail; `idempotent` fails, or goes in
//! doubt when the effect of this or an earlier attempt stays unknown. Only the tool's own answer settles an earlier unknown:
//! the tool recognises the key, so its answer is about that key (except 409, see [`Outcome::after_unknown`]). That a later
//! attempt never started settles nothing.
//!
//! A `transaction` leaves nothing unknown. Every move of its call locks the row that its COMMIT needs, so a move proves that
//! there is no effect and never will be (see [`Effect::may_doubt`]).
//!
//! Only attempts that the tool has spent are counted. An attempt that the platform took back ([`crate::taken_back`]) is tried
//! again whatever the policy says; an attempt that was lost with its worker has a table of its own ([`after_loss`]), and so has
//! a call that was cancelled (`cancelled`).

#![deny(clippy::wildcard_enum_match_arm)]

mod decision;

mod cancelled;
mod failure;

use std::time::Duration;

pub use self::{
    cancelled::after_cancel,
    decision::RetryDecision,
    failure::{cancelled, exhausted, out_of_time},
};
use crate::{
    call::Effect,
    manifest::RetryPolicy,
    outcome::{Outcome, OutcomeWord, ToolFailure},
    taken_back::TakenBack,
};

/// The facts for a decision.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// What running it again would mean.
    pub effect: Effect,
    /// The tool's policy.
    pub policy: &'a RetryPolicy,
    /// How many attempts count against the tool's limit, this one included.
    pub attempts_spent: u32,
    /// Why the platform ended the attempt, where the tool was not the reason.
    pub taken_back: Option<TakenBack>,
    /// The pause before the next attempt, from [`crate::delay::after_attempt`] or [`TakenBack::pause`].
    pub pause: Duration,
    /// How much of the call's time is left.
    pub remaining: Duration,
    /// Whether an earlier attempt may have had its effect.
    pub earlier_unknown: bool,
    /// How long the tool still honours its downstream key; `None` where it has none.
    pub key_remaining: Option<Duration>,
    /// Whether the call was cancelled.
    pub cancelled: bool,
}

/// What follows an attempt with this outcome.
pub fn decide(situation: &Situation<'_>, outcome: &Outcome) -> RetryDecision {
    let read = match situation.effect {
        Effect::Read => true,
        Effect::Idempotent | Effect::Once | Effect::Transaction => false,
    };
    if situation.cancelled {
        return if read && outcome.useless().is_some() {
            RetryDecision::Fail
        } else {
            after_cancel(situation.effect, outcome.word(), situation.earlier_unknown)
        };
    }
    if situation.taken_back.is_some() {
        return after_taken_back(situation, outcome.word());
    }
    match outcome {
        Outcome::Applied { .. } => match outcome.useless() {
            Some(flaw) if read => again(situation, flaw, OutcomeWord::Applied),
            Some(_) | None => RetryDecision::Succeed,
        },
        Outcome::NotStarted(failure) => again(situation, failure, OutcomeWord::NotStarted),
        Outcome::DefiniteFailure(failure) => match situation.effect {
            Effect::Read | Effect::Idempotent | Effect::Transaction => {
                again(situation, failure, OutcomeWord::DefiniteFailure)
            }
            Effect::Once => RetryDecision::Fail,
        },
        Outcome::Unknown(failure) => match situation.effect {
            Effect::Read | Effect::Idempotent | Effect::Transaction => {
                again(situation, failure, OutcomeWord::Unknown)
            }
            Effect::Once => RetryDecision::Doubt,
        },
    }
}

/// What follows an attempt that the platform ended. The policy does not apply, for the tool has not failed. Nor does the time
/// that is left: a call that waits beyond its deadline expires.
fn after_taken_back(situation: &Situation<'_>, word: OutcomeWord) -> RetryDecision {
    let unknown = word == OutcomeWord::Unknown;
    let forgotten = || {
        let left = situation.key_remaining;
        left.is_some_and(|left| situation.pause >= left)
    };
    match situation.effect {
        Effect::Once if unknown => RetryDecision::Doubt,
        Effect::Idempotent if (unknown || situation.earlier_unknown) && forgotten() => {
            RetryDecision::Doubt
        }
        Effect::Read | Effect::Idempotent | Effect::Once | Effect::Transaction => {
            RetryDecision::Again(situation.pause)
        }
    }
}

/// Another attempt, if the policy covers the failure and attempts, time and the key's validity are left.
fn again(situation: &Situation<'_>, failure: &ToolFailure, word: OutcomeWord) -> RetryDecision {
    let unknown = match word {
        OutcomeWord::Unknown => true,
        OutcomeWord::NotStarted => situation.earlier_unknown,
        OutcomeWord::Applied | OutcomeWord::DefiniteFailure => false,
    };
    let unknown_write = unknown && situation.effect.may_doubt();
    let give_up = |otherwise| {
        if unknown_write {
            RetryDecision::Doubt
        } else {
            otherwise
        }
    };
    if !situation.policy.covers(failure.code) {
        return give_up(RetryDecision::Fail);
    }
    if situation.attempts_spent >= situation.policy.attempts_max() {
        let one = situation.policy.attempts_max() == 1;
        return give_up(if one {
            RetryDecision::Fail
        } else {
            RetryDecision::Exhausted
        });
    }
    let asked = failure
        .retry_after_ms
        .map_or(Duration::ZERO, Duration::from_millis);
    let pause = situation.pause.max(asked);
    if pause >= situation.remaining {
        return give_up(RetryDecision::OutOfTime);
    }
    if unknown_write && situation.key_remaining.is_some_and(|left| pause >= left) {
        return RetryDecision::Doubt;
    }
    RetryDecision::Again(pause)
}

/// Whether a claimed call must not run any more, because an earlier attempt may have had its effect and the tool would not
/// recognise the key.
pub fn key_is_forgotten(
    effect: Effect,
    earlier_unknown: bool,
    key_remaining: Option<Duration>,
) -> bool {
    effect.may_doubt() && earlier_unknown && key_remaining.is_some_and(|left| left.is_zero())
}

/// An attempt that was lost with its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// What running it again would mean.
    pub effect: Effect,
    /// How many workers the call has lost, this one included. A worker that was leaving in order does not count.
    pub lost: u32,
    /// How many the tool allows, [`crate::manifest::Manifest::losses`].
    pub allowed: u32,
    /// Whether the call was cancelled.
    pub cancelled: bool,
}

/// Whether a call has lost more workers than its tool allows: a call that kills its workers must not go on. A `once` call is in
/// doubt after the first loss.
pub const fn is_poison(loss: Loss) -> bool {
    match loss.effect {
        Effect::Read | Effect::Idempotent | Effect::Transaction => loss.lost > loss.allowed,
        Effect::Once => false,
    }
}

/// What follows when the worker of a running call died, and how far the call came is unknown.
///
/// The attempt does not count against the tool's limit: the platform lost it, not the tool.
pub fn after_loss(loss: Loss) -> RetryDecision {
    if loss.cancelled {
        return after_cancel(loss.effect, OutcomeWord::Unknown, false);
    }
    match loss.effect {
        Effect::Once => RetryDecision::Doubt,
        Effect::Read | Effect::Transaction if is_poison(loss) => RetryDecision::Fail,
        Effect::Idempotent if is_poison(loss) => RetryDecision::Doubt,
        Effect::Read | Effect::Idempotent | Effect::Transaction => {
            RetryDecision::Again(Duration::ZERO)
        }
    }
}

#[cfg(test)]
mod tests;
