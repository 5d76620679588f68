//! Learned timeouts in the ledger: counts add up, one dispatcher looks, and a change needs what was looked at.

use std::time::Duration;

use fleet::{
    ids::ToolName,
    learn::{LearnedWhy, Lesson, RunTimes},
    store::{
        PgPool,
        timeouts::{self, CountedRunTimes, DueLook},
    },
};
use fleet_tests::postgres::Database;
use futures_util::future::join_all;

fn tool() -> ToolName {
    "look".parse().unwrap()
}

const fn took(took_ms: u64, cut_off: bool, count: u64) -> RunTimes {
    RunTimes {
        limit_ms: 5_000,
        took_ms,
        cut_off,
        count,
    }
}

fn counted(times: RunTimes) -> CountedRunTimes {
    CountedRunTimes {
        tool: tool(),
        version: 1,
        times,
    }
}

async fn of_a_day(pool: &PgPool) -> Vec<RunTimes> {
    let mut times = timeouts::of_a_day(pool, &tool(), 1).await.unwrap();
    times.sort_unstable_by_key(|times| times.took_ms);
    times
}

async fn backdate(pool: &PgPool, sql: &'static str) {
    sqlx::query(sql).execute(pool).await.unwrap();
}

#[tokio::test]
async fn what_several_workers_count_adds_up() {
    let database = Database::fresh().await;
    let pool = &database.pool;
    let (one, other) = (
        [counted(took(10, false, 3)), counted(took(5_000, true, 1))],
        [counted(took(5_000, true, 2)), counted(took(10, false, 4))],
    );
    let counting = (0..20).map(|n| {
        let report = if n % 2 == 0 { &one } else { &other };
        timeouts::count(pool, report)
    });
    for done in join_all(counting).await {
        done.unwrap();
    }
    assert_eq!(
        of_a_day(pool).await,
        [took(10, false, 70), took(5_000, true, 30)]
    );
    // Of yesterday.
    backdate(
        pool,
        "UPDATE toolfleet.run_times SET hour = hour - interval '24 hours' WHERE cut_off",
    )
    .await;
    assert_eq!(of_a_day(pool).await, [took(10, false, 70)]);
    let mut connection = database.connect().await;
    timeouts::drop_old(&mut connection).await.unwrap();
    backdate(
        pool,
        "UPDATE toolfleet.run_times SET hour = hour - interval '2 hours' WHERE cut_off",
    )
    .await;
    timeouts::drop_old(&mut connection).await.unwrap();
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM toolfleet.run_times")
        .fetch_one(pool)
        .await
        .unwrap();
    assert_eq!(left, 1);
}

#[tokio::test]
async fn one_of_many_dispatchers_looks_every_ten_minutes() {
    let database = Database::fresh().await;
    let pool = &database.pool;
    let versions = [("other".parse().unwrap(), 7), (tool(), 1)];
    for round in 0..2 {
        let looks = (0..8).map(|_| timeouts::take_due(pool, &versions));
        let looks = join_all(looks).await;
        let mut due: Vec<DueLook> = looks.into_iter().flat_map(Result::unwrap).collect();
        due.sort_unstable_by_key(|due| due.index);
        let expected = [0, 1].map(|index| DueLook {
            index,
            learned: None,
        });
        assert_eq!(due, expected, "round {round}");
        assert_eq!(timeouts::take_due(pool, &versions).await.unwrap(), []);
        backdate(
            pool,
            "UPDATE toolfleet.timeout_looks SET looked_at = now() - interval '601 seconds'",
        )
        .await;
    }
}

#[tokio::test]
async fn a_timeout_changes_from_what_it_was_when_it_was_looked_at() {
    let database = Database::fresh().await;
    let pool = &database.pool;
    timeouts::take_due(pool, &[(tool(), 1)]).await.unwrap();
    let (five, six) = (Duration::from_secs(5), Duration::from_secs(6));
    let lesson = |next| Lesson {
        samples: 300,
        longer: 4,
        p95_ms: 3_000,
        p99_ms: 5_000,
        next,
    };
    let (name, rev) = (tool(), "SELECT timeout_rev FROM toolfleet.fleet");
    let keep = |learned, next| {
        let (lesson, name) = (lesson(next), &name);
        async move {
            timeouts::keep(pool, name, 1, learned, five, &lesson)
                .await
                .unwrap()
        }
    };
    let revision = || async {
        sqlx::query_scalar::<_, i64>(rev)
            .fetch_one(pool)
            .await
            .unwrap()
    };
    assert!(!keep(None, None).await, "nothing was learned");
    assert_eq!(revision().await, 0);
    assert!(keep(None, Some((six, LearnedWhy::CutOff))).await);
    assert_eq!(revision().await, 1);
    // Another dispatcher, which has looked when there was none.
    assert!(!keep(None, Some((five, LearnedWhy::Faster))).await);
    assert_eq!(revision().await, 1);
    let learned = timeouts::learned(pool).await.unwrap();
    assert_eq!(learned[&tool()][&1], six);
    assert!(keep(Some(six), Some((five, LearnedWhy::Faster))).await);
    let changes: Vec<(i64, i64, String)> = sqlx::query_as(
        "SELECT timeout_ms, before_ms, why FROM toolfleet.learned_timeouts ORDER BY at",
    )
    .fetch_all(pool)
    .await
    .unwrap();
    assert_eq!(changes.len(), 2);
    assert_eq!(changes[0], (6_000, 5_000, "cut_off".to_owned()));
    // The last one of a version stays, however old it is.
    backdate(
        pool,
        "UPDATE toolfleet.timeout_changes SET at = at - interval '91 days'",
    )
    .await;
    timeouts::drop_old(&mut database.connect().await)
        .await
        .unwrap();
    let left: i64 = sqlx::query_scalar("SELECT timeout_ms FROM toolfleet.learned_timeouts")
        .fetch_one(pool)
        .await
        .unwrap();
    assert_eq!(left, 5_000);
}
