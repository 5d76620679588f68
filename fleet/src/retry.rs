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
//! What only an operator can mend ([`ToolFailure::needs_operator`]) is covered by no policy.
//!
//! A tool with a retry budget that has no token left ([`Tries::is_suppressed`]) is not tried again, with its own error; a write
//! whose effect is unknown is, after the longest pause of its policy.
//!
//! Only attempts that the tool has spent are counted. An attempt that the platform took back ([`crate::taken_back`]) is tried
//! again whatever the policy says; an attempt that was lost with its worker has a table of its own ([`after_loss`]), and so has
//! a call that was cancelled while it ran:
//!
//! | outcome | `read`, `transaction` | `idempotent` | `once` |
//! |---|---|---|---|
//! | `applied` | succeed | succeed | succeed |
//! | `definite_failure` | fail | fail | fail |
//! | `not_started` | cancelled | cancelled, or **in doubt** if an attempt before may have done it | fail, as cancelled |
//! | `unknown` | cancelled | **in doubt** | **in doubt** |
//!
//! Never "again". The tool's own answer wins over the cancellation. A running `once` call never ends as `cancelled`, for that
//! word says that the call never ran.

#![deny(clippy::wildcard_enum_match_arm)]

use std::time::Duration;

use crate::{
    call::{Effect, EffectKnown, Language},
    manifest::RetryPolicy,
    outcome::{Outcome, OutcomeWord, ToolFailure, effect_after},
    said,
    taken_back::TakenBack,
    wire::{code::Code, message::Message},
};

/// What is known of a call, apart from what happened to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// What running it again would mean.
    pub effect: Effect,
    /// The language of its messages.
    pub language: Language,
    /// Whether it was cancelled while it ran.
    pub cancelled: bool,
    /// Whether an earlier attempt may have had its effect.
    pub earlier_unknown: bool,
    /// Whether an earlier attempt has reported, too late to decide, that it had its effect.
    pub applied_late: bool,
}

impl Known {
    /// What is known of the effect where no attempt has had it.
    pub(crate) const fn untouched(&self) -> EffectKnown {
        effect_after(self.effect, OutcomeWord::NotStarted)
    }

    /// Whether an earlier attempt may have had an effect that nothing proves.
    pub(crate) const fn is_doubtful(&self) -> bool {
        self.earlier_unknown && self.effect.may_doubt()
    }
}

/// What decides about another attempt, besides [`Known`].
#[derive(Debug, Clone, Copy)]
pub struct Tries<'a> {
    /// The tool's policy.
    pub policy: &'a RetryPolicy,
    /// How many attempts count against the tool's limit, this one included.
    pub spent: u32,
    /// Why the platform ended the attempt, where the tool was not the reason.
    pub taken_back: Option<TakenBack>,
    /// The pause before the next attempt, from [`crate::delay::after_attempt`] or [`TakenBack::pause`].
    pub pause: Duration,
    /// How much of the call's time is left.
    pub remaining: Duration,
    /// How long the tool still honours its downstream key; `None` where it has none.
    pub key_remaining: Option<Duration>,
    /// Whether the tool's retry budget has no token left for another attempt.
    pub is_suppressed: bool,
}

/// What follows an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    /// The call succeeded.
    Succeed,
    /// Another attempt, not before this pause is over.
    Again(Duration),
    /// The call failed with this attempt's own error.
    Fail,
    /// The call failed with this attempt's own error: the tool's retry budget had no token left for another attempt.
    Suppressed,
    /// The call failed because every attempt did.
    Exhausted,
    /// The call failed because its time ran out.
    OutOfTime,
    /// The effect may have happened.
    Doubt,
    /// The call was cancelled and had no effect.
    Cancelled,
    /// The call was cancelled; it failed because its attempt provably did not start.
    FailCancelled,
}

/// What follows an attempt with this outcome.
pub fn decide(outcome: &Outcome, tries: &Tries<'_>, known: &Known) -> RetryDecision {
    let read = match known.effect {
        Effect::Read => true,
        Effect::Idempotent | Effect::Once | Effect::Transaction => false,
    };
    if known.cancelled {
        return if read && outcome.useless().is_some() {
            RetryDecision::Fail
        } else {
            after_cancel(known.effect, outcome.word(), known.earlier_unknown)
        };
    }
    if tries.taken_back.is_some() {
        return after_taken_back(outcome.word(), tries, known);
    }
    let again = |failure, word| again(failure, word, tries, known);
    match outcome {
        Outcome::Applied { .. } => match outcome.useless() {
            Some(flaw) if read => again(flaw, OutcomeWord::Applied),
            Some(_) | None => RetryDecision::Succeed,
        },
        Outcome::NotStarted(failure) => again(failure, OutcomeWord::NotStarted),
        Outcome::DefiniteFailure(failure) => match known.effect {
            Effect::Read | Effect::Idempotent | Effect::Transaction => {
                again(failure, OutcomeWord::DefiniteFailure)
            }
            Effect::Once => RetryDecision::Fail,
        },
        Outcome::Unknown(failure) => match known.effect {
            Effect::Read | Effect::Idempotent | Effect::Transaction => {
                again(failure, OutcomeWord::Unknown)
            }
            Effect::Once => RetryDecision::Doubt,
        },
    }
}

