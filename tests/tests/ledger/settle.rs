//! Settling: every verdict, in both orders of every race, and what the history says afterwards.

use std::time::Duration;

use fleet::{
    call::{Effect, State},
    ids::{AttemptId, CallId, Label},
    outcome::OutcomeWord,
    store::{
        DecisionError,
        accept::NewCall,
        cancel::{self, Cancellation},
        claim::ClaimRow,
        complete::{Complete, Ending, Guard, Moved},
        lane::{Locks, Statement},
        settle::{self, SettledAs, Settlement, Verdict},
    },
    wire::cancel::CancelResult,
};
use fleet_tests::postgres::Database;
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

use crate::support::{
    Ledger, Worker, again, claim_of, doubt, doubted, ending, lost, new_call, run, succeeded,
    tenant, until_blocked,
};

const DONE: &str = "{\"id\":9007199254740993}";
const PAST: &str = "UPDATE toolfleet.open_calls SET attempt_until = now() - interval '1 second' WHERE call_id = $1";

fn applied(call: CallId) -> Settlement<'static> {
    Settlement {
        call,
        tenant: None,
        finding: SettledAs::Applied,
        actor: "ann",
        note: "it is on the account",
        result: Some(DONE),
        by_time_only: false,
    }
}

fn not_applied(call: CallId) -> Settlement<'static> {
    Settlement {
        finding: SettledAs::NotApplied,
        result: None,
        ..applied(call)
    }
}

async fn ask(ledger: &Ledger, settlement: &Settlement<'_>) -> Verdict {
    settle::settle(&ledger.database.pool, settlement)
        .await
        .unwrap()
}

/// A verdict's word, without who and when.
fn word(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Settled { state, tell } if tell.is_some() => format!("settled {state}"),
        Verdict::Settled { state, .. } => format!("settled before {state}"),
        Verdict::Conflict {
            state, decided_by, ..
        } => {
            let by = decided_by.as_deref().unwrap_or("nobody");
            format!("conflict {state} {by}")
        }
        Verdict::WorkerNotFenced => "worker_not_fenced".to_owned(),
        Verdict::TooEarly { .. } => "too_early".to_owned(),
        Verdict::NotFound => "not_found".to_owned(),
    }
}

async fn says(ledger: &Ledger, settlement: &Settlement<'_>) -> String {
    word(&ask(ledger, settlement).await)
}

/// The last move, as the view has it.
async fn last_event(database: &Database, call: CallId) -> Value {
    let row: String = sqlx::query_scalar(
        "SELECT row_to_json(e)::text FROM toolfleet.call_events e WHERE call_id = $1 \
         ORDER BY revision DESC LIMIT 1",
    )
    .bind(call.0)
    .fetch_one(&database.pool)
    .await
    .unwrap();
    serde_json::from_str(&row).unwrap()
}

#[tokio::test]
async fn applied_settles_a_doubt_at_once_and_is_told_whole() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let new = new_call();
    let dispatcher = new.dispatcher;
    let call = ledger.accepted(new).await;
    let attempt = worker.claims(call).await;
    ledger.ends(lost(call, attempt)).await;

    let verdict = ask(&ledger, &applied(call)).await;
    let expected = Verdict::Settled {
        state: State::Succeeded,
        tell: Some(dispatcher),
    };
    assert_eq!(verdict, expected);
    let row = ledger.find(call).await;
    let envelope = row.envelope(false).unwrap().unwrap();
    let envelope: Value = serde_json::from_slice(&envelope.to_bytes()).unwrap();
    for (field, value) in [
        ("state", json!("succeeded")),
        ("outcome", json!("success")),
        ("is_error", json!(false)),
        ("source", json!("settled")),
        ("effect", json!("applied")),
        ("error", json!(null)),
        ("attempts", json!(1)),
    ] {
        assert_eq!(envelope[field], value, "{field} of {envelope}");
    }
    assert_eq!(envelope["result"].to_string(), DONE);
    // A late completion that looks again must not find its own name on another decision.
    assert_eq!(row.attempt_id(), None);
    let event = last_event(&ledger.database, call).await;
    assert_eq!(
        (&event["from_state"], &event["actor"], &event["reason"]),
        (&json!("in_doubt"), &json!("ann"), &json!("settled_applied"))
    );
    // Beside what was said stands the role that Postgres knows.
    let details = json!({"note": "it is on the account", "settled_by": "person", "worker_fenced": false, "by_time_only": false,
        "role": ledger.database.user()});
    assert_eq!(
        (&event["revision"], &event["details"]),
        (&json!(3), &details)
    );
}

