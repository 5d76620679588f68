//! **Again, later or never?** What follows an attempt: one pure table over effect class, outcome, error and attempts left.
//!
//! | outcome | `read` | `transaction` | `idempotent` | `once` |
//! |---|---|---|---|---|
//! | `applied` | succeed (a useless answer fails) | succeed | succeed | succeed |
//! | `not_started` | again | again | again | again |
//! | `definite_failure` | again if the policy covers the code | as `read` | as `read` | fail |
//! | `unknown` | again if the policy covers the code | as `read` | again while its key is honoured | **in doubt** |
//!
//! "Again" holds only while attempts and time are left; otherwise `read` and `transaction` fail, and `idempotent` fails or,
//! when what this or an earlier attempt may have done stays unknown, goes in doubt. Only the tool's own answer settles an
//! earlier unknown: it recognises the key, so what it says is about that key (but for 409, see [`Outcome::after_unknown`]).
//! That a later attempt never started settles nothing. A `transaction` leaves nothing unknown: whatever moves its call locks
//! the row that its COMMIT needs, so a move says that the effect is not there and never will be (see [`Effect::may_doubt`]).
//! An attempt is spent by a tool: what the platform took back ([`crate::taken_back`]) is tried again whatever the policy
//! says, and one that was lost with its worker has a table of its own ([`after_loss`]).
//! A call that was taken back has a table of its own (`cancelled`).

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

/// What a decision is made from.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// What running it again would mean.
    pub effect: Effect,
    /// The tool's policy.
    pub policy: &'a RetryPolicy,
    /// How many attempts tools have spent, this one included.
    pub attempts_spent: u32,
    /// Why the platform ended the attempt, where it was not the tool.
    pub taken_back: Option<TakenBack>,
    /// The pause before the next attempt, from [`crate::delay::after_attempt`] or [`TakenBack::pause`].
    pub pause: Duration,
    /// How much of the call's time is left.
    pub remaining: Duration,
    /// Whether an attempt before this one may have had its effect.
    pub earlier_unknown: bool,
    /// How long the tool still honours its downstream key; `None` where it has none.
    pub key_remaining: Option<Duration>,
    /// Whether somebody has asked the call to stop.
    pub cancelled: bool,
}

/// What follows an attempt that ended like this.
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

/// What follows an attempt that the platform ended. No policy is asked: the tool has not failed. Nor is the time that is left,
/// for a call that waits beyond its deadline expires.
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

/// Another attempt if the policy covers the failure and attempts, time and the key's validity are left.
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

/// Whether a claimed call must not be run any more, because an attempt before may have had its effect and the tool would
/// not recognise the key again.
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
    /// How many of the call's workers were lost, this one included. One that was leaving in order does not count.
    pub lost: u32,
    /// How many the tool allows, [`crate::manifest::Manifest::losses`].
    pub allowed: u32,
    /// Whether somebody has asked the call to stop.
    pub cancelled: bool,
}

/// Whether a call has lost more workers than its tool allows: one that kills its workers must not go on. A `once` call is in
/// doubt after the first one.
pub const fn is_poison(loss: Loss) -> bool {
    match loss.effect {
        Effect::Read | Effect::Idempotent | Effect::Transaction => loss.lost > loss.allowed,
        Effect::Once => false,
    }
}

/// What follows when the worker of a running call died: nobody knows how far it came.
///
/// The attempt is not spent: the platform lost it, not the tool.
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
