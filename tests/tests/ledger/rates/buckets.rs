//! The function that hands out start times against a model of one bucket, alone and from many sessions at once.

use futures_util::future::join_all;
use serde_json::json;
use sqlx::{Connection as _, PgConnection, Row as _};

use super::{
    Scene, applied,
    model::{AHEAD, Bucket, Given, Numbers, keeps},
    numbers,
};
use crate::{
    differential::{Dice, seed},
    support::{Ledger, run},
};

const SEQUENCES: usize = 2_000;
const STEPS: usize = 12;

/// What the function says, in microseconds since 2020.
struct Said {
    verdict: String,
    given: Given,
    at: i64,
}

async fn take(
    connection: &mut PgConnection,
    name: &str,
    numbers: Numbers,
    (wanted, within): (i64, i64),
    waits: bool,
) -> Said {
    let us = |column: &str| {
        format!("(extract(epoch FROM {column} - '2020-01-01Z'::timestamptz) * 1000000)::bigint")
    };
    let sql = format!(
        "SELECT verdict, given, {}, {}, {} FROM toolfleet.take_starts('tool', $1, 'x', $2, $3, $4, $5, $6)",
        us("first_at"),
        us("next_at"),
        us("at"),
    );
    let row = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(name)
        .bind(numbers.step)
        .bind(i32::try_from(numbers.burst).unwrap())
        .bind(wanted)
        .bind(i32::try_from(within / 1_000).unwrap())
        .bind(waits)
        .fetch_one(connection)
        .await
        .unwrap();
    Said {
        verdict: row.get(0),
        given: Given {
            count: row.get(1),
            first: row.get::<Option<i64>, _>(2).unwrap_or(0),
            next: row.get::<Option<i64>, _>(3).unwrap_or(0),
        },
        at: row.get(4),
    }
}

fn some_numbers(dice: &mut Dice) -> Numbers {
    Numbers {
        step: dice.of(&[10, 333_334, 20_000, 1_000_000, 60_000_000, 86_400_000_000]),
        burst: dice.of(&[1, 1, 2, 5, 100, 10_000]),
    }
}