#[tokio::test]
async fn what_was_settled_is_settled_for_ever() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, _) = ledger.in_doubt(&worker).await;
    assert_eq!(says(&ledger, &applied(call)).await, "settled succeeded");
    let same = [
        applied(call),
        Settlement {
            actor: "bob",
            note: "me too",
            result: None,
            ..applied(call)
        },
        Settlement {
            result: Some("{ \"id\" : 9007199254740993 }"),
            ..applied(call)
        },
    ];
    for again in &same {
        assert_eq!(says(&ledger, again).await, "settled before succeeded");
    }
    let other = [
        not_applied(call),
        Settlement {
            by_time_only: true,
            ..not_applied(call)
        },
        Settlement {
            result: Some("{\"id\":9007199254740992}"),
            ..applied(call)
        },
    ];
    for other in &other {
        assert_eq!(says(&ledger, other).await, "conflict succeeded ann");
    }
}

#[tokio::test]
async fn not_applied_needs_the_worker_fenced_and_the_time_over() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, attempt) = ledger.running(&worker).await;
    ledger.ends(lost(call, attempt)).await;
    let by_time_only = Settlement {
        by_time_only: true,
        ..not_applied(call)
    };
    assert_eq!(says(&ledger, &not_applied(call)).await, "worker_not_fenced");
    match ask(&ledger, &by_time_only).await {
        Verdict::TooEarly { wait, .. } => {
            assert!(
                wait > Duration::from_secs(30) && wait <= Duration::from_secs(60),
                "{wait:?}"
            );
        }
        other => panic!("{other:?}"),
    }
    ledger.meddle(call, PAST).await;
    assert_eq!(says(&ledger, &not_applied(call)).await, "worker_not_fenced");
    assert_eq!(ledger.state(call).await, State::InDoubt);
    assert_eq!(says(&ledger, &by_time_only).await, "settled failed");
    let event = last_event(&ledger.database, call).await;
    assert_eq!(event["details"]["by_time_only"], true, "{event}");
    assert_eq!(event["details"]["worker_fenced"], false, "{event}");
}

#[tokio::test]
async fn what_an_attempt_has_said_too_late_is_not_contradicted() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, _) = in_doubt(&ledger, &worker, 1).await[0];
    // An earlier attempt of the call, whose answer came after the one that is in doubt.
    sqlx::query(
        "INSERT INTO toolfleet.ended_attempts \
             (call_id, attempt_id, number, worker_id, started_at, timeout_ms, outcome, effect_known, over, late) \
         VALUES ($1, gen_random_uuid(), 1, $2, now(), 1000, 'applied', 'applied', true, true)",
    )
    .bind(call.0)
    .bind(worker.id.0)
    .execute(&ledger.database.pool)
    .await
    .unwrap();
    let said = ask(&ledger, &not_applied(call)).await;
    assert!(
        matches!(&said, Verdict::Conflict { decided_by: Some(by), .. } if by.contains("attempt 1")),
        "{said:?}"
    );
    assert_eq!(says(&ledger, &applied(call)).await, "settled succeeded");
}

