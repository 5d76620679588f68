//! `fleet/src/ending` and the functions of the database end calls with the same words, cell by cell.

use fleet::{
    call::{Awaiting, CallOutcome, Effect, EffectKnown, Language, Source, State},
    ending::{
        Decision, EndedAttempt, Ending, EndingKind, Fact, Found, Guard, Known, LaterAnswer, Tries,
        after_lost_writes, decide,
    },
    ids::{AttemptId, CallId},
    input::Asked,
    manifest::RetryPolicy,
    outcome::{Outcome, OutcomeWord, ToolFailure},
    state::next,
    store::{
        accept::NewCall,
        approvals::{self, Approval, Ruling},
        cancel::{self, Cancellation},
        park::{self, Parked, Parking},
        settle::{self, SettledAs, Settlement},
    },
    wire::{code::Code, envelope::Envelope, error::ErrorBody, message::Message},
};
use fleet_tests::{running::succeed, wait};
use serde_json::value::RawValue;
use sqlx::{Connection as _, PgConnection};

use crate::support::{
    Ledger, Worker, approval, call_to_approve, doubted, ending, handed_call, new_call, repeated,
    run, wanted,
};

/// What an ending says in one cell. The details of a doubt are what the call's last attempt came to.
#[derive(Debug, PartialEq)]
struct Cell {
    state: State,
    outcome: CallOutcome,
    source: Source,
    effect: EffectKnown,
    error: Option<ErrorBody>,
}

/// Of the Rust side; `from`: where the call stood.
fn decided(fact: &Fact<'_>, known: &Known) -> Cell {
    let (kind, _) = decide(fact, known);
    match kind {
        EndingKind::End(decision) => cell(&decision),
        EndingKind::Doubt(decision) => {
            let cell = cell(&decision);
            let error = cell.error.map(|error| ErrorBody {
                details: None,
                ..error
            });
            Cell { error, ..cell }
        }
        EndingKind::Again { .. } => panic!("{fact:?} of {known:?} ends nothing"),
    }
}

fn cell(decision: &Decision) -> Cell {
    let error = decision.error.as_deref();
    Cell {
        state: decision.state,
        outcome: decision.outcome,
        source: decision.source,
        effect: decision.effect,
        error: error.map(|error| serde_json::from_str(error).unwrap()),
    }
}

/// Of the database's side.
async fn stored(ledger: &Ledger, call: CallId) -> Cell {
    let envelope = envelope(ledger, call).await;
    let row = ledger.find(call).await;
    Cell {
        state: row.state(),
        outcome: envelope.outcome,
        source: envelope.source,
        effect: envelope.effect,
        error: envelope.error.map(|error| ErrorBody {
            details: None,
            ..error
        }),
    }
}

async fn envelope(ledger: &Ledger, call: CallId) -> Envelope {
    let row = ledger.find(call).await;
    row.envelope(false).unwrap().expect("it is decided")
}

async fn accepted(ledger: &Ledger, effect: Effect, language: Language) -> CallId {
    let call = NewCall {
        effect,
        language,
        ..new_call()
    };
    ledger.accepted(call).await
}