/// What follows an attempt that the platform ended. The policy does not apply, for the tool has not failed. Nor does the time
/// that is left: a call that waits beyond its deadline expires.
fn after_taken_back(word: OutcomeWord, tries: &Tries<'_>, known: &Known) -> RetryDecision {
    let unknown = word == OutcomeWord::Unknown;
    let forgotten = || {
        let left = tries.key_remaining;
        left.is_some_and(|left| tries.pause >= left)
    };
    match known.effect {
        Effect::Once if unknown => RetryDecision::Doubt,
        Effect::Idempotent if (unknown || known.earlier_unknown) && forgotten() => {
            RetryDecision::Doubt
        }
        Effect::Read | Effect::Idempotent | Effect::Once | Effect::Transaction => {
            RetryDecision::Again(tries.pause)
        }
    }
}

/// Another attempt, if the policy covers the failure and attempts, time and the key's validity are left.
fn again(
    failure: &ToolFailure,
    word: OutcomeWord,
    tries: &Tries<'_>,
    known: &Known,
) -> RetryDecision {
    let unknown = match word {
        OutcomeWord::Unknown => true,
        OutcomeWord::NotStarted => known.earlier_unknown,
        OutcomeWord::Applied | OutcomeWord::DefiniteFailure => false,
    };
    let unknown_write = unknown && known.effect.may_doubt();
    let give_up = |otherwise| {
        if unknown_write {
            RetryDecision::Doubt
        } else {
            otherwise
        }
    };
    if failure.needs_operator() || !tries.policy.covers(failure.code) {
        return give_up(RetryDecision::Fail);
    }
    if tries.spent >= tries.policy.attempts_max() {
        let one = tries.policy.attempts_max() == 1;
        return give_up(if one {
            RetryDecision::Fail
        } else {
            RetryDecision::Exhausted
        });
    }
    let asked = failure
        .retry_after_ms
        .map_or(Duration::ZERO, Duration::from_millis);
    let pause = tries.pause.max(asked);
    if pause >= tries.remaining {
        return give_up(RetryDecision::OutOfTime);
    }
    let forgotten_after = |pause| tries.key_remaining.is_some_and(|left| pause >= left);
    if unknown_write && forgotten_after(pause) {
        return RetryDecision::Doubt;
    }
    if tries.is_suppressed && !unknown_write {
        return RetryDecision::Suppressed;
    }
    // To give up here would make a doubt: it only waits as long as it may.
    let longest = pause.max(tries.policy.cap);
    if tries.is_suppressed && longest < tries.remaining && !forgotten_after(longest) {
        return RetryDecision::Again(longest);
    }
    RetryDecision::Again(pause)
}

/// What follows an attempt of a cancelled call. `earlier_unknown`: an earlier attempt may have had its effect.
pub const fn after_cancel(
    effect: Effect,
    outcome: OutcomeWord,
    earlier_unknown: bool,
) -> RetryDecision {
    match outcome {
        OutcomeWord::Applied => RetryDecision::Succeed,
        OutcomeWord::DefiniteFailure => RetryDecision::Fail,
        OutcomeWord::NotStarted => match effect {
            Effect::Read | Effect::Transaction => RetryDecision::Cancelled,
            Effect::Idempotent | Effect::Once if earlier_unknown => RetryDecision::Doubt,
            Effect::Idempotent => RetryDecision::Cancelled,
            Effect::Once => RetryDecision::FailCancelled,
        },
        OutcomeWord::Unknown => match effect {
            Effect::Read | Effect::Transaction => RetryDecision::Cancelled,
            Effect::Idempotent | Effect::Once => RetryDecision::Doubt,
        },
    }
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

/// The failure of a call whose every attempt failed; it contains the last attempt's.
pub fn exhausted(attempts: u32, last: &ToolFailure, language: Language) -> ToolFailure {
    let message = &last.message;
    let what = said!(
        "all {attempts} attempts failed; the last one: {message}",
        "全部 {attempts} 次尝试都失败了；最后一次：{message}",
        message
    );
    around(Code::RetriesExhausted, what, last, language)
}

/// The failure of a call that the retry budget of its tool keeps from another attempt: the last attempt's own, marked.
pub fn suppressed(last: &ToolFailure) -> ToolFailure {
    let mut details = match last.details.clone() {
        Some(serde_json::Value::Object(details)) => details,
        Some(other) => serde_json::Map::from_iter([("tool".to_owned(), other)]),
        None => serde_json::Map::new(),
    };
    details.insert("retry".to_owned(), "suppressed".into());
    last.clone().with_details(details.into())
}

/// The failure of a call without time for another attempt; it contains the last attempt's.
pub fn out_of_time(last: &ToolFailure, language: Language) -> ToolFailure {
    let message = &last.message;
    let what = said!(
        "no time is left for another attempt; the last one: {message}",
        "剩下的时间不够再尝试一次；最后一次：{message}",
        message
    );
    around(Code::DeadlineExceeded, what, last, language)
}

/// The failure of a cancelled call; it contains the last attempt's.
pub fn cancelled(last: &ToolFailure, language: Language) -> ToolFailure {
    let what = Message::fixed(
        "the call was cancelled while it ran",
        "这次调用在执行中被取消",
    );
    around(Code::Cancelled, what, last, language)
}

/// A failure that contains the last attempt's, in the call's language.
fn around(code: Code, what: Message, last: &ToolFailure, language: Language) -> ToolFailure {
    ToolFailure::new(code, what).with_details(serde_json::json!({ "last": last.told(language) }))
}

#[cfg(test)]
mod tests;
