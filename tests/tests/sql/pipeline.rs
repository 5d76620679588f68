//! Several statements go in one message: what is sent behind a statement that failed must not run.

use std::time::Duration;

use fleet_tests::{
    proxy::{From, Proxy},
    running,
    wait::until_so,
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::bench::{Bench, answer, context, manifest, word};

const ITEMS: &str = "SELECT count(*) FROM @tool.items";

fn port(url: &str) -> u16 {
    let (front, _) = url.rsplit_once('/').unwrap();
    front.rsplit_once(':').unwrap().1.parse().unwrap()
}

/// A wire to Postgres that changes these bytes into as many others. Its end is the end of its tasks.
async fn changing(port: u16, find: &'static [u8], instead: &'static [u8]) -> (u16, JoinSet<()>) {
    assert_eq!(find.len(), instead.len());
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let own = listener.local_addr().unwrap().port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            connections.spawn(async move {
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                let asks = async {
                    let mut buffer = vec![0; 64 * 1024];
                    loop {
                        let count = from_client.read(&mut buffer).await.unwrap_or(0);
                        if count == 0 {
                            return;
                        }
                        let said = &mut buffer[..count];
                        let at = said.windows(find.len()).position(|bytes| bytes == find);
                        if let Some(at) = at {
                            said[at..][..find.len()].copy_from_slice(instead);
                        }
                        if to_server.write_all(said).await.is_err() {
                            return;
                        }
                    }
                };
                let answers = async {
                    drop(tokio::io::copy(&mut from_server, &mut to_client).await);
                };
                tokio::select! { () = asks => {}, () = answers => {} }
            });
        }
    });
    (own, tasks)
}

/// If it ran, it would commit by itself.
#[tokio::test]
async fn behind_a_begin_that_failed_the_statement_is_not_run() {
    let mut bench = Bench::new().await;
    let server = port(&bench.url);
    let (own, _tasks) = changing(server, b"BEGIN READ WRITE", b"BEGIN READ WRONG").await;
    bench.through(own);
    for effect in ["once", "idempotent"] {
        let insert = "INSERT INTO items VALUES (1)";
        let outcome = bench.run(effect, insert, json!([]), json!({})).await;
        assert_eq!(
            word(&outcome),
            ("definite_failure", "tool_crashed"),
            "{outcome:?}"
        );
        assert_eq!(bench.ask(ITEMS).await, 0);
    }
}

/// The server knows no such setting.
#[tokio::test]
async fn behind_limits_that_cannot_be_set_the_statement_is_not_run() {
    let mut bench = Bench::new().await;
    let server = port(&bench.url);
    let (own, _tasks) = changing(server, b"statement_timeout", b"statement_timeouX").await;
    bench.through(own);
    let insert = "INSERT INTO items VALUES (1)";
    let outcome = bench.run("once", insert, json!([]), json!({})).await;
    assert_eq!(outcome.word().as_str(), "definite_failure", "{outcome:?}");
    assert_eq!(bench.ask(ITEMS).await, 0);
}

/// The effect waits for the end of the call in the transaction; that fails, so `COMMIT` finds a transaction that failed.
#[tokio::test]
async fn behind_an_end_that_is_refused_nothing_is_committed() {
    let mut bench = Bench::new().await;
    bench
        .admin(
            "GRANT USAGE ON SCHEMA toolfleet_tool TO @tool;
             GRANT EXECUTE ON FUNCTION toolfleet_tool.succeed TO @tool",
        )
        .await;
    let insert = manifest("transaction", "INSERT INTO items VALUES (1)", &json!([]));
    let held_by_nobody = context(Duration::from_secs(10));
    let outcome = bench.attempt(&insert, &json!({}), held_by_nobody).await;
    assert_eq!(
        word(&outcome),
        ("definite_failure", "unavailable"),
        "{outcome:?}"
    );
    assert_eq!(bench.ask(ITEMS).await, 0);

    // Without the right to end it.
    bench
        .admin("REVOKE EXECUTE ON FUNCTION toolfleet_tool.succeed FROM @tool")
        .await;
    let context = context(Duration::from_secs(10));
    running::transaction(&mut bench.admin, context.call_id, context.attempt_id).await;
    let outcome = bench.attempt(&insert, &json!({}), context).await;
    assert_eq!(
        word(&outcome),
        ("definite_failure", "tool_crashed"),
        "{outcome:?}"
    );
    assert_eq!(
        outcome.failure().unwrap().details,
        Some(json!({"sqlstate": "42501"}))
    );
    assert_eq!(bench.ask(ITEMS).await, 0);
    let open =
        "SELECT count(*) FROM pg_stat_activity WHERE usename = '@tool' AND state LIKE 'idle in%'";
    assert_eq!(
        bench.ask(open).await,
        0,
        "no transaction stays in a connection"
    );
}

