//! What the sweep reads: each call that is due once, each that waits or has expired, each without a worker.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use fleet::{
    call::{Language, Priority, State},
    ids::{CallId, Label},
    store::{
        accept::NewCall,
        expiry, figures,
        hot_tables::{self, HotTable},
        renumber,
        rights::Duty,
        session::Postgres,
        sweep::{self, OVERDUE_AFTER_MS, Publishable, STEP_ROWS},
        walk::{self, LOST_AFTER_MS, Worth},
        workers,
    },
    taken_back::TakenBack,
    wire::pointer::Pointer,
};

use fleet_tests::wait::until;
use sqlx::{Connection as _, PgPool};

use crate::support::{Ledger, again, doubted, ending, new_call, repeated, run, succeeded};

#[tokio::test]
async fn what_is_due_is_handed_out_once() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let mut due = HashSet::new();
    for _ in 0..100 {
        let (call, attempt) = ledger.running(&worker).await;
        ledger.ends(repeated(call, attempt)).await;
        due.insert(call);
    }
    let other = ledger.database.postgres.pool(4);
    let takers = (0..8).map(|index| {
        let pool = if index % 2 == 0 {
            &ledger.database.pool
        } else {
            &other
        };
        take_due(pool)
    });
    let taken = futures_util::future::join_all(takers).await;
    let taken: Vec<CallId> = taken
        .into_iter()
        .flatten()
        .map(|taken| {
            assert_eq!(taken.n, 2, "a new attempt has a new subject");
            taken.pointer.call_id
        })
        .collect();
    assert_eq!(taken.len(), 100, "each once");
    assert_eq!(taken.into_iter().collect::<HashSet<_>>(), due);
    assert!(take_due(&other).await.is_empty());
}

#[tokio::test]
async fn what_is_not_yet_due_stays() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, attempt) = ledger.running(&worker).await;
    let mut later = repeated(call, attempt);
    later.kind = fleet::store::complete::EndingKind::Again {
        pause_ms: 60_000,
        cost: fleet::store::complete::AttemptCost::Spent,
    };
    ledger.ends(later).await;
    assert!(take_due(&ledger.database.pool).await.is_empty());
}

#[tokio::test]
async fn a_call_handed_out_and_then_forgotten_is_found_by_its_age() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, attempt) = ledger.running(&worker).await;
    ledger.ends(repeated(call, attempt)).await;
    assert_eq!(take_due(&ledger.database.pool).await.len(), 1);
    // It was not published.
    assert!(walk(&ledger).await.waiting.is_empty(), "it may still come");
    ledger
        .meddle(
            call,
            "UPDATE toolfleet.open_calls SET accepted_at = accepted_at - interval '1 hour', \
             not_before = now() - interval '1 hour' WHERE call_id = $1",
        )
        .await;
    assert_eq!(walk(&ledger).await.waiting, [call]);
    let step = walk::step(&ledger.database.pool, None, &Worth::all()).await;
    let waited = step.unwrap().waiting[0].waited.as_millis();
    assert!(waited > LOST_AFTER_MS.unsigned_abs().into(), "{waited}");
}

#[tokio::test]
async fn the_walk_finds_what_waits_and_what_has_expired_and_comes_round() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let steps = usize::try_from(STEP_ROWS).unwrap();
    let calls = ledger.many_queued(2 * steps + 10).await;
    let mut in_order = calls.clone();
    in_order.sort_unstable();
    // One in each step, and the last one.
    let (waiting, expired) = ([0, steps + 1, 2 * steps + 9], [1, steps, 2 * steps]);
    for index in waiting {
        age(&ledger, in_order[index], LOST_AFTER_MS + 1).await;
    }
    for index in expired {
        expire(&ledger, in_order[index]).await;
    }
    let running = worker.claims(in_order[2]).await;
    expire(&ledger, in_order[2]).await;
    worker.claims(in_order[3]).await;
    age(&ledger, in_order[3], 10 * LOST_AFTER_MS).await;
    let fresh = LOST_AFTER_MS - 2_000;
    age(&ledger, in_order[4], fresh).await;
    ledger
        .meddle(
            in_order[5],
            "UPDATE toolfleet.open_calls SET held = true WHERE call_id = $1",
        )
        .await;
    age(&ledger, in_order[5], 10 * LOST_AFTER_MS).await;

    let seen = walk(&ledger).await;
    assert_eq!(seen.waiting, waiting.map(|index| in_order[index]));
    assert_eq!(seen.expired, expired.map(|index| in_order[index]));
    assert_eq!(seen.steps, 3);
    ledger.ends(doubted(in_order[2], running)).await;
    assert_eq!(walk(&ledger).await, seen, "the next round sees the same");
}

