//! Dead, fenced, left: what is said of a worker that is gone, and that no claim slips past it.

use std::collections::BTreeMap;

use fleet::{
    call::State,
    ids::WorkerId,
    lease::LEASE,
    store::{
        StoreError,
        claim::{Claim, ClaimRow},
        lane::{Locks, Statement as _},
        session::Postgres,
        sweep,
        workers::{self, Evidence, Fence, Fenced, Leave},
    },
};
use sqlx::PgConnection;
use tokio::task::yield_now;

use crate::support::{
    Ledger, claim_of, doubted, ending, proven_gone, run, succeeded, until_blocked, worker_row,
};

const RACES: usize = 1_000;

#[tokio::test]
async fn of_a_thousand_races_between_a_fence_and_a_claim_none_leaves_a_call_behind() {
    let ledger = Ledger::fresh().await;
    let connect = async || ledger.database.postgres.connect().await.unwrap();
    let (mut claiming, mut fencing) = (connect().await, connect().await);
    let (mut claimed_first, mut fenced_first) = (0, 0);
    for race in 0..RACES {
        let row = worker_row();
        workers::register(&mut fencing, &row).await.unwrap();
        let call = ledger.queued().await;
        let claims: [ClaimRow; 1] = [claim_of(call)];
        let claim = Claim::new(row.worker_id);
        // Now one has a start, now the other.
        let (start, head_start) = (race % 4, (race / 4) % 4);
        let claims_it = async {
            for _ in 0..start {
                yield_now().await;
            }
            let claimed = claim.run(&mut claiming, &claims, Locks::Wait).await;
            claimed.unwrap()[0].is_some()
        };
        let fences_it = async {
            for _ in 0..head_start {
                yield_now().await;
            }
            assert_eq!(proven_gone(&mut fencing, row.worker_id).await, Fenced::Now);
            // Right after the fence: what is found now is all there will ever be.
            let lost = sweep::lost(&ledger.database.pool, false).await.unwrap();
            lost.into_iter()
                .map(|lost| (lost.call_id, lost.attempt_id))
                .collect::<Vec<_>>()
        };
        let (claimed, found) = tokio::join!(claims_it, fences_it);
        let expected = claimed.then_some((call, claims[0].attempt_id));
        assert_eq!(
            found,
            expected.into_iter().collect::<Vec<_>>(),
            "race {race}"
        );
        if claimed {
            claimed_first += 1;
            ledger.ends(doubted(call, claims[0].attempt_id)).await;
        } else {
            fenced_first += 1;
        }
        let again = [claim_of(ledger.queued().await)];
        let again = claim.run(&mut claiming, &again, Locks::Wait).await;
        assert!(
            again.unwrap()[0].is_none(),
            "a fenced worker claims nothing"
        );
    }
    assert!(
        claimed_first > 0 && fenced_first > 0,
        "{claimed_first} and {fenced_first}: no race"
    );
}

#[tokio::test]
async fn a_fence_waits_for_a_claim_under_way_and_a_claim_for_a_fence() {
    let mut ledger = Ledger::fresh().await;
    let (call, worker) = (ledger.queued().await, ledger.worker().await);
    let mut claiming = Postgres::connect(&ledger.database.postgres).await.unwrap();
    let mut fencing = ledger.database.connect().await;
    run(&mut claiming, "BEGIN").await;
    let claims = [claim_of(call)];
    let claimed = Claim::new(worker.id)
        .run(&mut claiming, &claims, Locks::Wait)
        .await;
    assert!(claimed.unwrap()[0].is_some());
    let committing = async {
        until_blocked(&ledger.database, 1).await;
        run(&mut claiming, "COMMIT").await;
    };
    let (fenced, ()) = tokio::join!(proven_gone(&mut fencing, worker.id), committing);
    assert_eq!(fenced, Fenced::Now);
    let lost = sweep::lost(&ledger.database.pool, false).await.unwrap();
    assert_eq!(lost.len(), 1);

    let (call, worker) = (ledger.queued().await, ledger.worker().await);
    run(&mut fencing, "BEGIN").await;
    assert_eq!(proven_gone(&mut fencing, worker.id).await, Fenced::Now);
    let committing = async {
        until_blocked(&ledger.database, 1).await;
        run(&mut fencing, "COMMIT").await;
    };
    let (claimed, ()) = tokio::join!(worker.tries(call), committing);
    assert!(claimed.is_none());
    assert_eq!(ledger.state(call).await, State::Queued);
}