#[tokio::test]
async fn a_role_that_may_not_write_has_done_nothing() {
    let mut bench = Bench::new().await;
    bench
        .admin("CREATE TABLE @tool.closed (id int); REVOKE ALL ON @tool.closed FROM @tool")
        .await;
    let insert = "WITH one AS (INSERT INTO items VALUES (1) RETURNING id) INSERT INTO closed SELECT id FROM one";
    let outcome = bench.run("once", insert, json!([]), json!({})).await;
    assert_eq!(
        word(&outcome),
        ("definite_failure", "tool_crashed"),
        "{outcome:?}"
    );
    assert_eq!(bench.ask(ITEMS).await, 0);
}

#[tokio::test]
async fn the_character_nul_is_refused_by_the_server_and_the_connection_lives() {
    let mut bench = Bench::new().await;
    let insert = "INSERT INTO items VALUES (1, $1)";
    let outcome = bench
        .run("once", insert, json!(["a\u{0}b"]), json!({}))
        .await;
    assert_eq!(
        word(&outcome),
        ("definite_failure", "tool_error"),
        "{outcome:?}"
    );
    let whole = bench.run("once", insert, json!(["ab"]), json!({})).await;
    assert_eq!(answer(&whole), json!({"rows_affected": 1}));
    assert_eq!(bench.ask(ITEMS).await, 1);
}

#[tokio::test]
async fn as_many_parameters_as_the_protocol_has() {
    const MOST: usize = 65_535;
    let bench = Bench::new().await;
    let places: Vec<String> = (1..=MOST).map(|n| format!("${n}::int")).collect();
    let statement = format!("SELECT cardinality(ARRAY[{}]) AS n", places.join(","));
    let params: Vec<usize> = (1..=MOST).collect();
    let manifest = manifest("read", &statement, &json!(params));
    let outcome = bench
        .attempt(&manifest, &json!({}), context(Duration::from_secs(60)))
        .await;
    assert_eq!(answer(&outcome), json!([{"n": MOST}]));
}

/// Its length is known before it is read.
#[tokio::test]
async fn a_row_that_is_too_large_is_not_read() {
    let mut bench = Bench::new().await;
    let wide = "INSERT INTO items SELECT 1, 'one' RETURNING repeat('x', 200000000) AS text";
    let outcome = bench.run("once", wide, json!([]), json!({})).await;
    assert_eq!(
        word(&outcome),
        ("definite_failure", "output_too_large"),
        "{outcome:?}"
    );
    assert_eq!(bench.ask(ITEMS).await, 0);
    let running =
        "SELECT count(*) FROM pg_stat_activity WHERE usename = '@tool' AND state <> 'idle'";
    until_so("nothing runs on", async || bench.ask(running).await == 0).await;
}

/// A statement is not sent to a connection of which it could not be told whether it was run.
#[tokio::test]
async fn a_connection_that_went_silent_while_it_was_idle_costs_a_second_and_no_doubt() {
    let mut bench = Bench::new().await;
    let proxy = Proxy::to(port(&bench.url)).await;
    bench.through(proxy.port());
    let insert = "INSERT INTO items VALUES ($1)";
    let first = bench.run("once", insert, json!([1]), json!({})).await;
    assert_eq!(answer(&first), json!({"rows_affected": 1}));
    // Time is what makes it old.
    sleep(Duration::from_millis(1100)).await;
    proxy.swallow(From::Client);
    let began = Instant::now();
    let (second, ()) = tokio::join!(bench.run("once", insert, json!([2]), json!({})), async {
        until_so("its question is swallowed", async || {
            proxy.swallowed(From::Client) > 0
        })
        .await;
        // From now on new connections work; the old one stays silent, for what it was asked is gone.
        proxy.heal();
    });
    assert_eq!(answer(&second), json!({"rows_affected": 1}));
    assert!(began.elapsed() < Duration::from_secs(8));
    assert_eq!(bench.ask(ITEMS).await, 2);
}

/// Nothing of a call is in the way of the next, however the first one ended.
#[tokio::test]
async fn a_call_that_is_dropped_in_the_middle_leaves_no_transaction() {
    let mut bench = Bench::new().await;
    let slow = "INSERT INTO items SELECT 1 FROM pg_sleep(60)";
    let running =
        "SELECT count(*) FROM pg_stat_activity WHERE usename = '@tool' AND state <> 'idle'";
    {
        let call = bench.run("once", slow, json!([]), json!({}));
        let dropped = timeout(Duration::from_millis(300), call).await;
        assert!(dropped.is_err());
    }
    let others = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                  WHERE usename = '@tool' AND wait_event = 'PgSleep'";
    // Nobody is left to cancel it; its own timeout would end it.
    bench.ask(others).await;
    until_so("it is gone", async || bench.ask(running).await == 0).await;
    assert_eq!(bench.ask(ITEMS).await, 0);
    let next = bench
        .run("once", "INSERT INTO items VALUES (1)", json!([]), json!({}))
        .await;
    assert_eq!(answer(&next), json!({"rows_affected": 1}));
}
