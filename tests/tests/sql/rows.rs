//! How many rows a tool expects: anything else is rolled back, and is the tool's "no".

use std::time::Duration;

use fleet::{manifest::Manifest, outcome::Outcome};
use fleet_tests::running;
use serde_json::{Value, json};

use crate::bench::{Bench, answer, context, manifest, word};

fn expecting(effect: &str, statement: &str, rows: &Value) -> Manifest {
    let plain = manifest(effect, statement, &json!([]));
    let mut changed = serde_json::to_value(plain).unwrap();
    changed["executor"]["sql"]["rows"] = rows.clone();
    serde_json::from_value(changed).unwrap()
}

async fn run(bench: &Bench, effect: &str, statement: &str, rows: Value) -> Outcome {
    let manifest = expecting(effect, statement, &rows);
    let context = context(Duration::from_secs(10));
    bench.attempt(&manifest, &json!({}), context).await
}

fn details(outcome: &Outcome) -> Value {
    outcome.failure().unwrap().details.clone().unwrap()
}

const ITEMS: &str = "SELECT count(*) FROM @tool.items";

#[tokio::test]
async fn another_number_of_rows_than_expected_is_rolled_back_and_a_no() {
    let mut bench = Bench::new().await;
    bench
        .admin("INSERT INTO @tool.items SELECT n, 'old' FROM generate_series(1, 3) n")
        .await;
    let changed = "SELECT count(*) FROM @tool.items WHERE name <> 'old'";
    for effect in ["once", "idempotent"] {
        for (statement, rows, found, expected) in [
            (
                "UPDATE items SET name = 'new' WHERE id = 9",
                json!({"min": 1}),
                0,
                "at least 1 row",
            ),
            (
                "UPDATE items SET name = 'new'",
                json!({"max": 1}),
                3,
                "at most 1 row",
            ),
            (
                "UPDATE items SET name = 'new' RETURNING id",
                json!({"min": 1, "max": 2}),
                3,
                "1 to 2 rows",
            ),
            (
                "DELETE FROM items RETURNING *",
                json!({"min": 4, "max": 4}),
                3,
                "exactly 4 rows",
            ),
            (
                "INSERT INTO items SELECT n FROM generate_series(4, 9) n",
                json!({"max": 0}),
                6,
                "at most 0 rows",
            ),
        ] {
            let outcome = run(&bench, effect, statement, rows.clone()).await;
            assert_eq!(
                word(&outcome),
                ("definite_failure", "tool_error"),
                "{outcome:?}"
            );
            assert_eq!(
                details(&outcome),
                json!({"rows": found, "expected_rows": rows})
            );
            let message = &outcome.failure().unwrap().message;
            assert_eq!(
                message.english(),
                format!("expected {expected}, found {found}")
            );
            assert_eq!(bench.ask(ITEMS).await, 3, "{effect}: {statement}");
            assert_eq!(bench.ask(changed).await, 0, "{effect}: {statement}");
        }
    }
}

#[tokio::test]
async fn as_many_rows_as_expected_are_an_answer_as_ever() {
    let mut bench = Bench::new().await;
    let insert = "INSERT INTO items SELECT n FROM generate_series(1, 3) n";
    let outcome = run(&bench, "once", insert, json!({"min": 3, "max": 3})).await;
    assert_eq!(answer(&outcome), json!({"rows_affected": 3}));
    let update = "UPDATE items SET name = 'new' WHERE id < 3 RETURNING id";
    let outcome = run(&bench, "once", update, json!({"min": 1, "max": 2})).await;
    assert_eq!(answer(&outcome), json!([{"id": 1}, {"id": 2}]));
    assert_eq!(
        bench
            .ask("SELECT count(*) FROM @tool.items WHERE name = 'new'")
            .await,
        2
    );
}

