//! What each answer of a server means.

use std::time::Duration;

use fleet::outcome::Outcome;
use serde_json::{Value, json};

use crate::bench::{Bench, answer, context, manifest, word};

#[tokio::test]
async fn each_class_of_error_has_its_word() {
    let mut bench = Bench::new().await;
    bench
        .admin(
            "CREATE FUNCTION @tool.say(state text) RETURNS int LANGUAGE plpgsql AS $$
             BEGIN RAISE EXCEPTION 'said %', state USING ERRCODE = state; END $$;
             CREATE TABLE @tool.later (id int REFERENCES @tool.items DEFERRABLE INITIALLY DEFERRED);
             ALTER TABLE @tool.later OWNER TO @tool;
             INSERT INTO @tool.items VALUES (1, 'one')",
        )
        .await;
    for (statement, params, expected) in [
        (
            "INSERT INTO items VALUES (1)",
            json!([]),
            ("definite_failure", "tool_error"),
        ),
        (
            "INSERT INTO items VALUES ($1)",
            json!(["x"]),
            ("definite_failure", "tool_error"),
        ),
        (
            "INSERT INTO items VALUES ($1)",
            json!([{"a": 1}]),
            ("definite_failure", "tool_error"),
        ),
        (
            "INSERT INTO items VALUES (2, NULL)",
            json!([]),
            ("definite_failure", "tool_error"),
        ),
        (
            "SELECT say($1)",
            json!(["P0001"]),
            ("definite_failure", "tool_error"),
        ),
        (
            "SELECT say($1)",
            json!(["40001"]),
            ("definite_failure", "unavailable"),
        ),
        (
            "SELECT say($1)",
            json!(["53200"]),
            ("definite_failure", "unavailable"),
        ),
        (
            "SELECT say($1)",
            json!(["57P01"]),
            ("definite_failure", "unavailable"),
        ),
        (
            "SELECT say($1)",
            json!(["42501"]),
            ("definite_failure", "tool_crashed"),
        ),
        // Only its COMMIT is refused.
        (
            "INSERT INTO later VALUES (7)",
            json!([]),
            ("definite_failure", "tool_error"),
        ),
        (
            "SELECT * FROM nothing_of_that_name",
            json!([]),
            ("definite_failure", "tool_crashed"),
        ),
        (
            "SELECT '{}'::point[] AS p",
            json!([]),
            ("definite_failure", "tool_crashed"),
        ),
        (
            "SELECT 1 AS a, 2 AS a",
            json!([]),
            ("definite_failure", "tool_crashed"),
        ),
    ] {
        let outcome = bench.run("once", statement, params, json!({})).await;
        assert_eq!(word(&outcome), expected, "{statement}: {outcome:?}");
    }
    assert_eq!(bench.ask("SELECT count(*) FROM @tool.items").await, 1);
    assert_eq!(bench.ask("SELECT count(*) FROM @tool.later").await, 0);
}

#[tokio::test]
async fn rows_and_their_number_are_answers() {
    let bench = Bench::new().await;
    let insert = "INSERT INTO items VALUES ($1, $2)";
    let args = json!({"id": 3, "name": "'; DROP TABLE items; --"});
    let inserted = bench
        .run("once", insert, json!(["{id}", "{name}"]), args.clone())
        .await;
    assert_eq!(answer(&inserted), json!({"rows_affected": 1}));
    let read = bench
        .run(
            "read",
            "SELECT * FROM items WHERE id = $1;",
            json!(["{id}"]),
            args,
        )
        .await;
    assert_eq!(
        answer(&read),
        json!([{"id": 3, "name": "'; DROP TABLE items; --"}])
    );
    let none = bench
        .run(
            "read",
            "SELECT * FROM items WHERE id = $1",
            json!(["{id}"]),
            json!({}),
        )
        .await;
    assert_eq!(answer(&none), json!([]));
}

#[tokio::test]
async fn a_read_cannot_write_by_a_function() {
    let mut bench = Bench::new().await;
    bench
        .admin(
            "CREATE FUNCTION @tool.sly() RETURNS bigint LANGUAGE sql AS
             'INSERT INTO @tool.items VALUES (9) RETURNING id::bigint'",
        )
        .await;
    let outcome = bench
        .run("read", "SELECT sly()", json!([]), json!({}))
        .await;
    assert_eq!(word(&outcome), ("definite_failure", "tool_crashed"));
    assert_eq!(bench.ask("SELECT count(*) FROM @tool.items").await, 0);
    let outcome = bench
        .run("once", "SELECT sly()", json!([]), json!({}))
        .await;
    assert_eq!(answer(&outcome), json!([{"sly": 9}]));
}