#[tokio::test]
async fn a_look_at_calls_tells_what_is_over_from_what_is_not_yet() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let calls = ledger.many_queued(6).await;
    let late = "UPDATE toolfleet.open_calls SET queue_until = now() - interval '1 second' WHERE call_id = $1";
    expire(&ledger, calls[0]).await;
    ledger.meddle(calls[1], late).await;
    // Its first attempt has started in time.
    ledger.meddle(calls[2], late).await;
    let started = "UPDATE toolfleet.open_calls SET attempts = 1, deadline_at = now() + interval '20 seconds' \
                   WHERE call_id = $1";
    ledger.meddle(calls[2], started).await;
    // What runs is its worker's to end.
    worker.claims(calls[3]).await;
    expire(&ledger, calls[3]).await;
    let attempt = worker.claims(calls[4]).await;
    ledger.ends(succeeded(calls[4], attempt)).await;
    let held =
        "UPDATE toolfleet.open_calls SET held = true, deadline_at = now() WHERE call_id = $1";
    ledger.meddle(calls[5], held).await;

    let look = expiry::look(&ledger.database.pool, &calls).await.unwrap();
    let expired = look.expired.iter();
    let expired: HashSet<_> = expired.map(|e| (e.call_id, e.waited_too_long)).collect();
    let over = [(calls[0], false), (calls[1], true), (calls[5], false)];
    assert_eq!(expired, over.into_iter().collect());
    let left: HashMap<_, _> = look.left.into_iter().collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!((1..=20).contains(&left[&calls[2]].as_secs()), "{left:?}");
    assert!(left[&calls[3]] < Duration::from_secs(1), "{left:?}");
}

#[tokio::test]
async fn the_walk_says_what_is_over_soon() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let calls = ledger.many_queued(4).await;
    let until = "UPDATE toolfleet.open_calls SET deadline_at = now() + interval '50 seconds' WHERE call_id = $1";
    ledger.meddle(calls[0], until).await;
    let held = "UPDATE toolfleet.open_calls SET held = true, queue_until = now() + interval '30 seconds' \
                WHERE call_id = $1";
    ledger.meddle(calls[1], held).await;
    let later = "UPDATE toolfleet.open_calls SET deadline_at = now() + interval '5 minutes' WHERE call_id = $1";
    ledger.meddle(calls[2], later).await;
    worker.claims(calls[3]).await;
    ledger.meddle(calls[3], until).await;
    let step = walk::step(&ledger.database.pool, None, &Worth::all()).await;
    let soon: HashMap<_, _> = step.unwrap().soon.into_iter().collect();
    assert_eq!(soon.len(), 2, "{soon:?}");
    assert!((20..=50).contains(&soon[&calls[0]].as_secs()), "{soon:?}");
    assert!((1..=30).contains(&soon[&calls[1]].as_secs()), "{soon:?}");
}

