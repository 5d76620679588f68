//! Claims: which calls start at once, which have to wait with their message, and which go back into their line.

use std::time::Duration;

use fleet::{
    ids::CallId,
    modes::InterceptMode,
    store::{
        claim::ClaimRow,
        complete::Guard,
        lane::{Locks, Statement as _},
        limited::{ClaimLimited, Limited},
        starts,
    },
};
use futures_util::future::join_all;
use serde_json::json;

use super::{
    Scene, applied, call_of,
    model::{Numbers, keeps},
    numbers,
};
use crate::support::{again, claim_of, ending, enforced, run, succeeded};

/// The answer in a word.
fn word(said: Option<&Limited>) -> &'static str {
    match said {
        Some(Limited::Claimed { .. }) => "starts",
        Some(Limited::StartsIn(_)) => "later",
        Some(Limited::NoStart) => "no_start",
        Some(Limited::NoSlot) => "no_place",
        Some(Limited::Busy) => "busy",
        Some(Limited::Forbidden) => "forbidden",
        None => "not_ours",
    }
}

/// Claims all of them in one statement.
async fn together(scene: &Scene, calls: &[CallId], locks: Locks) -> Vec<Option<Limited>> {
    let rows: Vec<ClaimRow> = calls.iter().map(|call| claim_of(*call)).collect();
    let statement = ClaimLimited::new(scene.worker.id);
    let mut connection = scene.ledger.database.connect().await;
    statement
        .run(&mut connection, &enforced(&rows), locks)
        .await
        .unwrap()
}

async fn many(scene: &Scene, count: usize) -> Vec<CallId> {
    let accepting = (0..count).map(|_| scene.released());
    let mut calls = join_all(accepting.collect::<Vec<_>>()).await;
    calls.sort_unstable();
    calls
}

const RATE_AT: &str = "SELECT (extract(epoch FROM rate_at - clock_timestamp()) * 1000)::float8 FROM toolfleet.open_calls WHERE call_id = $1";
const NOT_BEFORE: &str = "SELECT (extract(epoch FROM not_before - clock_timestamp()) * 1000)::float8 FROM toolfleet.open_calls WHERE call_id = $1";

#[tokio::test]
async fn a_burst_starts_at_once_half_a_second_waits_with_its_message_and_the_rest_in_its_line() {
    let scene = Scene::with(json!({"calls": 10, "per": "1s", "burst": 2})).await;
    let calls = many(&scene, 10).await;
    let said = together(&scene, &calls, Locks::Skip).await;
    let words: Vec<&str> = said.iter().map(|said| word(said.as_ref())).collect();
    assert_eq!(
        words,
        [
            "starts", "starts", "later", "later", "later", "later", "later", "no_start",
            "no_start", "no_start"
        ]
    );
    let mut after = Duration::ZERO;
    for (said, call) in said.iter().zip(&calls) {
        match said {
            Some(Limited::StartsIn(wait)) => {
                after += Duration::from_millis(100);
                // The time that the test took is gone from it.
                assert!(
                    *wait <= after && *wait + Duration::from_millis(90) > after,
                    "{wait:?} {after:?}"
                );
                let (rate_at, not_before) = (
                    scene.ms_until(*call, RATE_AT).await.unwrap(),
                    scene.ms_until(*call, NOT_BEFORE).await.unwrap(),
                );
                assert!(
                    (rate_at - not_before).abs() < 60.0,
                    "{rate_at} {not_before}"
                );
                assert!(!scene.ledger.is_held(*call).await);
            }
            Some(Limited::NoStart) => {
                assert!(scene.ledger.is_held(*call).await, "it is released again");
                assert_eq!(scene.ms_until(*call, RATE_AT).await, None);
            }
            _claimed => assert_eq!(scene.ms_until(*call, RATE_AT).await, None),
        }
        // None of them has spent an attempt but those that run.
        let row = scene.ledger.find(*call).await;
        let runs = matches!(said, Some(Limited::Claimed { .. }));
        assert_eq!(row.attempts, i32::from(runs));
    }
    // A message that comes too early takes nothing.
    let later = "UPDATE toolfleet.open_calls SET rate_at = rate_at + interval '1 h', not_before = rate_at + interval '1 h' WHERE call_id = $1";
    scene.ledger.meddle(calls[2], later).await;
    assert_eq!(word(scene.claim(calls[2]).await.as_ref()), "not_ours");
    let given = "SELECT given FROM toolfleet.rate_buckets";
    let given: i64 = sqlx::query_scalar(given)
        .fetch_one(&scene.ledger.database.pool)
        .await
        .unwrap();
    assert_eq!(given, 7, "what is too far away takes no start time");
}

