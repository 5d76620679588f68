//! Too much, too long, taken back.

use std::time::Duration;

use fleet_tests::wait::{until, until_so};
use futures_util::future::join_all;
use serde_json::json;

use crate::bench::{Bench, answer, context, manifest, word};

const RUNNING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE usename = '@tool' AND state <> 'idle'";

#[tokio::test]
async fn an_answer_that_is_too_large_commits_nothing() {
    let mut bench = Bench::new().await;
    let rows = "SELECT generate_series(1, $1::int) AS n";
    let most = bench.run("read", rows, json!([10_000]), json!({})).await;
    assert_eq!(answer(&most).as_array().unwrap().len(), 10_000);
    let more = bench
        .run("read", rows, json!([100_000_000]), json!({}))
        .await;
    assert_eq!(word(&more), ("definite_failure", "output_too_large"));
    let wide = "INSERT INTO items SELECT n, repeat('x', 100000) FROM generate_series(1, 100) n RETURNING *";
    let more = bench.run("once", wide, json!([]), json!({})).await;
    assert_eq!(word(&more), ("definite_failure", "output_too_large"));
    assert_eq!(bench.ask("SELECT count(*) FROM @tool.items").await, 0);
    until_so("nothing runs on", async || bench.ask(RUNNING).await == 0).await;
}

#[tokio::test]
async fn what_takes_too_long_or_is_taken_back_ends_in_the_server_too() {
    let mut bench = Bench::new().await;
    let slow = manifest(
        "once",
        "INSERT INTO items SELECT 1 FROM pg_sleep(60)",
        &json!([]),
    );
    let outcome = bench
        .attempt(&slow, &json!({}), context(Duration::from_millis(300)))
        .await;
    assert_eq!(
        word(&outcome),
        ("definite_failure", "timeout"),
        "{outcome:?}"
    );
    assert_eq!(bench.ask(RUNNING).await, 0);

    let context = context(Duration::from_secs(60));
    let stop = context.stop.clone();
    let mut watcher = bench.database.connect().await;
    let running = RUNNING.replace("@tool", &bench.role);
    let nothing = json!({});
    let stopping = async {
        until("the statement runs", async || {
            let statement = sqlx::AssertSqlSafe(format!("{running} AND wait_event = 'PgSleep'"));
            let count: i64 = sqlx::query_scalar(statement)
                .fetch_one(&mut watcher)
                .await
                .unwrap();
            (count == 1).then_some(())
        })
        .await;
        stop.cancel();
    };
    let (returned, ()) = tokio::join!(bench.returned(&slow, &nothing, context), stopping);
    assert_eq!(
        word(&returned.outcome),
        ("definite_failure", "cancelled"),
        "{returned:?}"
    );
    assert!(!returned.left_behind);
    until_so("nothing runs on", async || bench.ask(RUNNING).await == 0).await;
    assert_eq!(bench.ask("SELECT count(*) FROM @tool.items").await, 0);
}

#[tokio::test]
async fn nothing_stays_in_a_connection_that_is_used_again() {
    let mut bench = Bench::new().await;
    let lasting = "SELECT pg_advisory_lock(7), set_config('search_path', 'pg_temp', false)";
    let first = bench.run("once", lasting, json!([]), json!({})).await;
    assert_eq!(word(&first).0, "applied");
    let pid = "SELECT pg_backend_pid() AS pid, current_setting('search_path') AS path";
    let (one, two) = (
        answer(&bench.run("read", pid, json!([]), json!({})).await),
        answer(&bench.run("read", pid, json!([]), json!({})).await),
    );
    assert_eq!(one, two, "one connection");
    assert_eq!(one[0]["path"], json!(bench.role));
    assert_eq!(bench.ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").await, 0);
    assert_eq!(
        bench
            .ask(
                "SELECT count(*) FROM pg_stat_activity WHERE usename = '@tool' AND state <> 'idle'"
            )
            .await,
        0
    );
}

#[tokio::test]
async fn an_idle_connection_that_died_costs_nothing() {
    let mut bench = Bench::new().await;
    let insert = "INSERT INTO items VALUES ($1)";
    bench.run("once", insert, json!([1]), json!({})).await;
    let killed = bench
        .ask(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '@tool'",
        )
        .await;
    assert_eq!(killed, 1);
    let outcome = bench.run("once", insert, json!([2]), json!({})).await;
    assert_eq!(answer(&outcome), json!({"rows_affected": 1}));
}

#[tokio::test]
async fn quick_statements_share_connections_that_would_not_do_for_all_at_once() {
    let mut bench = Bench::new().await;
    let room = "SELECT current_setting('max_connections')::bigint";
    let callers = 2 * bench.ask(room).await;
    let quick = (0..callers).map(|_| bench.run("once", "SELECT 1 AS one", json!([]), json!({})));
    for outcome in join_all(quick).await {
        assert_eq!(word(&outcome).0, "applied", "{outcome:?}");
    }
}

#[tokio::test]
async fn slow_statements_wait_for_one_another_for_a_moment_only() {
    const CALLERS: i64 = 50;
    let bench = Bench::new().await;
    let mut gate = bench.database.connect().await;
    let close = sqlx::query("SELECT pg_advisory_lock(7)");
    close.execute(&mut gate).await.unwrap();
    let statement = "SELECT pg_advisory_xact_lock_shared(7) IS NULL AS locked";
    let slow = (0..CALLERS).map(|_| bench.run("once", statement, json!([]), json!({})));
    let opening = async {
        until_so("all of them are at it", async || {
            let waiting = sqlx::query_scalar(
                "SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND wait_event = 'advisory'",
            );
            let waiting: i64 = waiting
                .bind(&bench.role)
                .fetch_one(&mut gate)
                .await
                .unwrap();
            waiting == CALLERS
        })
        .await;
        let open = sqlx::query("SELECT pg_advisory_unlock(7)");
        open.execute(&mut gate).await.unwrap();
    };
    let (outcomes, ()) = tokio::join!(join_all(slow), opening);
    for outcome in outcomes {
        assert_eq!(word(&outcome).0, "applied", "{outcome:?}");
    }
}
