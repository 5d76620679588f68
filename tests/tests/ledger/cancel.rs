//! Cancelling: what waits never runs, what runs is marked, and a claim and a cancel exclude each other.

use fleet::{
    call::{Effect, State},
    ids::{CallId, Label},
    outcome::OutcomeWord,
    store::{
        DecisionError,
        accept::NewCall,
        cancel::{self, CancelVerdict, Cancellation},
        claim::Claim,
        complete::{Complete, Guard},
        lane::{Locks, Statement},
        settle::{self, SettledAs, Settlement},
    },
    wire::cancel::CancelResult,
};
use fleet_tests::wait;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{
    Ledger, Worker, again, claim_of, ending, holding, new_call, repeated, run, succeeded, tenant,
    until_blocked,
};

fn wish(call: CallId) -> Cancellation<'static> {
    Cancellation {
        call,
        tenant: None,
        actor: "ann",
        reason: Some("not wanted"),
    }
}

async fn ask(ledger: &Ledger, cancellation: &Cancellation<'_>) -> Option<CancelVerdict> {
    cancel::cancel(&ledger.database.pool, cancellation)
        .await
        .unwrap()
}

/// What becomes of a call that ann takes back, and where it stands then.
async fn says(ledger: &Ledger, call: CallId) -> (CancelResult, State) {
    let verdict = ask(ledger, &wish(call)).await.expect("the call exists");
    assert_eq!(verdict.state, ledger.state(call).await);
    (verdict.result, verdict.state)
}

async fn events(ledger: &Ledger, call: CallId) -> Vec<Value> {
    let rows: Vec<String> = sqlx::query_scalar(
        "SELECT row_to_json(e)::text FROM toolfleet.call_events e WHERE call_id = $1 ORDER BY revision",
    )
    .bind(call.0)
    .fetch_all(&ledger.database.pool)
    .await
    .unwrap();
    rows.iter()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect()
}

#[tokio::test]
async fn what_waits_is_cancelled_and_never_claimed() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    for (effect, known) in [(Effect::Once, "not_applied"), (Effect::Read, "none")] {
        let new = NewCall {
            effect,
            ..new_call()
        };
        let dispatcher = new.dispatcher;
        let call = ledger.accepted(new).await;
        let verdict = ask(&ledger, &wish(call)).await.unwrap();
        let expected = CancelVerdict {
            result: CancelResult::Cancelled,
            state: State::Cancelled,
            worker: None,
            dispatcher: Some(dispatcher),
        };
        assert_eq!(verdict, expected);
        assert!(worker.tries(call).await.is_none());
        let envelope = ledger.find(call).await.envelope(false).unwrap().unwrap();
        let error = envelope.error.unwrap();
        assert_eq!(
            (
                error.code.as_str(),
                envelope.effect.as_str(),
                envelope.outcome.as_str()
            ),
            ("cancelled", known, "system_error")
        );
        let events = events(&ledger, call).await;
        assert_eq!(events.len(), 2, "{events:?}");
        assert_eq!(
            (&events[1]["actor"], &events[1]["details"]),
            (
                &json!("ann"),
                &json!({"reason": "not wanted", "role": ledger.database.user()})
            )
        );
        // A second wish changes nothing.
        assert_eq!(
            says(&ledger, call).await,
            (CancelResult::AlreadyTerminal, State::Cancelled)
        );
    }
}

#[tokio::test]
async fn what_runs_is_marked_once_and_goes_on() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, attempt) = ledger.running(&worker).await;
    for _ in 0..2 {
        let verdict = ask(&ledger, &wish(call)).await.unwrap();
        assert_eq!(
            (verdict.result, verdict.state, verdict.worker),
            (
                CancelResult::CancelRequested,
                State::Running,
                Some(worker.id)
            )
        );
    }
    let seen = events(&ledger, call).await;
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert_eq!(
        (
            &seen[2]["from_state"],
            &seen[2]["to_state"],
            &seen[2]["reason"]
        ),
        (
            &json!("running"),
            &json!("running"),
            &json!("cancel_requested")
        )
    );
    // It is never queued again; how it ends is the attempt's.
    let again = repeated(call, attempt);
    let refused = ledger.completing.complete(&again, wait::LONG).await;
    assert!(refused.unwrap().is_none());
    ledger.ends(succeeded(call, attempt)).await;
    let seen = events(&ledger, call).await;
    assert_eq!(
        (seen.len(), &seen[3]["revision"]),
        (4, &json!(3)),
        "{seen:?}"
    );
    assert_eq!(
        says(&ledger, call).await,
        (CancelResult::AlreadyTerminal, State::Succeeded)
    );
}

