//! Claiming: one worker, in time, alive; and the fence that a claim cannot slip past.

use std::{collections::HashSet, time::Instant};

use fleet::{
    call::State,
    ids::{AttemptId, CallId, WorkerId},
    store::{
        claim::{Claim, ClaimRow, read_back},
        lane::{Locks, Statement as _},
        ledger::Claiming,
        session::Postgres,
        sweep,
        workers::{self, Fenced, Leave},
    },
    taken_back::TakenBack,
};
use fleet_tests::wait;
use futures_util::future::join_all;
use tokio::task::JoinSet;

use crate::support::{
    Ledger, Worker, claim_of, doubted, holding, new_call, proven_gone, repeated, run, succeeded,
    until_blocked,
};

#[tokio::test]
async fn a_call_is_claimed_once_however_many_race_for_it() {
    let mut ledger = Ledger::fresh().await;
    let calls = ledger.many_queued(1_000).await;
    let (one, other) = (ledger.worker().await, ledger.worker().await);
    let backward: Vec<CallId> = calls.iter().rev().copied().collect();
    let (by_one, by_other) = tokio::join!(
        join_all(calls.iter().map(|call| one.tries(*call))),
        join_all(backward.iter().map(|call| other.tries(*call))),
    );
    let claimed: Vec<CallId> = by_one
        .iter()
        .chain(&by_other)
        .flatten()
        .map(|claimed| claimed.call_id)
        .collect();
    assert_eq!(claimed.len(), calls.len(), "each call is claimed once");
    assert_eq!(
        claimed.into_iter().collect::<HashSet<_>>(),
        calls.iter().copied().collect()
    );
    for (worker, claims) in [(&one, &by_one), (&other, &by_other)] {
        let mut connection = ledger.database.connect().await;
        let running: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM toolfleet.open_calls WHERE worker_id = $1 AND state = 'running'",
        )
        .bind(worker.id.0)
        .fetch_one(&mut connection)
        .await
        .unwrap();
        assert_eq!(
            running,
            i64::try_from(claims.iter().flatten().count()).unwrap()
        );
    }
}

#[tokio::test]
async fn a_call_is_claimed_neither_before_its_time_nor_after_its_deadline() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    for unfit in [
        "UPDATE toolfleet.open_calls SET not_before = now() + interval '1 minute' WHERE call_id = $1",
        "UPDATE toolfleet.open_calls SET deadline_at = now() - interval '1 second' WHERE call_id = $1",
        "UPDATE toolfleet.open_calls SET cancel_requested = true WHERE call_id = $1",
    ] {
        let call = ledger.queued().await;
        ledger.meddle(call, unfit).await;
        assert!(worker.tries(call).await.is_none(), "{unfit}");
        let row = ledger.find(call).await;
        assert_eq!((row.state(), row.rev), (State::Queued, 0), "{unfit}");
    }
}

#[tokio::test]
async fn an_attempt_ends_with_its_call() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let call = ledger.queued().await;
    ledger
        .meddle(
            call,
            "UPDATE toolfleet.open_calls SET deadline_at = now() + interval '5 seconds' WHERE call_id = $1",
        )
        .await;
    let claimed = worker.tries(call).await.unwrap();
    assert!((1..=5_000).contains(&claimed.timeout_ms), "{claimed:?}");
    assert!(claimed.remaining_ms <= 5_000, "{claimed:?}");
    let cut: bool = sqlx::query_scalar(
        "SELECT attempt_until = deadline_at FROM toolfleet.open_calls WHERE call_id = $1",
    )
    .bind(call.0)
    .fetch_one(&ledger.database.pool)
    .await
    .unwrap();
    assert!(cut);
}

#[tokio::test]
async fn a_worker_that_is_gone_claims_nothing() {
    let mut ledger = Ledger::fresh().await;
    let call = ledger.queued().await;
    let (left, dead) = (ledger.worker().await, ledger.worker().await);
    let mut connection = ledger.database.connect().await;
    let leaves = workers::leave(&mut connection, left.id, true).await;
    assert_eq!(leaves.unwrap(), Leave::Left);
    let declared = workers::declare_dead(&ledger.database.pool, dead.id, 0).await;
    assert!(declared.unwrap());
    let fenced = ledger.worker().await;
    assert_eq!(proven_gone(&mut connection, fenced.id).await, Fenced::Now);
    let unknown = WorkerId::generate();
    let unregistered = Worker {
        id: unknown,
        claiming: Claiming::start(unknown, &ledger.database.postgres, &mut ledger.lanes),
    };
    for worker in [left, dead, fenced, unregistered] {
        assert!(worker.tries(call).await.is_none());
    }
    let draining = ledger.worker().await;
    workers::drain(&mut connection, draining.id).await.unwrap();
    assert!(
        draining.tries(call).await.is_some(),
        "what it has already taken in hand may still be claimed"
    );
}

