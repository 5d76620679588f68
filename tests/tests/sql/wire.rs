//! The wire is cut: before the statement was answered, and at its `COMMIT`.

use fleet_tests::{
    proxy::{From, Proxy},
    wait::until,
};
use serde_json::json;

use crate::bench::{Bench, word};

fn port(url: &str) -> u16 {
    let (front, _) = url.rsplit_once('/').unwrap();
    front.rsplit_once(':').unwrap().1.parse().unwrap()
}

/// The gate is an advisory lock that the statement, or a deferred trigger at `COMMIT`, waits for.
async fn cut_while_it_waits(statement: &str) -> (Bench, (&'static str, &'static str)) {
    let mut bench = Bench::new().await;
    bench
        .admin(
            "CREATE FUNCTION @tool.gate() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$;
             CREATE TABLE @tool.gated (id int); ALTER TABLE @tool.gated OWNER TO @tool;
             CREATE CONSTRAINT TRIGGER gate AFTER INSERT ON @tool.gated DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW EXECUTE FUNCTION @tool.gate();
             SELECT pg_advisory_lock(1)",
        )
        .await;
    let proxy = Proxy::to(port(&bench.url)).await;
    bench.through(proxy.port());
    let mut watcher = bench.database.connect().await;
    let cutting = async {
        until("it waits at the gate", async || {
            let waiting =
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
            let count: i64 = sqlx::query_scalar(waiting)
                .fetch_one(&mut watcher)
                .await
                .unwrap();
            (count == 1).then_some(())
        })
        .await;
        proxy.swallow(From::Server);
        proxy.cut();
    };
    let running = bench.run("once", statement, json!([]), json!({}));
    let (outcome, ()) = tokio::join!(running, cutting);
    let word = word(&outcome);
    bench.admin("SELECT pg_advisory_unlock(1)").await;
    (bench, word)
}

#[tokio::test]
async fn a_cut_before_the_answer_leaves_a_write_unknown() {
    let (mut bench, word) =
        cut_while_it_waits("INSERT INTO items SELECT 1 FROM pg_advisory_xact_lock(1)").await;
    assert_eq!(word, ("unknown", "unavailable"));
    // It was never told to commit.
    until("it is over", async || {
        let active = "SELECT count(*) FROM pg_stat_activity WHERE usename = '@tool'";
        (bench.ask(active).await == 0).then_some(())
    })
    .await;
    assert_eq!(bench.ask("SELECT count(*) FROM @tool.items").await, 0);
}

#[tokio::test]
async fn a_cut_at_commit_leaves_a_write_unknown_and_it_may_be_there() {
    let (mut bench, word) = cut_while_it_waits("INSERT INTO gated VALUES (1)").await;
    assert_eq!(word, ("unknown", "unavailable"));
    until("it is committed all the same", async || {
        (bench.ask("SELECT count(*) FROM @tool.gated").await == 1).then_some(())
    })
    .await;
}