#[tokio::test]
async fn what_may_have_had_its_effect_is_in_doubt_and_not_cancelled() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    for (effect, word, expected) in [
        (
            Effect::Idempotent,
            OutcomeWord::Unknown,
            CancelResult::InDoubt,
        ),
        (
            Effect::Idempotent,
            OutcomeWord::DefiniteFailure,
            CancelResult::Cancelled,
        ),
        (
            Effect::Once,
            OutcomeWord::NotStarted,
            CancelResult::Cancelled,
        ),
        (Effect::Read, OutcomeWord::Unknown, CancelResult::Cancelled),
    ] {
        let call = ledger
            .accepted(NewCall {
                effect,
                ..new_call()
            })
            .await;
        let attempt = worker.claims(call).await;
        let mut ended = ending(call, Guard::Attempt(attempt), again());
        ended.attempt.as_mut().unwrap().outcome = word;
        ledger.ends(ended).await;
        let (result, state) = says(&ledger, call).await;
        assert_eq!(result, expected, "{effect} {word}");
        assert_eq!(state.as_str(), result.as_str());
        if result == CancelResult::InDoubt {
            assert_eq!(
                says(&ledger, call).await,
                (CancelResult::InDoubt, State::InDoubt)
            );
            let seen = events(&ledger, call).await;
            let last = seen.last().unwrap();
            assert_eq!(
                (seen.len(), &last["reason"], &last["to_state"]),
                (4, &json!("cancelled"), &json!("in_doubt"))
            );
            let doubt = ledger.find(call).await.envelope(false).unwrap().unwrap();
            assert_eq!(doubt.error.unwrap().code.as_str(), "in_doubt");
            // And can be settled like any other.
            let settlement = Settlement {
                call,
                tenant: None,
                finding: SettledAs::Applied,
                actor: "ann",
                note: "seen",
                result: None,
                by_time_only: false,
            };
            let settled = settle::settle(&ledger.database.pool, &settlement)
                .await
                .unwrap();
            assert!(matches!(
                settled,
                settle::Verdict::Settled { tell: Some(_), .. }
            ));
        }
    }
}

#[tokio::test]
async fn a_call_of_somebody_else_is_not_found() {
    let ledger = Ledger::fresh().await;
    let call = ledger.queued().await;
    let (stranger, own): (Label, Label) = ("stranger".parse().unwrap(), tenant());
    let foreign = Cancellation {
        tenant: Some(&stranger),
        ..wish(call)
    };
    assert_eq!(ask(&ledger, &foreign).await, None);
    assert_eq!(ask(&ledger, &wish(CallId::generate())).await, None);
    let nobody = Cancellation {
        actor: " ",
        ..wish(call)
    };
    let refused = cancel::cancel(&ledger.database.pool, &nobody).await;
    assert!(
        matches!(refused, Err(DecisionError::Invalid(_))),
        "{refused:?}"
    );
    assert_eq!(ledger.state(call).await, State::Queued);
    let allowed = Cancellation {
        tenant: Some(&own),
        ..wish(call)
    };
    assert!(ask(&ledger, &allowed).await.is_some());
    assert_eq!(ask(&ledger, &foreign).await, None, "nor once it is over");
}