#[tokio::test]
async fn somebodys_word_is_not_believed_of_a_worker_that_beats() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await.id;
    let mut connection = ledger.database.connect().await;
    assert_eq!(word(&mut connection, worker).await.unwrap(), Fenced::Alive);
    let state = "SELECT state::text FROM toolfleet.worker_processes WHERE worker_id = $1";
    let state: String = sqlx::query_scalar(state)
        .bind(worker.0)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(state, "live");
    let lease = i32::try_from(LEASE.as_secs()).unwrap();
    sqlx::query(
        "UPDATE toolfleet.worker_processes SET beat_at = now() - make_interval(secs => $2) WHERE worker_id = $1",
    )
    .bind(worker.0)
    .bind(f64::from(lease))
    .execute(&mut connection)
    .await
    .unwrap();
    assert_eq!(word(&mut connection, worker).await.unwrap(), Fenced::Now);
    assert_eq!(word(&mut connection, worker).await.unwrap(), Fenced::Before);
    assert!(
        !workers::beat(&mut connection, worker).await.unwrap(),
        "if it lives after all, it learns of it"
    );

    let dead = ledger.worker().await.id;
    let declared = workers::declare_dead(&ledger.database.pool, dead, 0).await;
    assert!(declared.unwrap());
    assert_eq!(word(&mut connection, dead).await.unwrap(), Fenced::Now);
    let unknown = WorkerId::generate();
    assert_eq!(
        word(&mut connection, unknown).await.unwrap(),
        Fenced::NotFound
    );
    for (by, note) in [("", "gone"), ("me", " ")] {
        let fence = Fence {
            by,
            note,
            ..fence_of(dead)
        };
        let refused = workers::fence(&mut connection, fence).await;
        assert!(
            matches!(refused, Err(StoreError::Refused { .. })),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn a_lock_that_was_taken_is_believed_of_a_worker_that_beat_a_moment_ago() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await.id;
    let mut connection = ledger.database.connect().await;
    assert!(workers::beat(&mut connection, worker).await.unwrap());
    assert_eq!(proven_gone(&mut connection, worker).await, Fenced::Now);
    let row: (String, String, String, bool) = sqlx::query_as(
        "SELECT ended_by, fenced_by, fence_note, fenced_at = ended_at FROM toolfleet.workers WHERE worker_id = $1",
    )
    .bind(worker.0)
    .fetch_one(&mut connection)
    .await
    .unwrap();
    let (ended_by, fenced_by, note, at_once) = row;
    assert_eq!(
        (
            ended_by.as_str(),
            fenced_by.as_str(),
            note.as_str(),
            at_once
        ),
        ("test", "test", "lock released", true)
    );
}

#[tokio::test]
async fn who_was_found_dead_stays_so_in_the_row_when_it_is_fenced() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await.id;
    let mut connection = ledger.database.connect().await;
    let declared = workers::declare_dead(&ledger.database.pool, worker, 0).await;
    assert!(declared.unwrap());
    assert_eq!(proven_gone(&mut connection, worker).await, Fenced::Now);
    let row: (String, String, bool) = sqlx::query_as(
        "SELECT ended_by, fenced_by, fenced_at > ended_at FROM toolfleet.workers WHERE worker_id = $1",
    )
    .bind(worker.0)
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(row, ("sweep: no heartbeat".into(), "test".into(), true));
}

#[tokio::test]
async fn a_worker_has_left_only_if_nothing_is_left_of_it() {
    let mut ledger = Ledger::fresh().await;
    let mut connection = ledger.database.connect().await;
    let mut is = BTreeMap::new();
    for (what, runs, clean, dead) in [
        ("in order", false, true, false),
        ("something lives", false, false, false),
        ("a call runs", true, true, false),
        ("a call runs, something lives", true, false, false),
        ("taken for dead, in order", false, true, true),
        ("taken for dead, something lives", false, false, true),
    ] {
        let worker = ledger.worker().await;
        if runs {
            ledger.running(&worker).await;
        }
        // What is over does not count.
        let (finished, attempt) = ledger.running(&worker).await;
        ledger.ends(succeeded(finished, attempt)).await;
        if dead {
            let declared = workers::declare_dead(&ledger.database.pool, worker.id, 0).await;
            assert!(declared.unwrap());
        } else {
            workers::drain(&mut connection, worker.id).await.unwrap();
        }
        let left = workers::leave(&mut connection, worker.id, clean)
            .await
            .unwrap();
        let again = workers::leave(&mut connection, worker.id, clean)
            .await
            .unwrap();
        assert_eq!(left, again, "{what}: repeated");
        is.insert(what, left);
    }
    let expected = BTreeMap::from([
        ("in order", Leave::Left),
        ("something lives", Leave::Dead),
        ("a call runs", Leave::Fenced),
        ("a call runs, something lives", Leave::Dead),
        ("taken for dead, in order", Leave::Fenced),
        ("taken for dead, something lives", Leave::Dead),
    ]);
    assert_eq!(is, expected);
    let unknown = workers::leave(&mut connection, WorkerId::generate(), true).await;
    assert_eq!(unknown.unwrap(), Leave::Dead);
}