#[tokio::test]
async fn whoever_proves_the_attempt_gone_makes_not_applied_possible() {
    let gone = [
        "UPDATE toolfleet.worker_processes SET state = 'left', ended_at = now() WHERE worker_id = $1",
        "UPDATE toolfleet.worker_processes SET state = 'fenced', fenced_at = now(), fenced_by = 'test' WHERE worker_id = $1",
    ];
    let not_gone = [
        "UPDATE toolfleet.worker_processes SET state = 'dead', ended_at = now() WHERE worker_id = $1",
        "DELETE FROM toolfleet.worker_processes WHERE worker_id = $1",
    ];
    let cases = gone.iter().map(|sql| (*sql, "settled failed"));
    let cases = cases.chain(not_gone.iter().map(|sql| (*sql, "worker_not_fenced")));
    let mut ledger = Ledger::fresh().await;
    for (sql, expected) in cases {
        let worker = ledger.worker().await;
        let (call, attempt) = ledger.running(&worker).await;
        ledger.ends(lost(call, attempt)).await;
        ledger.meddle(call, PAST).await;
        sqlx::query(sql)
            .bind(worker.id.0)
            .execute(&ledger.database.pool)
            .await
            .unwrap();
        assert_eq!(says(&ledger, &not_applied(call)).await, expected, "{sql}");
    }
    // Its own worker has seen the attempt end.
    let worker = ledger.worker().await;
    let (call, _) = ledger.in_doubt(&worker).await;
    assert_eq!(says(&ledger, &not_applied(call)).await, "too_early");
    ledger.meddle(call, PAST).await;
    assert_eq!(says(&ledger, &not_applied(call)).await, "settled failed");
    let row = ledger.find(call).await;
    let envelope = row.envelope(false).unwrap().unwrap();
    let error = envelope.error.unwrap();
    assert_eq!(
        (
            error.code.as_str(),
            error.retryable,
            envelope.effect.as_str()
        ),
        ("not_applied", false, "not_applied")
    );
    let event = last_event(&ledger.database, call).await;
    assert_eq!(event["details"]["by_time_only"], false, "{event}");
    // After lost writes it is unknown which attempts there were.
    let (call, _) = ledger.in_doubt(&worker).await;
    ledger.meddle(call, PAST).await;
    ledger
        .meddle(
            call,
            "UPDATE toolfleet.open_calls SET quarantined = true WHERE call_id = $1",
        )
        .await;
    assert_eq!(says(&ledger, &not_applied(call)).await, "worker_not_fenced");
    assert_eq!(says(&ledger, &applied(call)).await, "settled succeeded");
}

#[tokio::test]
async fn a_doubt_without_an_attempt_has_the_time_of_the_attempt_that_caused_it() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let mut calls = Vec::new();
    for _ in 0..2 {
        let call = ledger
            .accepted(NewCall {
                effect: Effect::Idempotent,
                ..new_call()
            })
            .await;
        // The answer broke off after a moment; its time was a minute.
        let attempt = worker.claims(call).await;
        let mut ended = ending(call, Guard::Attempt(attempt), again());
        ended.attempt.as_mut().unwrap().outcome = OutcomeWord::Unknown;
        ledger.ends(ended).await;
        calls.push(call);
    }
    let expired = ending(
        calls[0],
        Guard::Queued(ledger.find(calls[0]).await.rev),
        doubt(),
    );
    ledger.ends(expired).await;
    let cancellation = Cancellation {
        call: calls[1],
        tenant: None,
        actor: "ann",
        reason: None,
    };
    let verdict = cancel::cancel(&ledger.database.pool, &cancellation).await;
    assert_eq!(verdict.unwrap().unwrap().result, CancelResult::InDoubt);
    for call in calls {
        assert_eq!(says(&ledger, &not_applied(call)).await, "too_early");
        ledger.meddle(call, PAST).await;
        assert_eq!(says(&ledger, &not_applied(call)).await, "settled failed");
    }
}