fn known(effect: Effect, language: Language, earlier_unknown: bool) -> Known {
    Known {
        effect,
        language,
        cancelled: false,
        earlier_unknown,
        applied_late: false,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    AttemptThatNeverStarted,
    AttemptOfUnknownEffect,
}

/// A queued call with this behind it.
async fn queued_after(
    ledger: &Ledger,
    worker: &Worker,
    before: Before,
    effect: Effect,
    language: Language,
) -> CallId {
    let call = accepted(ledger, effect, language).await;
    if before == Before::Nothing {
        return call;
    }
    let attempt = worker.claims(call).await;
    let again = repeated(call, attempt);
    let outcome = match before {
        Before::AttemptOfUnknownEffect => OutcomeWord::Unknown,
        Before::Nothing | Before::AttemptThatNeverStarted => OutcomeWord::NotStarted,
    };
    let ended = again.attempt.clone().unwrap();
    let attempt = Some(EndedAttempt { outcome, ..ended });
    ledger.ends(Ending { attempt, ..again }).await;
    call
}

#[tokio::test]
async fn a_withdrawn_call_ends_as_the_code_says() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let mut cells = 0;
    for effect in Effect::ALL {
        for language in Language::ALL {
            for before in [
                Before::Nothing,
                Before::AttemptThatNeverStarted,
                Before::AttemptOfUnknownEffect,
            ] {
                let unknown = before == Before::AttemptOfUnknownEffect;
                // The table itself refuses such a row.
                if unknown && *effect == Effect::Transaction {
                    continue;
                }
                let call = queued_after(&ledger, &worker, before, *effect, *language).await;
                let withdrawing = Cancellation {
                    call,
                    tenant: None,
                    actor: "ann",
                    reason: None,
                };
                let verdict = cancel::cancel(&ledger.database.pool, &withdrawing).await;
                assert!(verdict.unwrap().is_some());
                let attempts = i32::from(before != Before::Nothing);
                let expected = decided(
                    &Fact::Withdrawn { attempts },
                    &known(*effect, *language, unknown),
                );
                let what = format!("{effect} in {language} after {before:?}");
                assert_eq!(stored(&ledger, call).await, expected, "{what}");
                cells += 1;
            }
        }
    }
    assert_eq!(cells, 22);
}

/// A call that its caller's program has.
async fn handed_out(ledger: &Ledger, effect: Effect, language: Language) -> CallId {
    let call = NewCall {
        effect,
        language,
        ..handed_call()
    };
    ledger.accepted(call).await
}

#[tokio::test]
async fn a_call_that_is_taken_from_its_client_ends_as_the_code_says() {
    let ledger = Ledger::fresh().await;
    for effect in [Effect::Read, Effect::Idempotent, Effect::Once] {
        for language in Language::ALL {
            let call = handed_out(&ledger, effect, *language).await;
            assert_eq!(ledger.state(call).await, State::AwaitingClient);
            let attempt = ledger.find(call).await.attempt_id();
            let withdrawing = Cancellation {
                call,
                tenant: None,
                actor: "ann",
                reason: None,
            };
            let verdict = cancel::cancel(&ledger.database.pool, &withdrawing).await;
            assert!(verdict.unwrap().is_some());
            let expected = decided(
                &Fact::TakenFrom(Awaiting::Client),
                &known(effect, *language, false),
            );
            let what = format!("{effect} in {language}");
            assert_eq!(stored(&ledger, call).await, expected, "{what}");
            // Its attempt stays known, so that a late answer is recognised.
            assert_eq!(ledger.find(call).await.attempt_id(), attempt, "{what}");
        }
    }
}

#[tokio::test]
async fn a_call_that_is_taken_from_its_tool_ends_as_the_code_says() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    for effect in [Effect::Read, Effect::Idempotent, Effect::Once] {
        for language in Language::ALL {
            let call = NewCall {
                effect,
                language: *language,
                ..new_call()
            };
            let call = ledger.accepted(call).await;
            let attempt = worker.claims(call).await;
            let pool = &ledger.database.pool;
            let parking = Parking::Completion { wait_ms: 60_000 };
            let parked = park::park(pool, (call, attempt), parking, "worker").await;
            assert!(matches!(parked, Ok(Parked::Waits { .. })), "{parked:?}");
            let withdrawing = Cancellation {
                call,
                tenant: None,
                actor: "ann",
                reason: None,
            };
            let verdict = cancel::cancel(pool, &withdrawing).await;
            assert!(verdict.unwrap().is_some());
            let expected = decided(
                &Fact::TakenFrom(Awaiting::Completion),
                &known(effect, *language, false),
            );
            let what = format!("{effect} in {language}");
            assert_eq!(stored(&ledger, call).await, expected, "{what}");
            assert_eq!(
                ledger.find(call).await.attempt_id(),
                Some(attempt),
                "{what}"
            );
        }
    }
}