#[tokio::test]
async fn who_comes_with_its_start_time_takes_no_second_one_and_who_comes_too_late_takes_a_new_one()
{
    let scene = Scene::with(json!({"calls": 10, "per": "1s"})).await;
    let calls = many(&scene, 6).await;
    let said = together(&scene, &calls, Locks::Wait).await;
    assert_eq!(word(said[5].as_ref()), "later");
    scene.passes(500).await;
    let used = scene.claim(calls[1]).await;
    let Some(Limited::Claimed { claimed, .. }) = used else {
        panic!("{used:?}");
    };
    assert_eq!(claimed.attempt, 1);
    assert_eq!(
        scene.ms_until(calls[1], RATE_AT).await,
        None,
        "each attempt takes its own"
    );
    // Half a second later the others are not used, and a second after that they are void.
    scene.passes(1_600).await;
    let said = together(&scene, &calls[2..], Locks::Wait).await;
    let words: Vec<&str> = said.iter().map(|said| word(said.as_ref())).collect();
    assert_eq!(
        words,
        ["starts", "later", "later", "later"],
        "they do not all start at once"
    );
}

#[tokio::test]
async fn each_attempt_takes_a_start_time_and_a_call_that_ends_before_gives_none_back() {
    let scene = Scene::with(json!({"calls": 1, "per": "10s", "burst": 3})).await;
    let call = scene.released().await;
    let mut attempts = Vec::new();
    for _ in 0..2 {
        let row = claim_of(call);
        attempts.push(row.attempt_id);
        let said = scene
            .worker
            .claiming
            .claim_limited(row, InterceptMode::Enforce)
            .await
            .unwrap();
        assert_eq!(word(said.as_ref()), "starts");
        let attempt = attempts[attempts.len() - 1];
        scene
            .ledger
            .ends(ending(call, Guard::Attempt(attempt), again()))
            .await;
        // Its pause is over.
        scene
            .does("UPDATE toolfleet.open_calls SET due_at = NULL, not_before = now()")
            .await;
    }
    let row = claim_of(call);
    let third = row.attempt_id;
    let said = scene
        .worker
        .claiming
        .claim_limited(row, InterceptMode::Enforce)
        .await
        .unwrap();
    assert_eq!(word(said.as_ref()), "starts");
    scene.ledger.ends(succeeded(call, third)).await;
    let said = scene.claim(scene.released().await).await;
    assert_eq!(word(said.as_ref()), "no_start");
}

#[tokio::test]
async fn a_locked_bucket_delays_its_own_calls_only_and_takes_them_for_neither_free_nor_late() {
    let scene = Scene::with(json!({"calls": 100, "per": "1s", "burst": 10})).await;
    let connection = &mut scene.ledger.database.connect().await;
    applied(
        connection,
        "other",
        1,
        &json!({"rate_limit": {"calls": 100, "per": "1s"}, "concurrency": 3}),
    )
    .await;
    let first = scene.released().await;
    assert_eq!(word(scene.claim(first).await.as_ref()), "starts");
    let mut holder = scene.ledger.database.connect().await;
    run(&mut holder, "BEGIN").await;
    run(&mut holder, "SELECT FROM toolfleet.rate_buckets FOR UPDATE").await;
    let calls = [
        scene.released().await,
        scene.released_of("other", "tenant").await,
    ];
    let said = together(&scene, &calls, Locks::Skip).await;
    let words: Vec<&str> = said.iter().map(|said| word(said.as_ref())).collect();
    assert_eq!(words, ["busy", "starts"]);
    assert!(!scene.ledger.is_held(calls[0]).await);
    assert_eq!(scene.ms_until(calls[0], RATE_AT).await, None);
    run(&mut holder, "ROLLBACK").await;
    assert_eq!(word(scene.claim(calls[0]).await.as_ref()), "starts");
}

