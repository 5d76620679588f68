use std::time::Duration;

use serde_json::value::RawValue;

use super::*;
use crate::{
    call::{Awaiting, CallOutcome, Effect, EffectKnown, Language, Source, State},
    fallback::{StandIn, StandInKind},
    ids::CallId,
    manifest::RetryPolicy,
    outcome::{Outcome, OutcomeWord, ToolFailure},
    taken_back::TakenBack,
    wire::{code::Code, error::ErrorBody, message::Message},
};

fn failure(code: Code) -> ToolFailure {
    ToolFailure::new(code, Message::fixed("it did not work", "没有成功"))
}

fn outcome(word: OutcomeWord, code: Code) -> Outcome {
    match word {
        OutcomeWord::Applied => Outcome::Applied {
            result: RawValue::from_string("7".to_owned()).unwrap(),
            flaw: None,
        },
        OutcomeWord::NotStarted => Outcome::NotStarted(failure(code)),
        OutcomeWord::DefiniteFailure => Outcome::DefiniteFailure(failure(code)),
        OutcomeWord::Unknown => Outcome::Unknown(failure(code)),
    }
}

/// Every combination of what can be known.
fn all_known() -> Vec<Known> {
    let flags = [false, true];
    let mut all = Vec::new();
    for effect in Effect::ALL {
        for cancelled in flags {
            for earlier_unknown in flags {
                for applied_late in flags {
                    all.push(Known {
                        effect: *effect,
                        language: Language::En,
                        cancelled,
                        earlier_unknown,
                        applied_late,
                    });
                }
            }
        }
    }
    all
}

fn known(effect: Effect) -> Known {
    Known {
        effect,
        language: Language::En,
        cancelled: false,
        earlier_unknown: false,
        applied_late: false,
    }
}