#[tokio::test]
async fn of_a_claim_and_a_cancel_that_come_at_once_the_first_wins() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;

    // The claim is under way.
    let call = ledger.queued().await;
    let mut first = ledger.database.connect().await;
    run(&mut first, "BEGIN").await;
    let rows = [claim_of(call)];
    let claimed = Claim::new(worker.id)
        .run(&mut first, &rows, Locks::Wait)
        .await;
    assert!(claimed.unwrap()[0].is_some());
    let (wanted, ()) = tokio::join!(says(&ledger, call), async {
        until_blocked(&ledger.database, 1).await;
        run(&mut first, "COMMIT").await;
    });
    assert_eq!(wanted, (CancelResult::CancelRequested, State::Running));

    // The cancel is under way.
    let call = ledger.queued().await;
    run(&mut first, "BEGIN").await;
    sqlx::query("SELECT FROM toolfleet.cancel($1, 'ann')")
        .bind(call.0)
        .execute(&mut first)
        .await
        .unwrap();
    let (claimed, ()) = tokio::join!(worker.tries(call), async {
        until_blocked(&ledger.database, 1).await;
        run(&mut first, "COMMIT").await;
    });
    assert!(claimed.is_none());
    assert_eq!(ledger.state(call).await, State::Cancelled);

    // The end of the attempt is under way; then its next attempt, which is then not made.
    let (call, attempt) = ledger.running(&worker).await;
    run(&mut first, "BEGIN").await;
    let rows = [succeeded(call, attempt)];
    let ended = Complete.run(&mut first, &rows, Locks::Wait).await;
    assert!(ended.unwrap()[0].is_some());
    let (wanted, ()) = tokio::join!(says(&ledger, call), async {
        until_blocked(&ledger.database, 1).await;
        run(&mut first, "COMMIT").await;
    });
    assert_eq!(wanted, (CancelResult::AlreadyTerminal, State::Succeeded));
    let (call, attempt) = ledger.running(&worker).await;
    run(&mut first, "BEGIN").await;
    let rows = [repeated(call, attempt)];
    let ended = Complete.run(&mut first, &rows, Locks::Wait).await;
    assert!(ended.unwrap()[0].is_some());
    let (wanted, ()) = tokio::join!(says(&ledger, call), async {
        until_blocked(&ledger.database, 1).await;
        run(&mut first, "COMMIT").await;
    });
    assert_eq!(wanted, (CancelResult::Cancelled, State::Cancelled));
}

#[tokio::test]
async fn a_row_that_somebody_keeps_is_no_answer() {
    let ledger = Ledger::fresh().await;
    let call = ledger.queued().await;
    let keeper = holding(&ledger.database, call).await;
    let answer = cancel::cancel(&ledger.database.pool, &wish(call)).await;
    assert!(matches!(answer, Err(DecisionError::Store(_))), "{answer:?}");
    drop(keeper);
    assert_eq!(ledger.state(call).await, State::Queued);
}

#[tokio::test]
async fn a_cancel_and_a_claim_have_one_winner() {
    race(2000).await;
}

#[tokio::test]
#[ignore = "slow: ten thousand races"]
async fn ten_thousand_cancels_and_claims_have_one_winner_each() {
    race(10_000).await;
}

/// Races a cancel with a claim, two connections for each call.
async fn race(calls: usize) {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let queued = ledger.many_queued(calls).await;
    let pairs = 4;
    let racing = queued
        .chunks(calls.div_ceil(pairs))
        .map(|queued| race_each(&ledger, &worker, queued));
    let cancelled: usize = join_all(racing).await.into_iter().sum();
    println!(
        "{calls} races: cancelled {cancelled}, claimed {}",
        calls - cancelled
    );
    assert!(
        cancelled > 0 && cancelled < calls,
        "no race: {cancelled} of {calls}"
    );
    let (over, claimed, running): (i64, i64, i64) = sqlx::query_as(
        "SELECT count(*) FILTER (WHERE state = 'cancelled'), \
                count(*) FILTER (WHERE state = 'cancelled' AND attempts > 0), \
                count(*) FILTER (WHERE state = 'running' AND cancel_requested) FROM toolfleet.calls",
    )
    .fetch_one(&ledger.database.pool)
    .await
    .unwrap();
    let count = |n: usize| i64::try_from(n).unwrap();
    assert_eq!(
        (over, claimed, running),
        (count(cancelled), 0, count(calls - cancelled))
    );
}

async fn race_each(ledger: &Ledger, worker: &Worker, calls: &[CallId]) -> usize {
    let mut connection = ledger.database.connect().await;
    let claim = Claim::new(worker.id);
    let mut cancelled = 0;
    for (index, call) in calls.iter().enumerate() {
        let (wish, rows) = (wish(*call), [claim_of(*call)]);
        let cancelling = ask(ledger, &wish);
        let claiming = claim.run(&mut connection, &rows, Locks::Wait);
        let (verdict, claimed) = if index % 2 == 0 {
            tokio::join!(cancelling, claiming)
        } else {
            let (claimed, verdict) = tokio::join!(claiming, cancelling);
            (verdict, claimed)
        };
        let claimed = claimed.unwrap().remove(0);
        match (verdict.unwrap().result, claimed) {
            (CancelResult::Cancelled, None) => cancelled += 1,
            (CancelResult::CancelRequested, Some(_)) => {}
            other => panic!("{call} has no one winner: {other:?}"),
        }
    }
    cancelled
}