#[tokio::test]
async fn a_statement_is_told_the_facts_of_its_attempt() {
    let bench = Bench::new().await;
    let statement = "SELECT current_setting('toolfleet.idempotency_key') AS key,
        current_setting('toolfleet.tenant') AS tenant, current_setting('toolfleet.meta') AS meta,
        current_setting('toolfleet.attempt') AS attempt";
    let outcome = bench.run("read", statement, json!([]), json!({})).await;
    let meta = r#"{"it's":"'; DROP TABLE items"}"#;
    let told = json!([{"key": "key-1", "tenant": "acme", "meta": meta, "attempt": "1"}]);
    assert_eq!(answer(&outcome), told);
}

#[tokio::test]
async fn a_role_that_reaches_the_ledger_is_refused() {
    let mut bench = Bench::new().await;
    for (grant, said) in [
        (
            "GRANT USAGE ON SCHEMA toolfleet TO @tool",
            "reaches schema toolfleet",
        ),
        (
            "REVOKE USAGE ON SCHEMA toolfleet FROM @tool; ALTER USER @tool CREATEROLE",
            "has CREATEROLE",
        ),
        (
            "ALTER USER @tool NOCREATEROLE; GRANT pg_read_all_data TO @tool",
            "a member of pg_read_all_data",
        ),
        (
            "REVOKE pg_read_all_data FROM @tool; ALTER USER @tool SUPERUSER",
            "is a superuser",
        ),
    ] {
        bench.admin(grant).await;
        let outcome = bench
            .run("read", "SELECT 1 AS one", json!([]), json!({}))
            .await;
        assert_eq!(word(&outcome), ("not_started", "unavailable"), "{grant}");
        let message = &outcome.failure().unwrap().message;
        assert!(message.english().contains(said), "{message}");
    }
}

#[tokio::test]
async fn what_cannot_be_reached_has_not_started_and_no_password_is_told() {
    let mut bench = Bench::new().await;
    bench.through(1);
    let outcome = bench
        .run("once", "SELECT 1 AS one", json!([]), json!({}))
        .await;
    assert_eq!(word(&outcome), ("not_started", "unavailable"));
    let none = worker::executors::sql::SqlExecutor::new(None);
    let refused = worker::executors::Executor::prepare(
        &none,
        &manifest("read", "SELECT 1", &json!([])),
        &Value::Null,
        &fleet::secrets::Secrets::default(),
    );
    let message = refused.err().unwrap().message;
    assert!(
        message.english().contains("WORKER_TOOL_DATABASE_URL"),
        "{message}"
    );
    bench.admin("ALTER USER @tool PASSWORD 'hunter3'").await;
    let (_, port) = bench.url.rsplit_once(':').unwrap();
    let port = port.split('/').next().unwrap().parse().unwrap();
    bench.through(port);
    let outcome = bench
        .run("once", "SELECT 1 AS one", json!([]), json!({}))
        .await;
    assert!(!format!("{outcome:?}").contains("hunter"), "{outcome:?}");
    assert!(matches!(
        outcome,
        Outcome::NotStarted(_) | Outcome::Applied { .. }
    ));
}

#[tokio::test]
async fn an_answer_whose_columns_have_changed_is_not_read_by_the_old_names() {
    let mut bench = Bench::new().await;
    let asked = async |bench: &Bench| {
        bench
            .run("read", "SELECT * FROM items", json!([]), json!({}))
            .await
    };
    bench
        .admin("INSERT INTO @tool.items VALUES (1, 'one')")
        .await;
    let before = asked(&bench).await;
    assert_eq!(answer(&before), json!([{"id": 1, "name": "one"}]));
    bench
        .admin("ALTER TABLE @tool.items DROP COLUMN name, ADD COLUMN size bigint DEFAULT 7")
        .await;
    assert_eq!(
        word(&asked(&bench).await),
        ("definite_failure", "tool_crashed")
    );
    let anew = asked(&bench).await;
    assert_eq!(answer(&anew), json!([{"id": 1, "size": 7}]));
    bench
        .admin("ALTER TABLE @tool.items ALTER COLUMN size TYPE double precision")
        .await;
    assert_eq!(
        word(&asked(&bench).await),
        ("definite_failure", "tool_crashed")
    );
    let anew = asked(&bench).await;
    assert_eq!(answer(&anew)[0]["size"].as_f64(), Some(7.0));
}

#[tokio::test]
async fn a_password_that_a_statement_repeats_is_not_in_its_answer() {
    let bench = Bench::new().await;
    for (shown, told) in [(false, "a [secret] b"), (true, "a hunter2 b")] {
        let statement = "SELECT 'a hunter2 b' AS said";
        let mut tool = manifest("read", statement, &json!([]));
        tool.redact_results = !shown;
        let context = context(Duration::from_secs(10));
        let outcome = bench.attempt(&tool, &json!({}), context).await;
        assert_eq!(answer(&outcome), json!([{"said": told}]));
    }
}