#[tokio::test]
async fn a_claim_waits_for_a_fence_and_then_sees_it() {
    let mut ledger = Ledger::fresh().await;
    let (call, worker) = (ledger.queued().await, ledger.worker().await);
    let mut fence = ledger.database.connect().await;
    run(&mut fence, "BEGIN").await;
    run_for(
        &mut fence,
        "SELECT FROM toolfleet.worker_processes WHERE worker_id = $1 FOR UPDATE",
        worker.id,
    )
    .await;
    run_for(
        &mut fence,
        "UPDATE toolfleet.worker_processes SET state = 'dead' WHERE worker_id = $1",
        worker.id,
    )
    .await;
    let fencing = async {
        until_blocked(&ledger.database, 1).await;
        run(&mut fence, "COMMIT").await;
    };
    let (claimed, ()) = tokio::join!(worker.tries(call), fencing);
    assert!(claimed.is_none());
    assert_eq!(ledger.state(call).await, State::Queued);
}

#[tokio::test]
async fn a_fence_waits_for_a_claim_and_the_sweep_then_finds_it() {
    let mut ledger = Ledger::fresh().await;
    let (call, worker) = (ledger.queued().await, ledger.worker().await);
    let mut claiming = Postgres::connect(&ledger.database.postgres).await.unwrap();
    run(&mut claiming, "BEGIN").await;
    let claim = Claim::new(worker.id);
    let rows: [ClaimRow; 1] = [claim_of(call)];
    let claimed = claim.run(&mut claiming, &rows, Locks::Wait).await.unwrap();
    assert!(claimed[0].is_some());
    let committing = async {
        until_blocked(&ledger.database, 1).await;
        run(&mut claiming, "COMMIT").await;
    };
    let pool = &ledger.database.pool;
    let (declared, ()) = tokio::join!(workers::declare_dead(pool, worker.id, 0), committing);
    assert!(declared.unwrap());
    let lost = sweep::lost(pool, true).await.unwrap();
    assert_eq!(lost.len(), 1);
    assert_eq!(
        (lost[0].call_id, lost[0].attempt_id),
        (call, rows[0].attempt_id)
    );
    assert_ne!(lost[0].why, TakenBack::AttemptOverdue);
}

#[tokio::test]
async fn fences_and_claims_at_full_speed_never_miss_each_other() {
    let mut ledger = Ledger::fresh().await;
    for _ in 0..30 {
        let worker = ledger.worker().await;
        let calls = ledger.many_queued(20).await;
        let pool = ledger.database.pool.clone();
        let id = worker.id;
        let mut racers = JoinSet::new();
        racers.spawn(async move {
            assert!(workers::declare_dead(&pool, id, 0).await.unwrap());
            // What the fence found right after it is all there will ever be.
            let found = sweep::lost(&pool, true).await.unwrap();
            found
                .into_iter()
                .map(|lost| lost.call_id)
                .collect::<HashSet<_>>()
        });
        let claimed = join_all(calls.iter().map(|call| worker.tries(*call))).await;
        let claimed: HashSet<CallId> = claimed.iter().flatten().map(|c| c.call_id).collect();
        let found = racers.join_next().await.unwrap().unwrap();
        assert_eq!(
            claimed,
            found
                .intersection(&calls.into_iter().collect())
                .copied()
                .collect()
        );
    }
}

#[tokio::test]
async fn a_claim_stays_on_its_page() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let calls = ledger.many_queued(500).await;
    let claimed = join_all(calls.iter().map(|call| worker.tries(*call))).await;
    assert_eq!(claimed.iter().flatten().count(), 500);
    // A backend reports its counts when it ends.
    ledger.lanes.shutdown().await;
    let (updates, hot): (i64, i64) = wait::until("the counts of the claims", async || {
        let counts: (i64, i64) = sqlx::query_as(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = 'toolfleet.open_calls'::regclass",
        )
        .fetch_one(&ledger.database.pool)
        .await
        .unwrap();
        (counts.0 > 0).then_some(counts)
    })
    .await;
    assert_eq!((updates, hot), (500, 500));
}