#[tokio::test]
async fn who_has_left_is_not_fenced_and_who_was_fenced_does_not_leave() {
    let mut ledger = Ledger::fresh().await;
    let mut connection = ledger.database.connect().await;
    let (left, fenced) = (ledger.worker().await.id, ledger.worker().await.id);
    let leaves = workers::leave(&mut connection, left, true).await.unwrap();
    assert_eq!(leaves, Leave::Left);
    assert_eq!(proven_gone(&mut connection, left).await, Fenced::Left);
    assert_eq!(word(&mut connection, left).await.unwrap(), Fenced::Left);
    assert_eq!(proven_gone(&mut connection, fenced).await, Fenced::Now);
    let leaves = workers::leave(&mut connection, fenced, true).await.unwrap();
    assert_eq!(leaves, Leave::Fenced);
}

#[tokio::test]
async fn a_doubt_is_fenced_when_the_worker_that_lost_it_is_and_not_while_it_is_only_dead() {
    let mut ledger = Ledger::fresh().await;
    let mut connection = ledger.database.connect().await;
    let worker = ledger.worker().await;
    let (call, attempt) = ledger.running(&worker).await;
    let declared = workers::declare_dead(&ledger.database.pool, worker.id, 0).await;
    assert!(declared.unwrap());
    let mut lost = doubted(call, attempt);
    lost.attempt.as_mut().unwrap().has_stopped = false;
    ledger.ends(lost).await;
    let is_fenced = async |connection: &mut PgConnection| -> bool {
        sqlx::query_scalar("SELECT worker_fenced FROM toolfleet.in_doubt WHERE call_id = $1")
            .bind(call.0)
            .fetch_one(connection)
            .await
            .unwrap()
    };
    assert!(!is_fenced(&mut connection).await);
    assert_eq!(proven_gone(&mut connection, worker.id).await, Fenced::Now);
    assert!(is_fenced(&mut connection).await);
}

#[tokio::test]
async fn every_lost_call_is_found_in_one_pass_however_many_there_are() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let calls = ledger.many_queued(30).await;
    for call in &calls {
        worker.claims(*call).await;
    }
    assert_eq!(
        proven_gone(&mut ledger.database.connect().await, worker.id).await,
        Fenced::Now
    );
    let mut in_order = calls.clone();
    in_order.sort();
    let pool = &ledger.database.pool;
    let behind = |cursor| async move {
        let lost = sweep::lost_behind(pool, cursor, false).await.unwrap();
        lost.into_iter()
            .map(|lost| lost.call_id)
            .collect::<Vec<_>>()
    };
    assert_eq!(behind(None).await, in_order);
    assert_eq!(behind(Some(in_order[9])).await, in_order[10..]);
    assert!(behind(Some(in_order[29])).await.is_empty());
}

#[tokio::test]
async fn a_worker_is_remembered_while_a_doubt_may_depend_on_it() {
    let mut ledger = Ledger::fresh().await;
    let (needed, other) = (ledger.worker().await, ledger.worker().await);
    // Lost by one worker, tried again and in doubt by another.
    let call = ledger.queued().await;
    let first = needed.claims(call).await;
    let mut again = ending(
        call,
        fleet::store::complete::Guard::Attempt(first),
        crate::support::again(),
    );
    again.attempt.as_mut().unwrap().has_stopped = false;
    ledger.ends(again).await;
    let last = ledger.worker().await;
    ledger.ends(doubted(call, last.claims(call).await)).await;
    let mut connection = ledger.database.connect().await;
    for worker in [needed.id, other.id, last.id] {
        assert_eq!(proven_gone(&mut connection, worker).await, Fenced::Now);
    }
    run(
        &mut connection,
        "UPDATE toolfleet.worker_processes SET ended_at = now() - interval '10 days'",
    )
    .await;
    sweep::keep_partitions(&mut connection, Some(5))
        .await
        .unwrap();
    let left: Vec<uuid::Uuid> =
        sqlx::query_scalar("SELECT worker_id FROM toolfleet.worker_processes")
            .fetch_all(&mut connection)
            .await
            .unwrap();
    assert!(left.contains(&needed.id.0) && left.contains(&last.id.0));
    assert!(!left.contains(&other.id.0));
}

const fn fence_of(worker: WorkerId) -> Fence<'static> {
    Fence {
        worker,
        by: "anna",
        note: "the machine was taken to pieces",
        evidence: Evidence::Word,
    }
}

async fn word(connection: &mut PgConnection, worker: WorkerId) -> Result<Fenced, StoreError> {
    workers::fence(connection, fence_of(worker)).await
}
