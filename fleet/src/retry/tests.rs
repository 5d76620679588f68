use serde_json::value::RawValue;

use super::*;
use crate::wire::{code::Code, message::Message};

mod budget;
mod operators;

fn outcome(word: OutcomeWord, code: Code) -> Outcome {
    let failure = ToolFailure::new(code, Message::verbatim("x"));
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

fn decide_with(
    effect: Effect,
    word: OutcomeWord,
    code: Code,
    change: impl FnOnce(&mut Tries<'_>, &mut Known),
) -> RetryDecision {
    let policy = RetryPolicy::default();
    let (mut tries, mut known) = (first(&policy), known(effect));
    change(&mut tries, &mut known);
    decide(&outcome(word, code), &tries, &known)
}

/// The first of several tries.
const fn first(policy: &RetryPolicy) -> Tries<'_> {
    Tries {
        policy,
        spent: 1,
        taken_back: None,
        pause: Duration::from_secs(1),
        remaining: Duration::from_secs(60),
        key_remaining: None,
        is_suppressed: false,
    }
}

const fn known(effect: Effect) -> Known {
    Known {
        effect,
        language: Language::En,
        cancelled: false,
        earlier_unknown: false,
        applied_late: false,
    }
}

#[test]
fn the_whole_table_is_as_it_was_agreed() {
    use OutcomeWord::{Applied, DefiniteFailure, NotStarted, Unknown};
    use RetryDecision::{Again, Doubt, Exhausted, Fail, OutOfTime, Succeed};
    let again = Again(Duration::from_secs(1));
    // effect, outcome, code -> attempts left, no attempt left, no time left
    let rows = [
        (
            Effect::Read,
            Applied,
            Code::Timeout,
            Succeed,
            Succeed,
            Succeed,
        ),
        (
            Effect::Read,
            NotStarted,
            Code::Unavailable,
            again,
            Exhausted,
            OutOfTime,
        ),
        (
            Effect::Read,
            DefiniteFailure,
            Code::Unavailable,
            again,
            Exhausted,
            OutOfTime,
        ),
        (
            Effect::Read,
            DefiniteFailure,
            Code::ToolError,
            Fail,
            Fail,
            Fail,
        ),
        (
            Effect::Read,
            Unknown,
            Code::Timeout,
            again,
            Exhausted,
            OutOfTime,
        ),
        (Effect::Read, Unknown, Code::OutputInvalid, Fail, Fail, Fail),
        (
            Effect::Idempotent,
            Applied,
            Code::Timeout,
            Succeed,
            Succeed,
            Succeed,
        ),
        (
            Effect::Idempotent,
            NotStarted,
            Code::Unavailable,
            again,
            Exhausted,
            OutOfTime,
        ),
        (
            Effect::Idempotent,
            DefiniteFailure,
            Code::Unavailable,
            again,
            Exhausted,
            OutOfTime,
        ),
        (
            Effect::Idempotent,
            DefiniteFailure,
            Code::ToolError,
            Fail,
            Fail,
            Fail,
        ),
        (
            Effect::Idempotent,
            Unknown,
            Code::Timeout,
            again,
            Doubt,
            Doubt,
        ),
        (
            Effect::Idempotent,
            Unknown,
            Code::OutputInvalid,
            Doubt,
            Doubt,
            Doubt,
        ),
        (
            Effect::Once,
            Applied,
            Code::Timeout,
            Succeed,
            Succeed,
            Succeed,
        ),
        (
            Effect::Once,
            NotStarted,
            Code::Unavailable,
            again,
            Exhausted,
            OutOfTime,
        ),
        (Effect::Once, NotStarted, Code::ToolError, Fail, Fail, Fail),
        (
            Effect::Once,
            DefiniteFailure,
            Code::Unavailable,
            Fail,
            Fail,
            Fail,
        ),
        (
            Effect::Once,
            DefiniteFailure,
            Code::ToolError,
            Fail,
            Fail,
            Fail,
        ),
        (Effect::Once, Unknown, Code::Timeout, Doubt, Doubt, Doubt),
        (
            Effect::Transaction,
            Applied,
            Code::Timeout,
            Succeed,
            Succeed,
            Succeed,
        ),
        (
            Effect::Transaction,
            NotStarted,
            Code::Unavailable,
            again,
            Exhausted,
            OutOfTime,
        ),
        (
            Effect::Transaction,
            DefiniteFailure,
            Code::Unavailable,
            again,
            Exhausted,
            OutOfTime,
        ),
        (
            Effect::Transaction,
            DefiniteFailure,
            Code::ToolError,
            Fail,
            Fail,
            Fail,
        ),
        (
            Effect::Transaction,
            Unknown,
            Code::Timeout,
            again,
            Exhausted,
            OutOfTime,
        ),
        (
            Effect::Transaction,
            Unknown,
            Code::OutputInvalid,
            Fail,
            Fail,
            Fail,
        ),
    ];
    for (effect, word, code, with_all, without_attempts, without_time) in rows {
        let row = format!("{effect} {word} {code}");
        assert_eq!(
            decide_with(effect, word, code, |_, _| ()),
            with_all,
            "{row}"
        );
        assert_eq!(
            decide_with(effect, word, code, |tries, _| tries.spent = 3),
            without_attempts,
            "{row}, last attempt"
        );
        let late = decide_with(effect, word, code, |tries, _| {
            tries.remaining = Duration::from_millis(900)
        });
        assert_eq!(late, without_time, "{row}, late");
    }
}

#[test]
fn an_unknown_of_an_earlier_attempt_is_not_forgotten() {
    let last = |tries: &mut Tries<'_>, known: &mut Known| {
        known.earlier_unknown = true;
        tries.spent = 3;
    };
    let decision = decide_with(
        Effect::Idempotent,
        OutcomeWord::NotStarted,
        Code::Unavailable,
        last,
    );
    assert_eq!(decision, RetryDecision::Doubt);
    let decision = decide_with(
        Effect::Idempotent,
        OutcomeWord::DefiniteFailure,
        Code::ToolError,
        last,
    );
    assert_eq!(decision, RetryDecision::Fail);
    let decision = decide_with(
        Effect::Read,
        OutcomeWord::NotStarted,
        Code::Unavailable,
        last,
    );
    assert_eq!(decision, RetryDecision::Exhausted);
}