/// What is handed in of a call that waits.
const fn submitted(by: Awaiting, answer: &LaterAnswer) -> Fact<'_> {
    Fact::Submitted {
        from: State::AwaitingClient,
        by,
        answer,
    }
}

/// By the statement that the door and the sweep send.
#[tokio::test]
async fn a_call_that_its_client_decides_ends_as_the_code_says() {
    let ledger = Ledger::fresh().await;
    let failed = |not_done| LaterAnswer::Failed {
        failure: ToolFailure::new(Code::ToolError, Message::verbatim("no such file")),
        not_done,
    };
    let answers = [
        LaterAnswer::Did("{\"done\":true}".to_owned()),
        failed(false),
        failed(true),
    ];
    let silent = Fact::ClientSilent;
    let submitted = answers
        .iter()
        .map(|answer| submitted(Awaiting::Client, answer));
    for fact in submitted.chain([silent]) {
        for effect in [Effect::Read, Effect::Idempotent, Effect::Once] {
            let call = handed_out(&ledger, effect, Language::En).await;
            let attempt = ledger.find(call).await.attempt_id().unwrap();
            let known = known(effect, Language::En, false);
            let word = match fact {
                Fact::Submitted { answer, .. } => answer.word(),
                _ => OutcomeWord::Unknown,
            };
            let ended = EndedAttempt::of(effect, word, None, true, Language::En);
            let guard = Guard::Attempt(attempt);
            let ending = Ending::by(&fact, &known, call, guard, Some(ended), "client".into());
            ledger.ends(ending).await;
            let what = format!("{fact:?} of {effect}");
            assert_eq!(
                stored(&ledger, call).await,
                decided(&fact, &known),
                "{what}"
            );
        }
    }
}

#[tokio::test]
async fn a_settled_call_ends_as_the_code_says() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    for effect in [Effect::Idempotent, Effect::Once] {
        for (finding, found) in [
            (SettledAs::Applied, Found::Applied),
            (SettledAs::NotApplied, Found::NotApplied),
            (SettledAs::Abandoned, Found::Nothing),
        ] {
            let call = accepted(&ledger, effect, Language::En).await;
            let attempt = worker.claims(call).await;
            ledger.ends(doubted(call, attempt)).await;
            let past = "UPDATE toolfleet.open_calls SET attempt_until = now() - interval '1 second' \
                        WHERE call_id = $1";
            ledger.meddle(call, past).await;
            let settlement = Settlement {
                call,
                tenant: None,
                finding,
                actor: "ann",
                note: "looked at the account",
                result: None,
                by_time_only: true,
            };
            let settling = settle::settle(&ledger.database.pool, &settlement).await;
            let verdict = settling.unwrap();
            let expected = decided(
                &Fact::Settled { found },
                &known(effect, Language::En, false),
            );
            let stored = stored(&ledger, call).await;
            let code = stored.error.as_ref().map(|error| error.code.as_str());
            let expected_code = match found {
                Found::Applied => None,
                Found::NotApplied => Some("not_applied"),
                Found::Nothing => Some("in_doubt"),
            };
            assert_eq!(code, expected_code, "{verdict:?}");
            // The function has the words.
            let stored = Cell {
                error: None,
                ..stored
            };
            assert_eq!(stored, expected, "{effect}, {finding}");
        }
    }
}

