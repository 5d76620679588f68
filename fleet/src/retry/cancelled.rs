//! How a call ends that was cancelled while it ran, by its attempt's outcome.
//!
//! | outcome | `read`, `transaction` | `idempotent` | `once` |
//! |---|---|---|---|
//! | `applied` | succeed | succeed | succeed |
//! | `definite_failure` | fail | fail | fail |
//! | `not_started` | cancelled | cancelled, or **in doubt** if an attempt before may have done it | fail, as cancelled |
//! | `unknown` | cancelled | **in doubt** | **in doubt** |
//!
//! Never "again". The tool's own answer wins over the cancellation.
//!
//! A running `once` call never ends as `cancelled`, for that word says that the call never ran.

use super::decision::RetryDecision;
use crate::{call::Effect, outcome::OutcomeWord};

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

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::{
        manifest::RetryPolicy,
        outcome::{Outcome, ToolFailure},
        retry,
        wire::{code::Code, message::Message},
    };

    fn outcome(word: OutcomeWord) -> Outcome {
        let failure = ToolFailure::new(Code::Timeout, Message::verbatim("x"));
        match word {
            OutcomeWord::Applied => Outcome::Applied {
                result: RawValue::NULL.to_owned(),
                flaw: None,
            },
            OutcomeWord::NotStarted => Outcome::NotStarted(failure),
            OutcomeWord::DefiniteFailure => Outcome::DefiniteFailure(failure),
            OutcomeWord::Unknown => Outcome::Unknown(failure),
        }
    }

    fn decide(effect: Effect, outcome: &Outcome, earlier_unknown: bool) -> RetryDecision {
        let situation = retry::Situation {
            effect,
            policy: &RetryPolicy::default(),
            attempts_spent: 1,
            taken_back: None,
            pause: std::time::Duration::ZERO,
            remaining: std::time::Duration::MAX,
            earlier_unknown,
            key_remaining: None,
            cancelled: true,
        };
        retry::decide(&situation, outcome)
    }

    #[test]
    fn the_whole_table_is_as_it_was_agreed() {
        use OutcomeWord::{Applied, DefiniteFailure, NotStarted, Unknown};
        use RetryDecision::{Cancelled, Doubt, Fail, FailCancelled, Succeed};
        for (word, read, idempotent, transaction, once) in [
            (Applied, Succeed, Succeed, Succeed, Succeed),
            (DefiniteFailure, Fail, Fail, Fail, Fail),
            (NotStarted, Cancelled, Cancelled, Cancelled, FailCancelled),
            (Unknown, Cancelled, Doubt, Cancelled, Doubt),
        ] {
            for (effect, expected) in [
                (Effect::Read, read),
                (Effect::Idempotent, idempotent),
                (Effect::Transaction, transaction),
                (Effect::Once, once),
            ] {
                let decided = decide(effect, &outcome(word), false);
                assert_eq!(decided, expected, "{effect} {word}");
                let doubtful = effect.may_doubt() && word == NotStarted;
                let decided = decide(effect, &outcome(word), true);
                let expected = if doubtful { Doubt } else { expected };
                assert_eq!(decided, expected, "{effect} {word}, after an unknown one");
            }
        }
    }

    #[test]
    fn a_call_that_was_taken_back_is_never_run_again() {
        for effect in Effect::ALL {
            for word in OutcomeWord::ALL {
                for earlier_unknown in [false, true] {
                    let decided = decide(*effect, &outcome(*word), earlier_unknown);
                    assert!(
                        !matches!(decided, RetryDecision::Again(_)),
                        "{effect} {word}"
                    );
                }
            }
            for lost in 1..4 {
                let decided = retry::after_loss(retry::Loss {
                    effect: *effect,
                    lost,
                    allowed: 2,
                    cancelled: true,
                });
                let expected = if effect.may_doubt() {
                    RetryDecision::Doubt
                } else {
                    RetryDecision::Cancelled
                };
                assert_eq!(decided, expected, "{effect}, lost");
            }
        }
    }

    #[test]
    fn a_useless_answer_of_a_read_that_was_taken_back_fails() {
        let useless = Outcome::Applied {
            result: RawValue::NULL.to_owned(),
            flaw: Some(ToolFailure::new(
                Code::OutputInvalid,
                Message::verbatim("x"),
            )),
        };
        assert_eq!(decide(Effect::Read, &useless, false), RetryDecision::Fail);
        assert_eq!(
            decide(Effect::Once, &useless, false),
            RetryDecision::Succeed
        );
    }
}