#[tokio::test]
async fn start_times_and_the_model_are_the_same_in_2000_random_sequences() {
    let seed = seed();
    println!("TOOLFLEET_SEED={seed}");
    let mut dice = Dice(seed);
    let ledger = Ledger::fresh().await;
    let connection = &mut ledger.database.connect().await;
    let (mut given, mut none, mut closed) = (0_i64, 0, 0);
    // One commit for all: what is compared is not how it is written.
    let mut all = connection.begin().await.unwrap();
    for sequence in 0..SEQUENCES {
        let name = format!("s{sequence}");
        let mut bucket = Bucket::default();
        let mut numbers = some_numbers(&mut dice);
        for step in 0..STEPS {
            let at =
                || format!("TOOLFLEET_SEED={seed}, sequence {sequence}, step {step}, {numbers:?}");
            match dice.roll(10) {
                0 => numbers = some_numbers(&mut dice),
                1 => {
                    let ms = dice.of(&[0, 1, 700, 60_000]);
                    let until: Option<i64> = sqlx::query_scalar(
                        "INSERT INTO toolfleet.rate_buckets (bucket, shared_by, name, tat, closed_until, used_at) \
                         SELECT 'tool/' || $1, 'tool', $1, now.at, now.at + $2 * interval '1 ms', now.at \
                         FROM (SELECT clock_timestamp() AS at) now \
                         ON CONFLICT (bucket) DO UPDATE SET closed_until = greatest(rate_buckets.closed_until, EXCLUDED.closed_until) \
                         RETURNING (extract(epoch FROM closed_until - '2020-01-01Z'::timestamptz) * 1000000)::bigint",
                    )
                    .bind(&name)
                    .bind(i64::from(ms))
                    .fetch_one(&mut *all)
                    .await
                    .unwrap();
                    bucket.close(until.unwrap());
                    closed += 1;
                }
                2 | 3 => {
                    let us = dice.of(&[10, 20_000, 333_334, 5_000_000, 86_400_000_000]);
                    sqlx::query(
                        "UPDATE toolfleet.rate_buckets SET tat = tat - $2 * interval '1 us', \
                             closed_until = closed_until - $2 * interval '1 us' WHERE name = $1",
                    )
                    .bind(&name)
                    .bind(us)
                    .execute(&mut *all)
                    .await
                    .unwrap();
                    bucket.passes(us);
                }
                _ => {
                    let wanted = dice.of(&[1, 1, 2, 25, 500]);
                    let within = dice.of(&[AHEAD, AHEAD, 0]);
                    let said = take(&mut all, &name, numbers, (wanted, within), true).await;
                    assert_eq!(said.verdict, "given", "{}", at());
                    let expected = bucket.take(said.at, numbers, wanted, within);
                    assert_eq!(said.given, expected, "{}", at());
                    given += expected.count;
                    none += i32::from(expected.count == 0);
                }
            }
        }
    }
    all.rollback().await.unwrap();
    println!(
        "{SEQUENCES} sequences: {given} start times, {none} times none, closed {closed} times"
    );
    assert!(given > 0 && none > 0 && closed > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_take_from_one_bucket_at_once_keep_its_rate_together() {
    let ledger = Ledger::fresh().await;
    let seed = seed();
    println!("TOOLFLEET_SEED={seed}");
    for (name, numbers) in [
        (
            "slow",
            Numbers {
                step: 20_000,
                burst: 1,
            },
        ),
        (
            "bursts",
            Numbers {
                step: 5_000,
                burst: 7,
            },
        ),
        (
            "fast",
            Numbers {
                step: 100,
                burst: 3,
            },
        ),
    ] {
        let session = |session: u64| {
            let database = &ledger.database;
            async move {
                let mut dice = Dice(seed.wrapping_add(session));
                let mut connection = database.connect().await;
                let (mut starts, mut busy) = (Vec::new(), 0);
                for _ in 0..60 {
                    let wanted = i64::try_from(1 + dice.roll(6)).unwrap();
                    let waits = dice.one_in(2);
                    let asked = (wanted, AHEAD);
                    let said = take(&mut connection, name, numbers, asked, waits).await;
                    busy += i32::from(said.verdict == "busy");
                    let Given { count, first, next } = said.given;
                    assert!(count == 0 || next == first + count * numbers.step);
                    // One that may start at once starts when it was handed out.
                    let start = |place: i64| (first + place * numbers.step).max(said.at);
                    starts.extend((0..count).map(start));
                }
                (starts, busy)
            }
        };
        let sessions = join_all((0..6).map(session)).await;
        let busy: i32 = sessions.iter().map(|(_, busy)| busy).sum();
        let mut starts: Vec<i64> = sessions
            .into_iter()
            .flat_map(|(starts, _)| starts)
            .collect();
        println!("{name}: {} start times, {busy} times busy", starts.len());
        assert!(starts.len() > 6);
        keeps(&mut starts, numbers).unwrap();
    }
}

#[tokio::test]
async fn a_bucket_that_another_session_has_is_neither_free_nor_used_up() {
    let ledger = Ledger::fresh().await;
    let numbers = Numbers {
        step: 1_000,
        burst: 5,
    };
    let mut session = ledger.database.connect().await;
    take(&mut session, "b", numbers, (1, AHEAD), true).await;
    let mut holder = ledger.database.connect().await;
    run(&mut holder, "BEGIN").await;
    run(
        &mut holder,
        "SELECT FROM toolfleet.rate_buckets WHERE name = 'b' FOR UPDATE",
    )
    .await;
    let said = take(&mut session, "b", numbers, (1, AHEAD), false).await;
    assert_eq!((said.verdict.as_str(), said.given.count), ("busy", 0));
    run(&mut holder, "ROLLBACK").await;
    let said = take(&mut session, "b", numbers, (1, AHEAD), false).await;
    assert_eq!((said.verdict.as_str(), said.given.count), ("given", 1));
}

#[tokio::test]
async fn a_remote_closes_a_bucket_until_its_time_and_never_opens_it_earlier() {
    let mut scene = Scene::with(json!({"calls": 1, "per": "1s", "burst": 5})).await;
    let tool = "tool".parse().unwrap();
    let tenant = "tenant".parse().unwrap();
    let call = scene.released().await;
    let left = async |scene: &Scene| -> f64 {
        let sql = "SELECT (extract(epoch FROM closed_until - clock_timestamp()) * 1000)::float8 FROM toolfleet.rate_buckets";
        sqlx::query_scalar(sql)
            .fetch_one(&scene.ledger.database.pool)
            .await
            .unwrap()
    };
    let close = async |scene: &Scene, ms| {
        let pool = &scene.ledger.database.pool;
        let pause = std::time::Duration::from_millis(ms);
        fleet::store::starts::close(pool, &tool, &tenant, call, pause)
            .await
            .unwrap();
    };
    // There was no row.
    close(&scene, 60_000).await;
    let closed = left(&scene).await;
    assert!((1.0..=60_000.0).contains(&closed), "{closed}");
    close(&scene, 5_000).await;
    assert!(
        left(&scene).await > 50_000.0,
        "a shorter pause opens nothing"
    );
    close(&scene, u64::from(u32::MAX)).await;
    let closed = left(&scene).await;
    assert!(
        (3_500_000.0..=3_600_000.0).contains(&closed),
        "an hour at most: {closed}"
    );

    // Until then nothing starts, whatever the numbers are.
    let connection = &mut scene.ledger.database.connect().await;
    for burst in [1, 5, 100] {
        numbers(
            connection,
            "tool",
            &json!({"calls": 1000, "per_ms": 1000, "burst": burst}),
        )
        .await;
        close(&scene, u64::from(u32::MAX)).await;
        let call = scene.released().await;
        let said = scene.claim(call).await;
        assert!(
            matches!(said, Some(fleet::store::limited::Limited::NoStart)),
            "{burst}: {said:?}"
        );
    }
    numbers(
        connection,
        "tool",
        &json!({"calls": 1, "per_ms": 10000, "burst": 2}),
    )
    .await;
    close(&scene, u64::from(u32::MAX)).await;
    scene.passes(3_600_000).await;
    let mut said = Vec::new();
    for _ in 0..3 {
        let call = scene.released().await;
        said.push(matches!(
            scene.claim(call).await,
            Some(fleet::store::limited::Limited::Claimed { .. })
        ));
    }
    // No burst on a remote that has just asked for a pause: one at its end, then one in each step.
    assert_eq!(said, [true, false, false]);

    // A tool without a limit has nothing to close.
    applied(connection, "tool", 2, &json!({})).await;
    scene.ledger.lanes.abort_all();
    assert_eq!(scene.does("DELETE FROM toolfleet.rate_buckets").await, 1);
    close(&scene, 1_000).await;
    assert_eq!(scene.does("DELETE FROM toolfleet.rate_buckets").await, 0);
}

#[tokio::test]
async fn a_bucket_is_dropped_when_it_was_not_used_for_a_day_and_is_as_good_as_new() {
    let scene = Scene::with(json!({"calls": 1, "per": "1h", "burst": 48, "by": "tenant"})).await;
    for tenant in ["a", "b"] {
        let call = scene.released_of("tool", tenant).await;
        scene.claim(call).await.unwrap();
    }
    let connection = &mut scene.ledger.database.connect().await;
    let drop_unused = fleet::store::starts::drop_unused;
    assert_eq!(drop_unused(connection).await.unwrap(), 0, "used just now");
    scene
        .does("UPDATE toolfleet.rate_buckets SET used_at = now() - interval '25 h'")
        .await;
    assert_eq!(
        drop_unused(connection).await.unwrap(),
        0,
        "it remembers a start"
    );
    scene
        .does("UPDATE toolfleet.rate_buckets SET tat = now() - interval '1 s'")
        .await;
    scene.does("UPDATE toolfleet.rate_buckets SET closed_until = now() + interval '1 h' WHERE tenant = 'a'").await;
    assert_eq!(
        drop_unused(connection).await.unwrap(),
        1,
        "one is closed still"
    );
    scene
        .does("UPDATE toolfleet.rate_buckets SET closed_until = now() - interval '1 h'")
        .await;
    assert_eq!(drop_unused(connection).await.unwrap(), 1);
}