#[tokio::test]
async fn a_place_is_taken_by_who_starts_and_by_nobody_who_waits() {
    let scene = Scene::with(json!({"calls": 10, "per": "1s"})).await;
    let connection = &mut scene.ledger.database.connect().await;
    applied(
        connection,
        "tool",
        2,
        &json!({"rate_limit": {"calls": 10, "per": "1s"}, "concurrency": 2}),
    )
    .await;
    let calls = many(&scene, 4).await;
    let said = together(&scene, &calls, Locks::Wait).await;
    let words: Vec<&str> = said.iter().map(|said| word(said.as_ref())).collect();
    assert_eq!(words, ["starts", "later", "no_place", "no_place"]);
    let taken: i64 = sqlx::query_scalar("SELECT count(*) FROM toolfleet.slots")
        .fetch_one(&scene.ledger.database.pool)
        .await
        .unwrap();
    assert_eq!(taken, 1, "a place for the one that runs");
    scene.passes(500).await;
    let late = scene.claim(calls[1]).await;
    assert!(
        matches!(
            late,
            Some(Limited::Claimed {
                took_place: true,
                ..
            })
        ),
        "{late:?}"
    );
}

#[tokio::test]
async fn a_limit_that_observes_counts_and_one_that_is_off_does_not() {
    let scene = Scene::with(json!({"calls": 1, "per": "1h"})).await;
    let given = async || -> i64 {
        sqlx::query_scalar("SELECT coalesce(sum(given), 0)::bigint FROM toolfleet.rate_buckets")
            .fetch_one(&scene.ledger.database.pool)
            .await
            .unwrap()
    };
    for (mode, was_observed, taken) in [
        (InterceptMode::Off, false, 0),
        (InterceptMode::Observe, false, 1),
        (InterceptMode::Observe, true, 1),
        (InterceptMode::Off, false, 1),
    ] {
        let row = claim_of(scene.released().await);
        let said = scene.worker.claiming.claim_limited(row, mode).await;
        let Some(Limited::Claimed { is_observed, .. }) = said.unwrap() else {
            panic!("{mode:?} lets nobody wait");
        };
        assert_eq!(
            (is_observed, given().await),
            (was_observed, taken),
            "{mode:?}"
        );
    }
    let said = scene.claim(scene.released().await).await;
    assert_eq!(word(said.as_ref()), "no_start");
}

#[tokio::test]
async fn tenants_have_each_their_own_and_tools_that_share_have_one_together() {
    let scene = Scene::with(json!({"calls": 1, "per": "1h", "by": "tenant"})).await;
    for tenant in ["a", "b", "c"] {
        let first = scene.released_of("tool", tenant).await;
        assert_eq!(
            word(scene.claim(first).await.as_ref()),
            "starts",
            "{tenant}"
        );
        let second = scene.released_of("tool", tenant).await;
        assert_eq!(
            word(scene.claim(second).await.as_ref()),
            "no_start",
            "{tenant}"
        );
    }
    let connection = &mut scene.ledger.database.connect().await;
    for tool in ["one", "two"] {
        applied(
            connection,
            tool,
            1,
            &json!({"rate_limit": {"share": "bank"}}),
        )
        .await;
    }
    // Nobody has said how many may start: then none may.
    let call = scene.released_of("one", "a").await;
    assert_eq!(word(scene.claim(call).await.as_ref()), "no_start");
    numbers(
        connection,
        "bank",
        &json!({"calls": 1, "per_ms": 3_600_000, "burst": 3}),
    )
    .await;
    let mut words = Vec::new();
    for (tool, tenant) in [
        ("one", "a"),
        ("two", "b"),
        ("one", "b"),
        ("two", "a"),
        ("one", "a"),
    ] {
        let call = scene.released_of(tool, tenant).await;
        words.push(word(scene.claim(call).await.as_ref()));
    }
    assert_eq!(
        words,
        ["starts", "starts", "starts", "no_start", "no_start"]
    );
}