#[test]
fn a_write_whose_effect_is_unknown_is_never_run_again_once_its_key_is_forgotten() {
    let over = Some(Duration::ZERO);
    assert!(key_is_forgotten(Effect::Idempotent, true, over));
    assert!(!key_is_forgotten(Effect::Idempotent, false, over));
    assert!(!key_is_forgotten(
        Effect::Idempotent,
        true,
        Some(Duration::from_millis(1))
    ));
    assert!(!key_is_forgotten(Effect::Read, true, over));
    assert!(!key_is_forgotten(Effect::Transaction, true, over));
    let left = |left| move |tries: &mut Tries<'_>, _: &mut Known| tries.key_remaining = Some(left);
    let forgotten = left(Duration::from_millis(500));
    assert_eq!(
        decide_with(
            Effect::Idempotent,
            OutcomeWord::Unknown,
            Code::Timeout,
            forgotten
        ),
        RetryDecision::Doubt
    );
    let honoured = left(Duration::from_secs(5));
    let decision = decide_with(
        Effect::Idempotent,
        OutcomeWord::Unknown,
        Code::Timeout,
        honoured,
    );
    assert_eq!(decision, RetryDecision::Again(Duration::from_secs(1)));
}

#[test]
fn the_remote_is_not_asked_again_before_it_said() {
    let policy = RetryPolicy::default();
    let failure = ToolFailure::new(Code::Unavailable, Message::verbatim("busy"))
        .with_retry_after(Some(Duration::from_secs(7)));
    assert_eq!(
        decide(
            &Outcome::Unknown(failure),
            &first(&policy),
            &known(Effect::Read)
        ),
        RetryDecision::Again(Duration::from_secs(7))
    );
}