#[tokio::test]
async fn a_read_that_does_not_find_what_it_expects_is_a_no() {
    let bench = Bench::new().await;
    let none = run(&bench, "read", "SELECT * FROM items", json!({"min": 1})).await;
    assert_eq!(word(&none), ("definite_failure", "tool_error"), "{none:?}");
    let rows = "SELECT generate_series(1, 5000) AS n";
    let many = run(&bench, "read", rows, json!({"max": 1})).await;
    assert_eq!(word(&many), ("definite_failure", "tool_error"), "{many:?}");
    assert_eq!(details(&many)["rows"], 5000, "all are counted");
    let rows = "SELECT generate_series(1, 20000) AS n";
    let more = run(&bench, "read", rows, json!({"max": 1})).await;
    assert_eq!(
        word(&more),
        ("definite_failure", "output_too_large"),
        "{more:?}"
    );
}

#[tokio::test]
async fn a_transaction_whose_rows_are_not_as_expected_leaves_its_call_open() {
    let mut bench = Bench::new().await;
    bench
        .admin(
            "GRANT USAGE ON SCHEMA toolfleet_tool TO @tool;
             GRANT EXECUTE ON FUNCTION toolfleet_tool.succeed TO @tool",
        )
        .await;
    let insert = "INSERT INTO items VALUES (1), (2)";
    for (rows, expected) in [
        (json!({"max": 1}), ("definite_failure", "tool_error")),
        (json!({"min": 2, "max": 2}), ("applied", "")),
    ] {
        let tool = expecting("transaction", insert, &rows);
        let context = context(Duration::from_secs(10));
        let call = context.call_id;
        running::transaction(&mut bench.admin, call, context.attempt_id).await;
        let outcome = bench.attempt(&tool, &json!({}), context).await;
        assert_eq!(word(&outcome), expected, "{outcome:?}");
        let done = i64::from(expected.0 == "applied");
        assert_eq!(bench.ask(ITEMS).await, 2 * done);
        let ended = format!(
            "SELECT count(*) FROM toolfleet.finished_calls WHERE call_id = '{}' AND state = 'succeeded'",
            call.0
        );
        assert_eq!(bench.ask(&ended).await, done);
    }
}

#[tokio::test]
async fn a_repetition_that_finds_fewer_rows_after_an_unknown_attempt_proves_nothing() {
    let bench = Bench::new().await;
    let again = "INSERT INTO items VALUES (1) ON CONFLICT DO NOTHING";
    let first = run(&bench, "idempotent", again, json!({"min": 1})).await;
    assert_eq!(word(&first).0, "applied");
    let second = run(&bench, "idempotent", again, json!({"min": 1})).await;
    assert_eq!(word(&second), ("definite_failure", "tool_error"));
    // Where it is unknown whether the first one was applied.
    assert_eq!(word(&second.after_unknown()), ("unknown", "unavailable"));
}

/// What the database says of this transaction alone says nothing of the one before, of which nobody knows whether it was committed.
#[tokio::test]
async fn what_ends_a_repetition_after_an_unknown_attempt_proves_nothing_of_that_one() {
    let bench = Bench::new().await;
    let insert = "INSERT INTO items VALUES (1)";
    let first = run(&bench, "idempotent", insert, json!({"min": 0})).await;
    assert_eq!(word(&first).0, "applied");
    let there_already = run(&bench, "idempotent", insert, json!({"min": 0})).await;
    assert_eq!(word(&there_already), ("definite_failure", "tool_error"));
    assert_eq!(
        word(&there_already.after_unknown()),
        ("unknown", "unavailable")
    );
    let slow = "SELECT pg_sleep(60)";
    let tool = expecting("idempotent", slow, &json!({"min": 0}));
    let cut = bench
        .attempt(&tool, &json!({}), context(Duration::from_secs(1)))
        .await;
    assert_eq!(word(&cut), ("definite_failure", "timeout"));
    assert_eq!(word(&cut.after_unknown()), ("not_started", "timeout"));
}