#[tokio::test]
async fn lost_writes_leave_calls_where_the_code_says() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let mut open = Vec::new();
    for effect in Effect::ALL {
        let queued = accepted(&ledger, *effect, Language::En).await;
        open.push((queued, State::Queued, None, *effect, false));
        let undecided = to_approve(&ledger, *effect, Language::En).await;
        let awaiting = State::AwaitingClient;
        open.push((
            undecided,
            awaiting,
            Some(Awaiting::Approval),
            *effect,
            false,
        ));
        if *effect != Effect::Transaction {
            let handed = handed_out(&ledger, *effect, Language::En).await;
            open.push((handed, awaiting, Some(Awaiting::Client), *effect, false));
            for whom in [Awaiting::Completion, Awaiting::Input] {
                let call = accepted(&ledger, *effect, Language::En).await;
                let attempt = worker.claims(call).await;
                let pool = &ledger.database.pool;
                let question = Asked {
                    round: 1,
                    requests: RawValue::from_string("{}".to_owned()).unwrap(),
                    state: None,
                    input: None,
                };
                let parking = match whom {
                    Awaiting::Input => Parking::Input(&question),
                    _ => Parking::Completion { wait_ms: 60_000 },
                };
                let parked = park::park(pool, (call, attempt), parking, "worker").await;
                assert!(matches!(parked, Ok(Parked::Waits { .. })), "{parked:?}");
                open.push((call, awaiting, Some(whom), *effect, false));
            }
        }
        for cancelled in [false, true] {
            let call = accepted(&ledger, *effect, Language::En).await;
            worker.claims(call).await;
            if cancelled {
                let wanted =
                    "UPDATE toolfleet.open_calls SET cancel_requested = true WHERE call_id = $1";
                ledger.meddle(call, wanted).await;
            }
            open.push((call, State::Running, None, *effect, cancelled));
        }
    }
    let errors: serde_json::Value = Language::ALL
        .iter()
        .map(|language| {
            (
                language.to_string(),
                serde_json::json!({"code": "in_doubt"}),
            )
        })
        .collect::<serde_json::Map<_, _>>()
        .into();
    let mut connection = ledger.database.connect().await;
    let seen: i32 = sqlx::query_scalar("SELECT quarantines FROM toolfleet.fleet")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    let (done, _doubted): (bool, i64) = sqlx::query_as(
        "SELECT * FROM toolfleet.quarantine($1, $1 + 1, '1', 1, 'test', $2::text::json)",
    )
    .bind(seen)
    .bind(errors.to_string())
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert!(done);
    for (call, stood, awaiting, effect, cancelled) in open {
        let moved = after_lost_writes(stood, awaiting, effect, cancelled);
        let expected = moved.map_or(stood, |event| next(stood, event).unwrap());
        let what = format!("{effect}, {stood}, {awaiting:?}, cancelled: {cancelled}");
        assert_eq!(ledger.state(call).await, expected, "{what}");
    }
}

/// A call that waits for a yes.
async fn to_approve(ledger: &Ledger, effect: Effect, language: Language) -> CallId {
    let call = NewCall {
        effect,
        language,
        ..call_to_approve(wanted())
    };
    ledger.accepted(call).await
}

/// By the functions of the ledger, and by the statement that the sweep sends; and the same after lost writes, which leave an
/// `idempotent` call waiting with an effect that is unknown.
#[tokio::test]
async fn a_call_that_waits_for_a_yes_ends_as_the_code_says() {
    let ledger = Ledger::fresh().await;
    let mut cells = 0;
    for effect in Effect::ALL {
        for language in Language::ALL {
            for unknown in [false, true] {
                if unknown && *effect != Effect::Idempotent {
                    continue;
                }
                for fact in [
                    Fact::Denied,
                    Fact::Undecided,
                    Fact::Withdrawn { attempts: 0 },
                ] {
                    let call = to_approve(&ledger, *effect, *language).await;
                    if unknown {
                        let lost = "UPDATE toolfleet.open_calls SET effect_unknown = true, quarantined = true, rev = rev + 1 \
                                    WHERE call_id = $1";
                        ledger.meddle(call, lost).await;
                    }
                    let known = known(*effect, *language, unknown);
                    let pool = &ledger.database.pool;
                    match fact {
                        Fact::Denied => {
                            let denial = Approval {
                                ruling: Ruling::Deny,
                                ..approval(call, "ann")
                            };
                            approvals::rule(pool, &denial).await.unwrap();
                        }
                        Fact::Withdrawn { .. } => {
                            let withdrawing = Cancellation {
                                call,
                                tenant: None,
                                actor: "ann",
                                reason: None,
                            };
                            cancel::cancel(pool, &withdrawing).await.unwrap();
                        }
                        _ => {
                            let guard = Guard::Queued(ledger.find(call).await.rev);
                            let by = "sweep".to_owned();
                            let ending = Ending::by(&fact, &known, call, guard, None, by);
                            ledger.ends(ending).await;
                        }
                    }
                    let what = format!("{fact:?} of {effect} in {language}, unknown: {unknown}");
                    let expected = decided(&fact, &known);
                    assert_eq!(stored(&ledger, call).await, expected, "{what}");
                    cells += 1;
                }
            }
        }
    }
    assert_eq!(cells, 30);
}