#[tokio::test]
async fn only_a_doubt_of_ones_own_is_settled() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let queued = ledger.queued().await;
    let (running, attempt) = ledger.running(&worker).await;
    for settlement in [applied(queued), not_applied(queued)] {
        assert_eq!(says(&ledger, &settlement).await, "conflict queued nobody");
    }
    assert_eq!(
        says(&ledger, &applied(running)).await,
        "conflict running nobody"
    );
    ledger.ends(succeeded(running, attempt)).await;
    assert_eq!(
        says(&ledger, &applied(running)).await,
        "conflict succeeded test"
    );

    let unknown = CallId::generate();
    assert_eq!(says(&ledger, &applied(unknown)).await, "not_found");
    let stranger: Label = "stranger".parse().unwrap();
    let (own, tenant) = (ledger.in_doubt(&worker).await.0, tenant());
    for call in [own, running] {
        let foreign = Settlement {
            tenant: Some(&stranger),
            ..applied(call)
        };
        assert_eq!(says(&ledger, &foreign).await, "not_found");
    }
    let allowed = Settlement {
        tenant: Some(&tenant),
        ..applied(own)
    };
    assert_eq!(says(&ledger, &allowed).await, "settled succeeded");
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, _) = ledger.in_doubt(&worker).await;
    let (long_actor, long_note) = ("a".repeat(201), "n".repeat(2001));
    let broken = [
        Settlement {
            actor: " ",
            ..applied(call)
        },
        Settlement {
            actor: &long_actor,
            ..applied(call)
        },
        Settlement {
            note: "",
            ..applied(call)
        },
        Settlement {
            note: &long_note,
            ..applied(call)
        },
        Settlement {
            note: "a\0b",
            ..applied(call)
        },
        Settlement {
            result: Some("{"),
            ..applied(call)
        },
        Settlement {
            result: Some("\"\\u0000\""),
            ..applied(call)
        },
        Settlement {
            result: Some("\"\\ud800\""),
            ..applied(call)
        },
        Settlement {
            result: Some("1"),
            ..not_applied(call)
        },
    ];
    for settlement in &broken {
        let answer = settle::settle(&ledger.database.pool, settlement).await;
        assert!(
            matches!(answer, Err(DecisionError::Invalid(_))),
            "{answer:?}"
        );
    }
    let outcome: Result<String, sqlx::Error> =
        sqlx::query_scalar("SELECT verdict FROM toolfleet.settle($1, 'maybe', 'ann', 'n')")
            .bind(call.0)
            .fetch_one(&ledger.database.pool)
            .await;
    assert!(
        outcome
            .unwrap_err()
            .to_string()
            .contains("applied, not_applied or abandoned")
    );
    assert_eq!(ledger.state(call).await, State::InDoubt);
}

#[tokio::test]
async fn of_two_that_come_at_once_the_second_is_told_what_the_first_decided() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let settle_sql = "SELECT FROM toolfleet.settle($1, 'applied', 'bob', 'n')";

    // A settlement is under way when another one and the late answer of the attempt come.
    let (call, attempt) = ledger.in_doubt(&worker).await;
    let mut first = ledger.database.connect().await;
    run(&mut first, "BEGIN").await;
    sqlx::query(settle_sql)
        .bind(call.0)
        .execute(&mut first)
        .await
        .unwrap();
    let second = not_applied(call);
    let late = [succeeded(call, attempt)];
    let (verdict, late, ()) = tokio::join!(
        ask(&ledger, &second),
        complete(&ledger.database, &late),
        async {
            until_blocked(&ledger.database, 2).await;
            run(&mut first, "COMMIT").await;
        }
    );
    assert_eq!(word(&verdict), "conflict succeeded bob");
    assert!(late.is_none(), "{late:?}");

    // The late answer is under way when a settlement comes.
    let (call, attempt) = ledger.in_doubt(&worker).await;
    run(&mut first, "BEGIN").await;
    let rows = [succeeded(call, attempt)];
    let ended = Complete.run(&mut first, &rows, Locks::Wait).await;
    assert!(ended.unwrap()[0].is_some());
    let settlement = not_applied(call);
    let (verdict, ()) = tokio::join!(ask(&ledger, &settlement), async {
        until_blocked(&ledger.database, 1).await;
        run(&mut first, "COMMIT").await;
    });
    assert_eq!(word(&verdict), "conflict succeeded test");

    // The doubt itself is under way: the settlement waits for it and then finds it.
    let (call, attempt) = ledger.running(&worker).await;
    run(&mut first, "BEGIN").await;
    let rows = [doubted(call, attempt)];
    let ended = Complete.run(&mut first, &rows, Locks::Wait).await;
    assert!(ended.unwrap()[0].is_some());
    let settlement = applied(call);
    let (verdict, ()) = tokio::join!(ask(&ledger, &settlement), async {
        until_blocked(&ledger.database, 1).await;
        run(&mut first, "COMMIT").await;
    });
    assert_eq!(word(&verdict), "settled succeeded");

    // What was under way is taken back: then it never was.
    let (call, _) = ledger.in_doubt(&worker).await;
    run(&mut first, "BEGIN").await;
    sqlx::query(settle_sql)
        .bind(call.0)
        .execute(&mut first)
        .await
        .unwrap();
    let settlement = applied(call);
    let (verdict, ()) = tokio::join!(ask(&ledger, &settlement), async {
        until_blocked(&ledger.database, 1).await;
        run(&mut first, "ROLLBACK").await;
    });
    assert_eq!(word(&verdict), "settled succeeded");
}