#[tokio::test]
async fn new_numbers_hold_for_the_bucket_that_is_there() {
    let scene = Scene::with(json!({"calls": 1, "per": "1h"})).await;
    let connection = &mut scene.ledger.database.connect().await;
    let says = async |expected: &str| {
        let call = scene.released().await;
        assert_eq!(word(scene.claim(call).await.as_ref()), expected);
    };
    says("starts").await;
    says("no_start").await;
    // A burst of three at once, of which one is used.
    applied(
        connection,
        "tool",
        2,
        &json!({"rate_limit": {"calls": 1, "per": "1h", "burst": 3}}),
    )
    .await;
    for expected in ["starts", "starts", "no_start"] {
        says(expected).await;
    }
    // Faster: it is not used up for three hours, only until the next step.
    numbers(connection, "tool", &json!({"calls": 1, "per_ms": 60_000})).await;
    says("no_start").await;
    scene.passes(62_000).await;
    says("starts").await;
    // Taken away: the numbers of the newest version hold.
    sqlx::query(
        "SELECT toolfleet.unset_control('test', 'over', kind => 'limit', subject => 'tool')",
    )
    .execute(&mut *connection)
    .await
    .unwrap();
    says("starts").await;
    // A version without a limit asks no bucket.
    applied(connection, "tool", 3, &json!({})).await;
    for _ in 0..5 {
        says("starts").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_of_three_workers_keep_the_rate_together() {
    let mut scene = Scene::with(json!({"calls": 200, "per": "1s", "burst": 4})).await;
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(scene.ledger.worker().await);
    }
    let calls = many(&scene, 240).await;
    let scene = &scene;
    let claiming = workers
        .iter()
        .zip(calls.chunks(80))
        .map(|(worker, calls)| async move {
            let (mut at_once, mut later) = (0, Vec::new());
            for calls in calls.chunks(7) {
                let rows = calls.iter().map(|call| claim_of(*call));
                let said = join_all(
                    rows.map(|row| worker.claiming.claim_limited(row, InterceptMode::Enforce)),
                )
                .await;
                for (call, said) in calls.iter().zip(said) {
                    match said.unwrap() {
                        Some(Limited::Claimed { .. }) => at_once += 1,
                        Some(Limited::StartsIn(_)) => later.push(*call),
                        _none => {}
                    }
                }
            }
            (at_once, later)
        });
    let (mut at_once, mut later) = (0, Vec::new());
    for (of_one, calls) in join_all(claiming).await {
        at_once += of_one;
        later.extend(calls);
    }
    println!(
        "{at_once} of {} calls started at once, {} have a start time",
        calls.len(),
        later.len()
    );
    let pool = &scene.ledger.database.pool;
    let given = "SELECT given FROM toolfleet.rate_buckets";
    let given: i64 = sqlx::query_scalar(given).fetch_one(pool).await.unwrap();
    let asked = i64::try_from(at_once + later.len()).unwrap();
    assert_eq!(asked, given, "each has taken one");
    assert!(given >= 100, "{given}");
    let later: Vec<_> = later.iter().map(|call| call.0).collect();
    let mut starts: Vec<i64> = sqlx::query_scalar(
        "SELECT (extract(epoch FROM rate_at - '2020-01-01Z'::timestamptz) * 1000000)::bigint \
         FROM toolfleet.open_calls WHERE call_id = ANY($1)",
    )
    .bind(later)
    .fetch_all(pool)
    .await
    .unwrap();
    let numbers = Numbers {
        step: 5_000,
        burst: 4,
    };
    keeps(&mut starts, numbers).unwrap();
}

#[tokio::test]
async fn a_tool_without_a_rate_asks_no_bucket() {
    let scene = Scene::with(json!({"calls": 1, "per": "1s"})).await;
    let connection = &mut scene.ledger.database.connect().await;
    applied(connection, "plain", 1, &json!({"concurrency": 2})).await;
    let calls = [
        scene.ledger.accepted(call_of("plain", "a")).await,
        scene.ledger.accepted(call_of("unknown", "a")).await,
    ];
    let said = together(&scene, &calls, Locks::Skip).await;
    let words: Vec<&str> = said.iter().map(|said| word(said.as_ref())).collect();
    assert_eq!(words, ["starts", "starts"]);
    assert_eq!(scene.does("DELETE FROM toolfleet.rate_buckets").await, 0);
}

#[tokio::test]
async fn a_start_time_from_the_door_counts_for_a_second_and_for_the_first_attempt() {
    let scene = Scene::with(json!({"calls": 1, "per": "1h", "burst": 2})).await;
    let connection = &mut scene.ledger.database.connect().await;
    let limit = json!({"rate_limit": {"calls": 1, "per": "1h", "burst": 2}, "on_limit": "refuse"});
    applied(connection, "refusing", 1, &limit).await;
    let (pool, tool) = (&scene.ledger.database.pool, "refusing".parse().unwrap());
    let tenant = "tenant".parse().unwrap();
    let take = async |calls| {
        let wanted = [starts::Wanted {
            tool: &tool,
            key: None,
            calls,
        }];
        starts::take(pool, &tenant, &wanted).await.unwrap()[0]
    };
    let taken = take(3).await;
    assert_eq!(taken.calls, 2, "those that may start now");
    assert!(
        taken.next > Duration::from_secs(3_500) && taken.next <= Duration::from_secs(3_600),
        "{taken:?}"
    );
    assert_eq!(take(1).await.calls, 0);
    let [used, late] = [
        scene.released_of("refusing", "tenant").await,
        scene.released_of("refusing", "tenant").await,
    ];
    let row = claim_of(used);
    let attempt = row.attempt_id;
    let said = scene
        .worker
        .claiming
        .claim_limited(row, InterceptMode::Enforce)
        .await
        .unwrap();
    assert_eq!(word(said.as_ref()), "starts", "without another one");
    // Its next attempt takes its own, of which none is free.
    scene
        .ledger
        .ends(ending(used, Guard::Attempt(attempt), again()))
        .await;
    scene
        .does("UPDATE toolfleet.open_calls SET due_at = NULL, not_before = now()")
        .await;
    assert_eq!(word(scene.claim(used).await.as_ref()), "no_start");
    // A worker comes too late for the other.
    scene
        .does("UPDATE toolfleet.open_calls SET accepted_at = accepted_at - interval '2 s'")
        .await;
    assert_eq!(word(scene.claim(late).await.as_ref()), "no_start");
    // A tool whose newest version has no limit refuses nothing.
    applied(connection, "refusing", 2, &json!({})).await;
    assert_eq!(take(7).await.calls, 7);
}

#[tokio::test]
async fn where_no_start_is_free_the_door_waits_for_no_lock_and_says_when_one_is() {
    let scene = Scene::with(json!({"calls": 1, "per": "1h"})).await;
    let connection = &mut scene.ledger.database.connect().await;
    let limit = json!({"rate_limit": {"calls": 1, "per": "1h"}, "on_limit": "refuse"});
    applied(connection, "refusing", 1, &limit).await;
    let shared = json!({"rate_limit": {"share": "bank"}, "on_limit": "refuse"});
    applied(connection, "unset", 1, &shared).await;
    let (pool, tenant) = (&scene.ledger.database.pool, "tenant".parse().unwrap());
    let take = async |tool: &str| {
        let tool = tool.parse().unwrap();
        let wanted = [starts::Wanted {
            tool: &tool,
            key: None,
            calls: 1,
        }];
        starts::take(pool, &tenant, &wanted).await.unwrap()[0]
    };
    assert_eq!(take("refusing").await.calls, 1);
    let mut holding = pool.begin().await.unwrap();
    sqlx::query("SELECT FROM toolfleet.rate_buckets FOR UPDATE")
        .execute(&mut *holding)
        .await
        .unwrap();
    let refused = take("refusing").await;
    assert_eq!(refused.calls, 0);
    assert!(refused.next > Duration::from_secs(3_500), "{refused:?}");
    let never = take("unset").await;
    assert_eq!((never.calls, never.next), (0, Duration::from_secs(60)));
}

#[tokio::test]
async fn a_probe_takes_a_start_time_for_it_came_through_no_door() {
    let scene = Scene::with(json!({"calls": 1, "per": "1h"})).await;
    let connection = &mut scene.ledger.database.connect().await;
    let limit = json!({"rate_limit": {"calls": 1, "per": "1h"}, "on_limit": "refuse"});
    applied(connection, "asked", 1, &limit).await;
    let mut words = Vec::new();
    for _ in 0..3 {
        let probe = scene.released_of("asked", "tenant").await;
        scene
            .does("UPDATE toolfleet.open_calls SET probe_of = call_id WHERE tool = 'asked' AND state = 'queued'")
            .await;
        words.push(word(scene.claim(probe).await.as_ref()));
    }
    assert_eq!(words, ["starts", "no_start", "no_start"]);
}