#[test]
fn a_call_that_kills_more_workers_than_its_tool_allows_is_set_aside() {
    let after = |effect, lost, allowed| {
        after_loss(Loss {
            effect,
            lost,
            allowed,
            cancelled: false,
        })
    };
    let again = RetryDecision::Again(Duration::ZERO);
    for allowed in [0, 1, 5, 100] {
        for (effect, aside) in [
            (Effect::Read, RetryDecision::Fail),
            (Effect::Transaction, RetryDecision::Fail),
            (Effect::Idempotent, RetryDecision::Doubt),
        ] {
            for lost in 1..=allowed {
                assert_eq!(after(effect, lost, allowed), again, "{effect} {lost}");
            }
            assert_eq!(after(effect, allowed + 1, allowed), aside, "{effect}");
        }
        assert_eq!(after(Effect::Once, 1, allowed), RetryDecision::Doubt);
    }
}

#[test]
fn what_the_platform_took_back_is_tried_again_whatever_the_policy_says() {
    let never = RetryPolicy {
        strategy: crate::manifest::RetryStrategy::None,
        on: Some(Vec::new()),
        ..RetryPolicy::default()
    };
    let again = RetryDecision::Again(Duration::from_secs(1));
    for cause in TakenBack::ALL {
        for effect in Effect::ALL {
            for word in [OutcomeWord::NotStarted, OutcomeWord::Unknown] {
                let tries = Tries {
                    spent: 20,
                    taken_back: Some(*cause),
                    ..first(&never)
                };
                let known = known(*effect);
                let decided = decide(&outcome(word, Code::Timeout), &tries, &known);
                let in_doubt = *effect == Effect::Once && word == OutcomeWord::Unknown;
                let expected = if in_doubt {
                    RetryDecision::Doubt
                } else {
                    again
                };
                assert_eq!(decided, expected, "{cause} {effect} {word}");
                let forgotten = Tries {
                    key_remaining: Some(Duration::ZERO),
                    ..tries
                };
                let known = Known {
                    earlier_unknown: true,
                    ..known
                };
                let decided = decide(&outcome(word, Code::Timeout), &forgotten, &known);
                let in_doubt = in_doubt || *effect == Effect::Idempotent;
                let expected = if in_doubt {
                    RetryDecision::Doubt
                } else {
                    again
                };
                assert_eq!(decided, expected, "{cause} {effect} {word}, key forgotten");
            }
        }
    }
}

fn decide_cancelled(effect: Effect, outcome: &Outcome, earlier_unknown: bool) -> RetryDecision {
    let policy = RetryPolicy::default();
    let known = Known {
        cancelled: true,
        earlier_unknown,
        ..known(effect)
    };
    decide(outcome, &first(&policy), &known)
}

#[test]
fn the_whole_table_of_cancelled_calls_is_as_it_was_agreed() {
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
            let decided = decide_cancelled(effect, &outcome(word, Code::Timeout), false);
            assert_eq!(decided, expected, "{effect} {word}");
            let doubtful = effect.may_doubt() && word == NotStarted;
            let decided = decide_cancelled(effect, &outcome(word, Code::Timeout), true);
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
                let decided =
                    decide_cancelled(*effect, &outcome(*word, Code::Timeout), earlier_unknown);
                assert!(
                    !matches!(decided, RetryDecision::Again(_)),
                    "{effect} {word}"
                );
            }
        }
        for lost in 1..4 {
            let decided = after_loss(Loss {
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
    assert_eq!(
        decide_cancelled(Effect::Read, &useless, false),
        RetryDecision::Fail
    );
    assert_eq!(
        decide_cancelled(Effect::Once, &useless, false),
        RetryDecision::Succeed
    );
}