#[tokio::test]
async fn an_expired_call_whose_last_attempt_is_unknown_says_so() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let mut expected = Vec::new();
    for outcome in [None, Some("unknown"), Some("not_started")] {
        let call = ledger.queued().await;
        if let Some(outcome) = outcome {
            let attempt = worker.claims(call).await;
            let mut again = ending(
                call,
                fleet::store::complete::Guard::Attempt(attempt),
                again(),
            );
            again.attempt.as_mut().unwrap().outcome = outcome.parse().unwrap();
            ledger.ends(again).await;
        }
        expire(&ledger, call).await;
        expected.push((call, outcome == Some("unknown")));
    }
    let step = walk::step(&ledger.database.pool, None, &Worth::all())
        .await
        .unwrap();
    let seen: Vec<_> = step
        .expired
        .iter()
        .map(|e| (e.call_id, e.unknown))
        .collect();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_running_call_without_a_live_worker_is_lost() {
    let mut ledger = Ledger::fresh().await;
    let (live, dead, left) = (
        ledger.worker().await,
        ledger.worker().await,
        ledger.worker().await,
    );
    let gone = ledger.worker().await;
    ledger.running(&live).await;
    let mut lost = Vec::new();
    for worker in [&dead, &left, &gone] {
        lost.push(ledger.running(worker).await);
    }
    let (finished, attempt) = ledger.running(&dead).await;
    ledger.ends(succeeded(finished, attempt)).await;
    ledger.in_doubt(&dead).await;
    let pool = &ledger.database.pool;
    assert!(sweep::lost(pool, true).await.unwrap().is_empty());

    let mut connection = ledger.database.connect().await;
    assert!(workers::declare_dead(pool, dead.id, 0).await.unwrap());
    // It does not say that it has left while a call of its runs; if it did, the call would be found all the same.
    sqlx::query("UPDATE toolfleet.worker_processes SET state = 'left' WHERE worker_id = $1")
        .bind(left.id.0)
        .execute(&mut connection)
        .await
        .unwrap();
    sqlx::query("DELETE FROM toolfleet.worker_processes WHERE worker_id = $1")
        .bind(gone.id.0)
        .execute(&mut connection)
        .await
        .unwrap();
    let found = sweep::lost(pool, true).await.unwrap();
    let found: HashSet<_> = found
        .iter()
        .map(|found| {
            assert_ne!(found.why, TakenBack::AttemptOverdue);
            (found.call_id, found.attempt_id)
        })
        .collect();
    assert_eq!(found, lost.into_iter().collect());
}

#[tokio::test]
async fn an_attempt_long_overdue_is_lost_although_its_worker_lives() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, attempt) = ledger.running(&worker).await;
    let (late, _) = ledger.running(&worker).await;
    for (call, by) in [
        (call, OVERDUE_AFTER_MS + 1_000),
        (late, OVERDUE_AFTER_MS - 10_000),
    ] {
        sqlx::query(
            "UPDATE toolfleet.open_calls SET attempt_until = now() - make_interval(secs => $2 / 1000.0) WHERE call_id = $1",
        )
        .bind(call.0)
        .bind(by)
        .execute(&ledger.database.pool)
        .await
        .unwrap();
    }
    let found = sweep::lost(&ledger.database.pool, true).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].call_id, found[0].attempt_id), (call, attempt));
    assert_eq!(found[0].why, TakenBack::AttemptOverdue);
}

#[tokio::test]
async fn a_worker_that_beat_meanwhile_is_not_declared_dead() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let pool = &ledger.database.pool;
    let mut connection = ledger.database.connect().await;
    assert_eq!(workers::heartbeats(pool).await.unwrap(), [(worker.id, 0)]);
    assert!(workers::beat(&mut connection, worker.id).await.unwrap());
    assert!(!workers::declare_dead(pool, worker.id, 0).await.unwrap());
    assert!(workers::declare_dead(pool, worker.id, 1).await.unwrap());
    assert!(
        !workers::beat(&mut connection, worker.id).await.unwrap(),
        "it learns of it"
    );
    assert!(
        !workers::declare_dead(pool, worker.id, 1).await.unwrap(),
        "once"
    );
    assert!(workers::heartbeats(pool).await.unwrap().is_empty());
}