/// Calls `look` with one fact of each kind and size, and its name.
fn with_all_facts(mut look: impl FnMut(&str, &Fact<'_>)) {
    let (policy, tool_error) = (RetryPolicy::default(), failure(Code::ToolError));
    let timeout = failure(Code::Timeout);
    for word in OutcomeWord::ALL {
        for code in [Code::Timeout, Code::ToolError] {
            for spent in [1, policy.attempts_max()] {
                for remaining in [Duration::ZERO, Duration::from_secs(60)] {
                    for taken_back in [None, Some(TakenBack::WorkerLeft)] {
                        let tries = Tries {
                            policy: &policy,
                            spent,
                            taken_back,
                            pause: Duration::from_secs(1),
                            remaining,
                            key_remaining: Some(Duration::from_secs(30)),
                            is_suppressed: false,
                        };
                        look(
                            &format!("ran, {word}, {code}"),
                            &Fact::Ran(&outcome(*word, code), tries),
                        );
                        look("silent tool", &Fact::ToolSilent(tries));
                    }
                }
            }
        }
    }
    for why in TakenBack::ALL {
        let taken_back = Fact::TakenBack {
            why: *why,
            failure: &timeout,
            before: 0,
        };
        look("taken back", &taken_back);
    }
    for before in 0..4 {
        for why in [TakenBack::WorkerLost, TakenBack::WorkerLeft] {
            let lost = LostAttempt {
                why,
                before,
                allowed: 2,
            };
            look("lost", &Fact::Lost(lost));
        }
    }
    for failure in [&timeout, &tool_error] {
        look("key forgotten", &Fact::KeyForgotten(failure));
        look("disproved", &Fact::Disproved(failure));
        look("refused", &Fact::Refused(failure));
    }
    look("answered", &Fact::Answered);
    for flag in [false, true] {
        let expired = Fact::Expired {
            obstacle: None,
            waited_too_long: flag,
        };
        look("expired", &expired);
        let attempts = i32::from(flag);
        look("withdrawn", &Fact::Withdrawn { attempts });
    }
    for whom in [Awaiting::Client, Awaiting::Completion] {
        look("taken from it", &Fact::TakenFrom(whom));
    }
    look("not told", &Fact::NotTold);
    look("silent client", &Fact::ClientSilent);
    for from in [State::AwaitingClient, State::InDoubt] {
        for answer in answers_of_others() {
            for by in [Awaiting::Client, Awaiting::Completion] {
                let answer = &answer;
                look("submitted", &Fact::Submitted { from, by, answer });
            }
        }
    }
    for found in [Found::Applied, Found::NotApplied, Found::Nothing] {
        look("settled", &Fact::Settled { found });
    }
}

fn answers_of_others() -> [LaterAnswer; 3] {
    let failed = |not_done| LaterAnswer::Failed {
        failure: failure(Code::ToolError),
        not_done,
    };
    [
        LaterAnswer::Did("{}".to_owned()),
        failed(false),
        failed(true),
    ]
}

#[test]
fn every_fact_is_a_legal_move_whose_words_agree() {
    let mut cells = 0;
    with_all_facts(|what, fact| {
        for known in all_known() {
            // An illegal move would panic here.
            let (kind, reason) = decide(fact, &known);
            let what = format!("{what} of {known:?}: {kind:?}");
            assert!(!reason.is_empty(), "{what}");
            cells += 1;
            match kind {
                EndingKind::Again { .. } => assert!(!known.cancelled, "{what}"),
                EndingKind::Doubt(doubt) => {
                    let error = doubt.error.unwrap();
                    let error: ErrorBody = serde_json::from_str(&error).unwrap();
                    assert_eq!(error.code, Code::InDoubt, "{what}");
                    // The worker never states this fact of a tool that leaves no doubt.
                    let forgotten = matches!(fact, Fact::KeyForgotten(_));
                    assert!(known.effect.may_doubt() || forgotten, "{what}");
                }
                EndingKind::End(Decision {
                    state,
                    outcome,
                    source,
                    effect,
                    error,
                    result,
                    preview,
                    degraded,
                }) => {
                    assert!(preview.is_none(), "{what}");
                    assert!(state.is_terminal(), "{what}");
                    let worked = state == State::Succeeded;
                    assert_eq!(outcome == CallOutcome::Success, worked, "{what}");
                    assert!(worked || result.is_none(), "{what}");
                    let settled = source == Source::Settled;
                    assert_eq!(error.is_none(), worked || settled, "{what}");
                    let live = matches!(outcome, CallOutcome::Success | CallOutcome::BusinessError);
                    let answered = matches!(fact, Fact::Answered);
                    assert_eq!(source == Source::Cache, answered, "{what}");
                    let submitted = matches!(
                        fact,
                        Fact::Submitted {
                            by: Awaiting::Client,
                            ..
                        }
                    );
                    assert_eq!(source == Source::Client, submitted, "{what}");
                    assert_eq!(
                        source == Source::Live,
                        live && !settled && !answered && !submitted,
                        "{what}"
                    );
                    // Of two things alone that are over nobody knows whether they happened: what is abandoned, and a write that
                    // its caller's program calls failed without a word of whether anything was done.
                    let unsure = match fact {
                        Fact::Settled {
                            found: Found::Nothing,
                        } => true,
                        Fact::Submitted { answer, .. } => {
                            answer.word() == OutcomeWord::Unknown && known.effect.may_doubt()
                        }
                        _ => false,
                    };
                    assert_eq!(effect == EffectKnown::Unknown, unsure, "{what}");
                    assert!(degraded.is_none(), "{what}");
                }
            }
        }
    });
    assert!(cells > 3_000, "{cells}");
}

#[test]
fn what_happened_has_the_words_of_the_contract() {
    use Effect::{Idempotent, Once, Read};
    let (policy, timeout, no, misasked) = (
        RetryPolicy::default(),
        failure(Code::Timeout),
        failure(Code::ToolError),
        failure(Code::InvalidArguments),
    );
    let (worked, said_no) = (
        outcome(OutcomeWord::Applied, Code::Timeout),
        outcome(OutcomeWord::DefiniteFailure, Code::ToolError),
    );
    let tries = Tries {
        policy: &policy,
        spent: policy.attempts_max(),
        taken_back: None,
        pause: Duration::ZERO,
        remaining: Duration::ZERO,
        key_remaining: None,
        is_suppressed: false,
    };
    let expired = Fact::Expired {
        obstacle: None,
        waited_too_long: false,
    };
    let (withdrawn, settled) = (Fact::Withdrawn { attempts: 0 }, |found| Fact::Settled {
        found,
    });
    for (fact, effect, expected) in [
        (
            Fact::Ran(&worked, tries),
            Read,
            "succeeded success live none",
        ),
        (
            Fact::Ran(&worked, tries),
            Once,
            "succeeded success live applied",
        ),
        (
            Fact::Ran(&said_no, tries),
            Read,
            "failed business_error live none",
        ),
        (
            Fact::Ran(&said_no, tries),
            Once,
            "failed business_error live not_applied",
        ),
        (
            Fact::Refused(&timeout),
            Once,
            "failed system_error error not_applied",
        ),
        (Fact::Refused(&no), Read, "failed business_error live none"),
        (
            Fact::Refused(&misasked),
            Read,
            "failed business_error error none",
        ),
        (
            Fact::Disproved(&timeout),
            Once,
            "failed system_error error not_applied",
        ),
        (
            Fact::Disproved(&no),
            Idempotent,
            "failed business_error live not_applied",
        ),
        (expired, Read, "expired system_error error none"),
        (
            expired,
            Idempotent,
            "expired system_error error not_applied",
        ),
        (withdrawn, Read, "cancelled system_error error none"),
        (withdrawn, Once, "cancelled system_error error not_applied"),
        (
            settled(Found::Applied),
            Once,
            "succeeded success settled applied",
        ),
        (
            settled(Found::Nothing),
            Once,
            "failed system_error settled unknown",
        ),
        (
            settled(Found::NotApplied),
            Once,
            "failed system_error settled not_applied",
        ),
    ] {
        let (kind, _) = decide(&fact, &known(effect));
        let EndingKind::End(Decision {
            state,
            outcome,
            source,
            effect: known,
            ..
        }) = kind
        else {
            panic!("{fact:?} of {effect}: {kind:?}");
        };
        assert_eq!(
            format!("{state} {outcome} {source} {known}"),
            expected,
            "{fact:?} of {effect}"
        );
    }
}

#[test]
fn a_denied_effect_that_was_reported_before_is_a_doubt() {
    let (policy, said_no) = (
        RetryPolicy::default(),
        outcome(OutcomeWord::DefiniteFailure, Code::ToolError),
    );
    let tries = Tries {
        policy: &policy,
        spent: 1,
        taken_back: None,
        pause: Duration::ZERO,
        remaining: Duration::ZERO,
        key_remaining: None,
        is_suppressed: false,
    };
    for effect in Effect::ALL {
        let known = Known {
            applied_late: true,
            ..known(*effect)
        };
        let (kind, reason) = decide(&Fact::Ran(&said_no, tries), &known);
        let doubted = matches!(kind, EndingKind::Doubt(_));
        assert_eq!(doubted, effect.may_doubt(), "{effect}");
        assert_eq!(reason, "tool_error");
    }
}

#[test]
fn a_lost_attempt_of_a_transaction_had_no_effect() {
    for effect in Effect::ALL {
        let lost = LostAttempt {
            why: TakenBack::WorkerLost,
            before: 0,
            allowed: 2,
        };
        let attempt = lost.attempt(&known(*effect));
        let (outcome, known) = match effect {
            Effect::Transaction => (OutcomeWord::DefiniteFailure, EffectKnown::NotApplied),
            Effect::Read | Effect::Idempotent | Effect::Once => {
                (OutcomeWord::Unknown, EffectKnown::Unknown)
            }
        };
        assert_eq!(
            (attempt.outcome, attempt.effect),
            (outcome, known),
            "{effect}"
        );
        assert_eq!(
            attempt.has_stopped,
            *effect == Effect::Transaction,
            "{effect}"
        );
    }
}

#[test]
fn what_stands_in_changes_a_failure_that_the_tool_could_not_help_and_nothing_else() {
    let stand_in = |kind| StandIn {
        kind,
        result: "7".to_owned(),
        age_ms: None,
        tool: None,
    };
    let mut stood_in = 0;
    with_all_facts(|what, fact| {
        for known in all_known() {
            let (call, guard) = (CallId::generate(), Guard::Queued(1));
            let ending = Ending::by(fact, &known, call, guard, None, "worker".to_owned());
            let what = format!("{what} of {known:?}: {:?}", ending.kind);
            assert_eq!(
                ending.cause_of_fallback(known.cancelled, true),
                None,
                "{what}"
            );
            let Some(cause) = ending.cause_of_fallback(known.cancelled, false) else {
                continue;
            };
            stood_in += 1;
            assert!(!known.cancelled, "{what}");
            let EndingKind::End(was) = ending.kind.clone() else {
                panic!("{what}");
            };
            for (kind, source) in [
                (StandInKind::Other, Source::Other),
                (StandInKind::Stale, Source::Stale),
                (StandInKind::Stub, Source::Stub),
            ] {
                let EndingKind::End(is) = ending.clone().answered_by(&stand_in(kind), cause).kind
                else {
                    panic!("{what}");
                };
                assert_eq!(
                    (is.state, is.outcome, is.source, is.effect),
                    (State::Failed, CallOutcome::Fallback, source, was.effect),
                    "{what}"
                );
                assert_eq!(
                    (is.error.as_ref(), is.result.as_deref()),
                    (was.error.as_ref(), Some("7"))
                );
                assert!(is.degraded.unwrap().contains(cause.as_str()), "{what}");
            }
            let answered = ending.answered_by(&stand_in(StandInKind::Stub), cause);
            assert_eq!(
                answered.cause_of_fallback(false, false),
                None,
                "once: {what}"
            );
        }
    });
    assert!(stood_in > 50, "{stood_in}");
}
