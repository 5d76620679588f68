//! What the answer to `COMMIT` proves, and what it does not.

use std::time::Duration;

use fleet_tests::{
    postgres::Cluster,
    running,
    wait::{until, until_so},
};
use serde_json::json;
use tokio::time::Instant;
use worker::executors::sql::{
    database::{Database, Whose},
    limits::Limits,
    not_committed::NotCommitted,
    session::{Session, Watch},
};

use crate::bench::{Bench, answer, context, manifest, word};

const INSERT: &str = "INSERT INTO items VALUES (1)";
const ITEMS: &str = "SELECT count(*) FROM @tool.items";

/// Waits until the tool's session waits for this, and then does this to it.
async fn meanwhile(bench: &Bench, event: &str, act: &str) {
    let mut watcher = bench.database.connect().await;
    let session = format!(
        "SELECT pid FROM pg_stat_activity WHERE usename = '{}' AND wait_event = '{event}'",
        bench.role
    );
    let pid: i32 = until("the session to wait", async || {
        sqlx::query_scalar(sqlx::AssertSqlSafe(session.clone()))
            .fetch_optional(&mut watcher)
            .await
            .unwrap()
    })
    .await;
    let act = sqlx::AssertSqlSafe(format!("SELECT {act}($1)"));
    sqlx::query(act)
        .bind(pid)
        .execute(&mut watcher)
        .await
        .unwrap();
}