#[tokio::test]
async fn small_arguments_travel_with_the_pointer_and_large_ones_do_not() {
    let ledger = Ledger::fresh().await;
    let of = |bytes: usize| format!("\"{}\"", "é".repeat((bytes - 2) / 2));
    let fits = of(Pointer::ARGS_INLINE_MAX);
    let exceeds = of(Pointer::ARGS_INLINE_MAX + 2);
    for args in [&fits, &exceeds] {
        let call = ledger
            .accepted(NewCall {
                args: args.clone(),
                ..new_call()
            })
            .await;
        age(&ledger, call, 2 * LOST_AFTER_MS).await;
    }
    let step = walk::step(&ledger.database.pool, None, &Worth::all())
        .await
        .unwrap();
    let carried: Vec<Option<&str>> = step
        .waiting
        .iter()
        .map(|one| one.call.pointer.args.as_deref().map(|raw| raw.get()))
        .collect();
    assert_eq!(carried, [Some(fits.as_str()), None]);
}

#[tokio::test]
async fn a_pointer_published_again_carries_what_the_gate_decides_by() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let new = NewCall {
        language: Language::Zh,
        priority: Priority::Low,
        ..new_call()
    };
    let call = ledger.accepted(new).await;
    let attempt = worker.claims(call).await;
    ledger.ends(repeated(call, attempt)).await;
    let rev = ledger.find(call).await.rev;
    let pool = &ledger.database.pool;
    let due = take_due(pool).await;
    let renumbered = renumber::renumber(pool, &[(call, 2)]).await.unwrap();
    age(&ledger, call, 2 * LOST_AFTER_MS).await;
    let step = walk::step(pool, None, &Worth::all()).await.unwrap();
    let waiting = step.waiting.into_iter().map(|one| one.call);
    let published: Vec<Publishable> = due.into_iter().chain(renumbered).chain(waiting).collect();
    assert_eq!(published.len(), 3);
    for Publishable { pointer, .. } in published {
        let tenant = pointer.tenant.as_ref().map(Label::as_str);
        assert_eq!(tenant, Some("tenant"));
        assert_eq!(pointer.language, Some(Language::Zh));
        assert_eq!(pointer.priority, Some(Priority::Low));
        assert_eq!(pointer.rev, Some(rev));
    }
}