async fn complete(database: &Database, rows: &[Ending]) -> Option<Moved> {
    let mut connection = database.connect().await;
    let ended = Complete.run(&mut connection, rows, Locks::Wait).await;
    ended.unwrap().remove(0)
}

#[tokio::test]
async fn a_role_may_be_given_the_functions_and_nothing_else() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, _) = ledger.in_doubt(&worker).await;
    let role = format!("operator_{}", Uuid::new_v4().simple());
    let mut connection = ledger.database.connect().await;
    for statement in [
        format!("CREATE ROLE {role}"),
        format!("GRANT USAGE ON SCHEMA toolfleet TO {role}"),
        format!("GRANT SELECT ON toolfleet.in_doubt TO {role}"),
        format!("SET ROLE {role}"),
    ] {
        // Made of names of this test.
        sqlx::query(AssertSqlSafe(statement))
            .execute(&mut connection)
            .await
            .unwrap();
    }
    let settle = "SELECT verdict FROM toolfleet.settle($1, 'applied', 'ann', 'n')";
    let cancel = "SELECT verdict FROM toolfleet.cancel($1, 'ann')";
    let denied = async |connection: &mut PgConnection, sql: &'static str| {
        let refused = sqlx::query(sql)
            .bind(call.0)
            .fetch_all(connection)
            .await
            .unwrap_err();
        assert_eq!(
            refused.as_database_error().unwrap().code().unwrap(),
            "42501",
            "{sql}"
        );
    };
    denied(&mut connection, settle).await;
    denied(&mut connection, cancel).await;
    denied(
        &mut connection,
        "SELECT FROM toolfleet.open_calls WHERE call_id = $1",
    )
    .await;
    run(&mut connection, "RESET ROLE").await;
    let grant = format!("GRANT EXECUTE ON FUNCTION toolfleet.settle, toolfleet.cancel TO {role}");
    sqlx::query(AssertSqlSafe(grant))
        .execute(&mut connection)
        .await
        .unwrap();
    sqlx::query(AssertSqlSafe(format!("SET ROLE {role}")))
        .execute(&mut connection)
        .await
        .unwrap();
    let fenced: bool =
        sqlx::query_scalar("SELECT worker_fenced FROM toolfleet.in_doubt WHERE call_id = $1")
            .bind(call.0)
            .fetch_one(&mut connection)
            .await
            .unwrap();
    assert!(fenced);
    for (sql, expected) in [(cancel, "in_doubt"), (settle, "settled")] {
        let verdict: String = sqlx::query_scalar(sql)
            .bind(call.0)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(verdict, expected);
    }
    denied(
        &mut connection,
        "DELETE FROM toolfleet.finished_calls WHERE call_id = $1",
    )
    .await;
    connection.close().await.unwrap();
}

#[tokio::test]
async fn a_thousand_settlements_and_late_answers_have_one_winner_each() {
    race(1000).await;
}

/// Races a settlement as not applied with the attempt's own late success, two connections for each call.
async fn race(calls: usize) {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let doubts = in_doubt(&ledger, &worker, calls).await;
    let pairs = 4;
    let racing = doubts.chunks(calls.div_ceil(pairs)).map(async |doubts| {
        let mut connection = ledger.database.connect().await;
        let complete = Complete;
        let mut settled = 0_usize;
        for (index, (call, attempt)) in doubts.iter().enumerate() {
            let settlement = not_applied(*call);
            let late = [succeeded(*call, *attempt)];
            let settling = ask(&ledger, &settlement);
            let completing = complete.run(&mut connection, &late, Locks::Wait);
            let (verdict, ended) = if index % 2 == 0 {
                tokio::join!(settling, completing)
            } else {
                let (ended, verdict) = tokio::join!(completing, settling);
                (verdict, ended)
            };
            let ended = ended.unwrap().remove(0);
            let state = ledger.state(*call).await;
            match (word(&verdict).as_str(), ended.map(|ended| ended.state)) {
                ("settled failed", None) => {
                    assert_eq!(state, State::Failed);
                    settled += 1;
                }
                ("conflict succeeded test", Some(State::Succeeded)) => {
                    assert_eq!(state, State::Succeeded);
                }
                other => panic!("{call} has no one winner: {other:?}"),
            }
        }
        settled
    });
    let settled: usize = join_all(racing).await.into_iter().sum();
    println!(
        "{calls} races: settled {settled}, answered late {}",
        calls - settled
    );
    assert!(
        settled > 0 && settled < calls,
        "no race: {settled} of {calls}"
    );
    let open: i64 = sqlx::query_scalar("SELECT count(*) FROM toolfleet.open_calls")
        .fetch_one(&ledger.database.pool)
        .await
        .unwrap();
    assert_eq!(open, 0);
}