/// A server that waits with each COMMIT for a replica which there is not.
async fn without_a_replica(cluster: &Cluster) -> Bench {
    let mut bench = Bench::on(cluster.database().await).await;
    bench
        .admin("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        .await;
    bench.admin("SELECT pg_reload_conf()").await;
    let mut probe = bench.database.connect().await;
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
        .fetch_one(&mut probe)
        .await
        .unwrap();
    // Its other processes read the setting when they come to it: a COMMIT that waits is the proof.
    let cancel = format!(
        "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE pid = {pid} AND wait_event = 'SyncRep'"
    );
    until("COMMITs to wait", async || {
        let writing = sqlx::raw_sql("CREATE TABLE probe (); DROP TABLE probe").execute(&mut probe);
        let (written, waited) = tokio::join!(writing, async {
            let until = Instant::now() + Duration::from_millis(300);
            while Instant::now() < until {
                if bench.ask(&cancel).await == 1 {
                    return true;
                }
            }
            false
        });
        written.unwrap();
        waited.then_some(())
    })
    .await;
    bench.admin("SET synchronous_commit = local").await;
    bench
        .admin(
            "GRANT USAGE ON SCHEMA toolfleet_tool TO @tool;
             GRANT EXECUTE ON FUNCTION toolfleet_tool.succeed TO @tool",
        )
        .await;
    bench
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_ended_while_it_waits_for_replicas_has_committed_and_nobody_was_told() {
    let cluster = Cluster::alone(true).await;
    let mut bench = without_a_replica(&cluster).await;
    let (outcome, ()) = tokio::join!(
        bench.run("once", INSERT, json!([]), json!({})),
        meanwhile(&bench, "SyncRep", "pg_terminate_backend"),
    );
    assert_eq!(word(&outcome), ("unknown", "unavailable"), "{outcome:?}");
    assert_eq!(bench.ask(ITEMS).await, 1, "it is there");

    // One that only stops waiting is told, with a warning, that it has committed.
    let insert = "INSERT INTO items VALUES (2)";
    let (outcome, ()) = tokio::join!(
        bench.run("once", insert, json!([]), json!({})),
        meanwhile(&bench, "SyncRep", "pg_cancel_backend"),
    );
    assert_eq!(answer(&outcome), json!({"rows_affected": 1}));

    // Of a transaction the row knows more than the attempt.
    let tool = manifest("transaction", "INSERT INTO items VALUES (3)", &json!([]));
    let context = context(Duration::from_secs(10));
    let (call, arguments) = (context.call_id, json!({}));
    let mut local = bench.database.connect().await;
    sqlx::raw_sql("SET synchronous_commit = local")
        .execute(&mut local)
        .await
        .unwrap();
    running::transaction(&mut local, call, context.attempt_id).await;
    let (outcome, ()) = tokio::join!(
        bench.attempt(&tool, &arguments, context),
        meanwhile(&bench, "SyncRep", "pg_terminate_backend"),
    );
    assert_eq!(word(&outcome), ("unknown", "unavailable"), "{outcome:?}");
    assert_eq!(bench.ask(ITEMS).await, 3);
    let ended = format!(
        "SELECT count(*) FROM toolfleet.finished_calls WHERE call_id = '{}' AND state = 'succeeded'",
        call.0
    );
    assert_eq!(bench.ask(&ended).await, 1);
}

#[tokio::test]
async fn an_error_at_commit_is_proof_unless_it_is_about_the_server() {
    let mut bench = Bench::new().await;
    bench
        .admin(
            "CREATE FUNCTION @tool.say() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN IF NEW.state = 'sleep' THEN PERFORM pg_sleep(60); END IF;
                RAISE EXCEPTION 'said' USING ERRCODE = NEW.state; END $$;
             CREATE TABLE @tool.said (state text); ALTER TABLE @tool.said OWNER TO @tool;
             CREATE CONSTRAINT TRIGGER say AFTER INSERT ON @tool.said DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW EXECUTE FUNCTION @tool.say()",
        )
        .await;
    let insert = "INSERT INTO said VALUES ($1)";
    for (state, expected) in [
        ("23514", ("definite_failure", "tool_error")),
        ("P0001", ("definite_failure", "tool_error")),
        ("40001", ("definite_failure", "unavailable")),
        ("53200", ("definite_failure", "unavailable")),
        ("42501", ("definite_failure", "tool_crashed")),
        ("40003", ("unknown", "unavailable")),
        ("08006", ("unknown", "unavailable")),
        ("57P01", ("unknown", "unavailable")),
        ("58030", ("unknown", "unavailable")),
        ("XX000", ("unknown", "unavailable")),
    ] {
        let outcome = bench.run("once", insert, json!([state]), json!({})).await;
        assert_eq!(word(&outcome), expected, "{state}: {outcome:?}");
    }
    let (outcome, ()) = tokio::join!(
        bench.run("once", insert, json!(["sleep"]), json!({})),
        meanwhile(&bench, "PgSleep", "pg_terminate_backend"),
    );
    assert_eq!(word(&outcome), ("unknown", "unavailable"), "{outcome:?}");
    let details = outcome.failure().unwrap().details.clone();
    assert_eq!(details, Some(json!({"sqlstate": "57P01"})));
    assert_eq!(bench.ask("SELECT count(*) FROM @tool.said").await, 0);
}

#[tokio::test]
async fn a_session_that_is_ended_in_the_statement_has_done_nothing() {
    let mut bench = Bench::new().await;
    let slow = "INSERT INTO items SELECT 1 FROM pg_sleep(60)";
    let (outcome, ()) = tokio::join!(
        bench.run("once", slow, json!([]), json!({})),
        meanwhile(&bench, "PgSleep", "pg_terminate_backend"),
    );
    assert_eq!(
        word(&outcome),
        ("definite_failure", "unavailable"),
        "{outcome:?}"
    );
    assert_eq!(bench.ask(ITEMS).await, 0);
}

/// The server answers such a `COMMIT` with the tag `ROLLBACK`, and not with an error.
#[tokio::test]
async fn a_transaction_that_failed_unseen_is_not_taken_for_committed() {
    let mut bench = Bench::new().await;
    let database = Database::new(&bench.url.as_str().into(), Whose::Others).unwrap();
    let limits = Limits {
        read_only: false,
        until: Instant::now() + Duration::from_secs(10),
        output_limit: 1024,
    };
    let mut session = Session::begin(&database, limits, Vec::new(), &Watch::default())
        .await
        .unwrap();
    for (statement, works) in [(INSERT, true), ("SELECT 1 / 0 AS n", false)] {
        let statement = database.statement(statement, 0, &limits).await.unwrap();
        let done = session.run(&statement, &[], None).await;
        assert_eq!(done.is_ok(), works);
    }
    let refused = session.commit(None).await.err();
    assert!(
        matches!(&refused, Some(NotCommitted::Refused(refusal)) if refusal.sqlstate == "25P02"),
        "{refused:?}"
    );
    until_so("it is gone", async || bench.ask(ITEMS).await == 0).await;
}