#[tokio::test]
async fn a_call_that_waits_gets_one_new_number_whoever_finds_it() {
    let ledger = Ledger::fresh().await;
    let calls = ledger.many_queued(50).await;
    let stranded: Vec<(CallId, i32)> = calls.iter().map(|call| (*call, 1)).collect();
    let backwards: Vec<(CallId, i32)> = stranded.iter().rev().copied().collect();
    let other = ledger.database.postgres.pool(4);
    let finders = (0..8).map(|index| {
        let found = if index % 2 == 0 {
            &stranded
        } else {
            &backwards
        };
        renumber::renumber(&other, found)
    });
    let renumbered = futures_util::future::join_all(finders).await;
    let renumbered: Vec<Publishable> = renumbered.into_iter().flat_map(Result::unwrap).collect();
    assert!(renumbered.iter().all(|call| call.n == 2));
    assert!(renumbered.iter().all(|call| call.pointer.args.is_some()));
    assert_eq!(renumbered.len(), 50, "each once");
    let ids: HashSet<CallId> = renumbered.iter().map(|call| call.pointer.call_id).collect();
    assert_eq!(ids, calls.iter().copied().collect());
    assert_eq!(ledger.find(calls[0]).await.rev, 0, "it is no move");
    assert!(
        renumber::renumber(&other, &stranded)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn a_call_that_does_not_wait_under_that_number_keeps_it() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let [waits, held, pauses, moved] = ledger.many_queued(4).await[..] else {
        panic!("four calls")
    };
    let (running, attempt) = ledger.running(&worker).await;
    let (over, ended) = ledger.running(&worker).await;
    ledger.ends(succeeded(over, ended)).await;
    let (again, repeats) = ledger.running(&worker).await;
    ledger.ends(repeated(again, repeats)).await;
    for (call, change) in [
        (
            held,
            "UPDATE toolfleet.open_calls SET held = true WHERE call_id = $1",
        ),
        (
            pauses,
            "UPDATE toolfleet.open_calls SET due_at = now() + interval '1 minute' WHERE call_id = $1",
        ),
        (
            moved,
            "UPDATE toolfleet.open_calls SET publish_n = 2 WHERE call_id = $1",
        ),
    ] {
        ledger.meddle(call, change).await;
    }
    let unknown = CallId::generate();
    let all = [waits, held, pauses, moved, running, over, again, unknown];
    let stranded = all.map(|call| (call, 1));
    let pool = &ledger.database.pool;
    let renumbered = renumber::renumber(pool, &stranded).await.unwrap();
    let [one] = renumbered.as_slice() else {
        panic!("{renumbered:?}")
    };
    assert_eq!((one.pointer.call_id, one.n), (waits, 2));
    // What had its pointer after all ends as ever.
    ledger.ends(succeeded(running, attempt)).await;
    // A claim takes the call, whichever pointer brought it.
    worker.claims(waits).await;
    assert!(worker.tries(waits).await.is_none());
}

/// Takes what is due while there is room for all of it.
async fn take_due(pool: &PgPool) -> Vec<Publishable> {
    let room = [("default".parse().unwrap(), usize::MAX)];
    let due = sweep::take_due(pool, &room).await.unwrap();
    assert_eq!(due.held, 0);
    due.publish
}

/// What one whole round of the walk saw.
#[derive(Debug, PartialEq, Eq)]
struct Round {
    waiting: Vec<CallId>,
    expired: Vec<CallId>,
    steps: usize,
}

async fn walk(ledger: &Ledger) -> Round {
    let mut round = Round {
        waiting: Vec::new(),
        expired: Vec::new(),
        steps: 0,
    };
    let mut cursor = None;
    loop {
        let step = walk::step(&ledger.database.pool, cursor, &Worth::all())
            .await
            .unwrap();
        round.steps += 1;
        round
            .waiting
            .extend(step.waiting.iter().map(|one| one.call.pointer.call_id));
        round
            .expired
            .extend(step.expired.iter().map(|one| one.call_id));
        cursor = step.cursor;
        if cursor.is_none() {
            return round;
        }
    }
}

async fn age(ledger: &Ledger, call: CallId, by_ms: i64) {
    sqlx::query(
        "UPDATE toolfleet.open_calls SET accepted_at = now() - make_interval(secs => $2 / 1000.0), \
         not_before = now() - make_interval(secs => $2 / 1000.0) WHERE call_id = $1",
    )
    .bind(call.0)
    .bind(by_ms)
    .execute(&ledger.database.pool)
    .await
    .unwrap();
}

async fn expire(ledger: &Ledger, call: CallId) {
    ledger
        .meddle(call, "UPDATE toolfleet.open_calls SET deadline_at = now() - interval '1 second' WHERE call_id = $1")
        .await;
}

#[tokio::test]
async fn what_workers_put_back_has_waited_since_it_was_accepted() {
    let ledger = Ledger::fresh().await;
    let calls = ledger.many_queued(2).await;
    let accepted = "UPDATE toolfleet.open_calls SET accepted_at = now() - interval '600 seconds', \
                    not_before = now() + interval '2 seconds', due_at = now() + interval '2 seconds' WHERE call_id = $1";
    // The pause before another attempt.
    ledger.meddle(calls[0], accepted).await;
    let ages = async || {
        let figures = figures::figures(&ledger.database.pool).await.unwrap();
        let ages = figures.oldest_age.iter().map(|(_, age)| age.as_secs());
        ages.max()
    };
    assert!(ages().await.unwrap() < 300);
    let lacking =
        "UPDATE toolfleet.open_calls SET obstacle = '{\"lack\": \"secret\"}' WHERE call_id = $1";
    ledger.meddle(calls[0], lacking).await;
    assert!(ages().await.unwrap() >= 600);
}

#[tokio::test]
async fn figures_are_told_queue_by_queue_and_add_up() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    ledger.running(&worker).await;
    let calls = ledger.many_queued(3).await;
    let moved = "UPDATE toolfleet.open_calls SET queue = 'slow' WHERE call_id = $1";
    ledger.meddle(calls[0], moved).await;
    age(&ledger, calls[0], 600_000).await;
    let figures = figures::figures(&ledger.database.pool).await.unwrap();
    let of = |queue: &str| {
        let queue = &figures.queues[queue];
        let calls: Vec<_> = queue
            .calls
            .iter()
            .map(|(state, n)| (state.as_str(), *n))
            .collect();
        (calls, queue.oldest_age.unwrap().as_secs() >= 600)
    };
    assert_eq!(of("default"), (vec![("queued", 2), ("running", 1)], false));
    assert_eq!(of("slow"), (vec![("queued", 1)], true));
    assert!(figures.queues["default"].slots > 0 && figures.queues["slow"].slots == 0);
    let mut backlog = figures.backlog.clone();
    backlog.sort_unstable_by_key(|(state, _)| state.as_str());
    assert_eq!(backlog, [(State::Queued, 3), (State::Running, 1)]);
    let oldest = figures.oldest_age.iter().map(|(_, age)| age.as_secs());
    assert!(oldest.max().unwrap() >= 600);
}