#[tokio::test]
async fn a_locked_call_does_not_hold_up_its_neighbours() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let calls = ledger.many_queued(50).await;
    let holder = holding(&ledger.database, calls[20]).await;
    let began = Instant::now();
    let claimed = join_all(calls.iter().map(|call| worker.tries(*call))).await;
    let took = began.elapsed();
    for (call, claimed) in calls.iter().zip(&claimed) {
        assert_eq!(claimed.is_some(), *call != calls[20]);
    }
    assert!(took < Postgres::LOCK_TIMEOUT * 3, "{took:?}");
    drop(holder);
    assert_eq!(ledger.state(calls[20]).await, State::Queued);
}

#[tokio::test]
async fn attempts_are_counted_and_lost_ones_remembered() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, first) = ledger.running(&worker).await;
    ledger.ends(repeated(call, first)).await;
    let mut lost = repeated(call, worker.claims(call).await);
    lost.kind = fleet::store::complete::EndingKind::Again {
        pause_ms: 0,
        cost: fleet::store::complete::AttemptCost::Lost,
    };
    ledger.ends(lost).await;
    let claimed = worker.tries(call).await.unwrap();
    assert_eq!((claimed.attempt, claimed.unspent_attempts), (3, 1));
}

#[tokio::test]
async fn nothing_but_a_queued_call_is_claimed() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (running, _) = ledger.running(&worker).await;
    let (in_doubt, _) = ledger.in_doubt(&worker).await;
    let (finished, attempt) = ledger.running(&worker).await;
    ledger.ends(succeeded(finished, attempt)).await;
    for call in [running, in_doubt, finished, CallId::generate()] {
        assert!(worker.tries(call).await.is_none());
    }
    let (late, attempt) = ledger.running(&worker).await;
    ledger.ends(doubted(late, attempt)).await;
    ledger.ends(succeeded(late, attempt)).await;
    assert!(worker.tries(late).await.is_none());
}

#[tokio::test]
async fn a_claim_carries_what_the_caller_sent_along() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let mut call = new_call();
    call.session = Some("session".parse().unwrap());
    call.run = Some("run".parse().unwrap());
    call.meta = Some("{\"a\": 1.50}".into());
    call.trace.traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into());
    call.trace.tracestate = Some("v=1".into());
    call.trace.baggage = Some("b=2".into());
    ledger.accepted(call.clone()).await;
    let claimed = worker.tries(call.call_id).await.unwrap();
    assert_eq!(
        (claimed.session, claimed.run, claimed.meta),
        (call.session, call.run, call.meta)
    );
    assert_eq!(
        (claimed.trace, claimed.dispatcher),
        (call.trace, call.dispatcher)
    );
    assert_eq!((claimed.tenant, claimed.effect), (call.tenant, call.effect));
    assert_eq!(claimed.args_hash, call.args_hash);
    assert_eq!(claimed.attempt, 1);
    let attempt: Option<AttemptId> = ledger.find(call.call_id).await.attempt_id();
    assert!(attempt.is_some());
}

#[tokio::test]
async fn a_process_finds_what_runs_under_its_own_attempts_and_who_is_to_stop() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (runs, stops) = (ledger.running(&worker).await, ledger.running(&worker).await);
    let (doubtful, over) = (
        ledger.in_doubt(&worker).await,
        ledger.running(&worker).await,
    );
    ledger.ends(succeeded(over.0, over.1)).await;
    let moved = ledger.running(&worker).await;
    ledger.ends(repeated(moved.0, moved.1)).await;
    worker.claims(moved.0).await;
    let never = (ledger.queued().await, AttemptId::generate());
    let asked = "SELECT toolfleet.cancel($1, 'test')";
    ledger.meddle(stops.0, asked).await;

    let claimed = [runs, stops, doubtful, over, moved, never];
    let rows = workers::own_rows(&ledger.database.pool, &claimed).await;
    let mut rows: Vec<_> = rows
        .unwrap()
        .iter()
        .map(|row| (row.call_id, row.attempt_id, row.cancel_requested))
        .collect();
    rows.sort_unstable();
    assert_eq!(rows, [(runs.0, runs.1, false), (stops.0, stops.1, true)]);

    // So does a claim whose answer was lost.
    let mut connection = ledger.database.connect().await;
    for ((call, attempt), stop) in [(runs, false), (stops, true)] {
        let claimed = read_back(&mut connection, call, attempt).await.unwrap();
        assert_eq!(claimed.unwrap().cancel_requested, stop);
    }
}

async fn run_for(connection: &mut sqlx::PgConnection, sql: &'static str, worker: WorkerId) {
    sqlx::query(sql)
        .bind(worker.0)
        .execute(connection)
        .await
        .unwrap();
}