/// The tool did what was asked.
fn applied() -> Outcome {
    Outcome::Applied {
        result: RawValue::from_string("{\"done\":true}".to_owned()).unwrap(),
        flaw: None,
    }
}

const fn last_try(policy: &RetryPolicy) -> Tries<'_> {
    Tries {
        policy,
        spent: u32::MAX,
        taken_back: None,
        pause: std::time::Duration::ZERO,
        remaining: std::time::Duration::ZERO,
        key_remaining: None,
        is_suppressed: false,
    }
}

#[tokio::test]
async fn a_committed_transaction_ends_as_the_code_says() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let call = accepted(&ledger, Effect::Transaction, Language::En).await;
    let attempt = worker.claims(call).await;
    let url = ledger.database.tool_url();
    let mut tool = PgConnection::connect(&url).await.unwrap();
    run(&mut tool, "BEGIN").await;
    let moved = succeed(&mut tool, call, attempt, "{\"done\":true}").await;
    run(&mut tool, "COMMIT").await;
    let (policy, outcome) = (RetryPolicy::default(), applied());
    let fact = Fact::Ran(&outcome, last_try(&policy));
    let known = known(Effect::Transaction, Language::En, false);
    assert_eq!(stored(&ledger, call).await, decided(&fact, &known));
    let told = moved.unwrap().envelope(call, decide(&fact, &known).0);
    let kept = envelope(&ledger, call).await;
    assert_eq!(text(&told.unwrap()), text(&kept));
}

fn text(envelope: &Envelope) -> String {
    String::from_utf8(envelope.to_bytes()).unwrap()
}

/// By either statement: of an attempt that runs, of a call that waits.
async fn guarded(ledger: &Ledger, worker: &Worker, effect: Effect) -> [(CallId, Guard); 2] {
    let running = accepted(ledger, effect, Language::En).await;
    let attempt: AttemptId = worker.claims(running).await;
    let queued = accepted(ledger, effect, Language::En).await;
    [
        (running, Guard::Attempt(attempt)),
        (queued, Guard::Queued(ledger.find(queued).await.rev)),
    ]
}

#[tokio::test]
async fn a_caller_is_told_what_a_later_reader_finds() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    for degraded in [None, Some("{\"kind\":\"stale\",\"age_ms\":7}".to_owned())] {
        for (call, guard) in guarded(&ledger, &worker, Effect::Read).await {
            let kind = EndingKind::End(Decision {
                state: State::Failed,
                outcome: CallOutcome::Fallback,
                source: Source::Stale,
                effect: EffectKnown::None,
                result: Some("{\"temp\":21}".to_owned()),
                error: None,
                preview: None,
                degraded: degraded.clone(),
            });
            let ending = ending(call, guard, kind);
            let completing = ledger.completing.complete(&ending, wait::LONG).await;
            let moved = completing.unwrap().expect("its guard holds");
            let told = moved.envelope(call, ending.kind).unwrap();
            let kept = envelope(&ledger, call).await;
            assert_eq!(text(&told), text(&kept), "{guard:?}");
            assert_eq!(kept.degraded.is_some(), degraded.is_some(), "{guard:?}");
        }
    }
}