/// The hot tables that this role may vacuum, and that have too many dead rows.
async fn dirty(pool: &PgPool) -> Vec<HotTable> {
    let mut tables = hot_tables::look(pool).await.unwrap();
    tables.retain(HotTable::is_dirty);
    tables
}

#[tokio::test]
async fn a_hot_table_is_vacuumed_when_it_has_more_dead_rows_than_it_may() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    assert!(dirty(pool).await.is_empty());
    let mut session = ledger.database.connect().await;
    for statement in [
        "ALTER TABLE toolfleet.open_counts SET (autovacuum_enabled = off)",
        "INSERT INTO toolfleet.open_counts SELECT 'tenant' || n, 1, 0 FROM generate_series(1, 500) n",
        "DELETE FROM toolfleet.open_counts",
    ] {
        run(&mut session, statement).await;
    }
    // What a session has done is counted when it ends, at the latest.
    session.close().await.unwrap();
    let found = until("the dead rows to be counted", async || {
        let found = dirty(pool).await;
        (!found.is_empty()).then_some(found)
    })
    .await;
    let [counts] = found[..] else {
        panic!("{found:?}");
    };
    // A role that may not vacuum it is not sent to try.
    ledger.database.grant_roles().await;
    let url = ledger.database.url_of(Duty::Dispatcher.role());
    let dispatcher = Postgres::new(&url.into(), "toolfleet").unwrap();
    let may: bool =
        sqlx::query_scalar("SELECT current_setting('server_version_num')::integer >= 170000")
            .fetch_one(pool)
            .await
            .unwrap();
    let seen = dirty(&dispatcher.pool_for_reading(1)).await;
    assert_eq!(!seen.is_empty(), may, "{seen:?}");
    let mut reader = ledger.database.connect().await;
    run(&mut reader, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    run(&mut reader, "SELECT 1").await;
    let mut session = ledger.database.connect().await;
    for statement in [
        "INSERT INTO toolfleet.open_counts SELECT 'tenant' || n, 1, 0 FROM generate_series(1, 500) n",
        "DELETE FROM toolfleet.open_counts",
    ] {
        run(&mut session, statement).await;
    }
    session.close().await.unwrap();
    let mut upkeep = ledger.database.connect().await;
    let left = hot_tables::vacuum(&mut upkeep, &counts).await.unwrap();
    assert_eq!(left, 500, "what the reader may still see");
    run(&mut reader, "COMMIT").await;
    let left = hot_tables::vacuum(&mut upkeep, &counts).await.unwrap();
    assert_eq!(left, 0);
    until("no dead row to be left", async || {
        dirty(pool).await.is_empty().then_some(())
    })
    .await;
}