/// Calls in doubt whose attempts are over, and their time too.
async fn in_doubt(ledger: &Ledger, worker: &Worker, count: usize) -> Vec<(CallId, AttemptId)> {
    let calls = ledger.many_queued(count).await;
    let doubting = calls.into_iter().map(async |call| {
        let row = claim_of(call);
        let attempt = row.attempt_id;
        let row = ClaimRow {
            timeout_ms: 1,
            ..row
        };
        assert!(worker.claiming.claim(row).await.unwrap().is_some());
        ledger.ends(doubted(call, attempt)).await;
        (call, attempt)
    });
    join_all(doubting).await
}

fn abandoned(call: CallId) -> Settlement<'static> {
    Settlement {
        finding: SettledAs::Abandoned,
        ..not_applied(call)
    }
}

#[tokio::test]
async fn a_person_abandons_what_nobody_can_fence_and_nothing_else_of_it_changes() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let call = ledger.accepted(new_call()).await;
    let attempt = worker.claims(call).await;
    ledger.ends(lost(call, attempt)).await;
    let far = "UPDATE toolfleet.open_calls SET attempt_until = now() + interval '1 hour' WHERE call_id = $1";
    ledger.meddle(call, far).await;
    assert_eq!(says(&ledger, &abandoned(call)).await, "too_early");
    let past = "UPDATE toolfleet.open_calls SET attempt_until = now() - interval '1 second' WHERE call_id = $1";
    ledger.meddle(call, past).await;
    assert_eq!(says(&ledger, &not_applied(call)).await, "worker_not_fenced");
    // A result of what nobody knows, and a probe that gives up.
    let probe = CallId::generate();
    let asks = "UPDATE toolfleet.open_calls SET probe_id = $2 WHERE call_id = $1";
    sqlx::query(asks)
        .bind(call.0)
        .bind(probe.0)
        .execute(&ledger.database.pool)
        .await
        .unwrap();
    let by_probe = format!("probe {probe}");
    for wrong in [
        Settlement {
            result: Some(DONE),
            ..abandoned(call)
        },
        Settlement {
            actor: &by_probe,
            ..abandoned(call)
        },
        Settlement {
            note: " ",
            ..abandoned(call)
        },
    ] {
        let refused = settle::settle(&ledger.database.pool, &wrong).await;
        assert!(
            matches!(refused, Err(DecisionError::Invalid(_))),
            "{refused:?}"
        );
    }

    assert_eq!(says(&ledger, &abandoned(call)).await, "settled failed");
    assert_eq!(
        says(&ledger, &abandoned(call)).await,
        "settled before failed"
    );
    for other in [applied(call), not_applied(call)] {
        assert_eq!(says(&ledger, &other).await, "conflict failed ann");
    }
    let event = last_event(&ledger.database, call).await;
    assert_eq!(
        (
            &event["reason"],
            &event["details"]["settled_by"],
            &event["details"]["worker_fenced"]
        ),
        (&json!("settled_abandoned"), &json!("person"), &json!(false))
    );
    let listed: Vec<(String, String)> =
        sqlx::query_as("SELECT actor, note FROM toolfleet.abandoned WHERE call_id = $1")
            .bind(call.0)
            .fetch_all(&ledger.database.pool)
            .await
            .unwrap();
    assert_eq!(listed.len(), 1, "of attempt {attempt}");
}
