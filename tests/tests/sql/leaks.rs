//! A call leaves nothing behind in its connection that the next call, of any tool, could notice.

use serde_json::{Value, json};

use crate::bench::{Bench, answer, word};

/// Each a function of the tools' own role that leaves something in the session, and how the next call could notice it.
const LEAKS: [(&str, &str, &str); 11] = [
    (
        "a setting",
        "PERFORM set_config('work_mem', '64kB', false)",
        "SELECT current_setting('work_mem') <> '64kB' AS clean",
    ),
    (
        "a search_path",
        "PERFORM set_config('search_path', 'pg_catalog', false)",
        "SELECT current_schema() = CURRENT_USER AS clean",
    ),
    (
        "a fact of its own",
        "PERFORM set_config('toolfleet.mine', 'mine', false)",
        "SELECT coalesce(current_setting('toolfleet.mine', true), '') = '' AS clean",
    ),
    (
        "a temporary table",
        "EXECUTE 'CREATE TEMP TABLE items (id int, name text)'",
        "SELECT count(*) = 0 AS clean FROM pg_class WHERE relpersistence = 't' AND relnamespace = pg_my_temp_schema()",
    ),
    (
        "a lock",
        "PERFORM pg_advisory_lock(42)",
        "SELECT count(*) = 0 AS clean FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    ),
    (
        "a lock, where nothing is prepared any more",
        "PERFORM pg_advisory_lock(42); EXECUTE 'DEALLOCATE ALL'",
        "SELECT count(*) = 0 AS clean FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    ),
    (
        "a prepared statement",
        "EXECUTE 'PREPARE mine AS SELECT 1'",
        "SELECT count(*) = 0 AS clean FROM pg_prepared_statements WHERE from_sql",
    ),
    (
        "a cursor",
        "EXECUTE 'DECLARE mine CURSOR WITH HOLD FOR SELECT 1'",
        "SELECT count(*) = 0 AS clean FROM pg_cursors WHERE name = 'mine'",
    ),
    (
        "an ear",
        "EXECUTE 'LISTEN mine'",
        "SELECT count(*) = 0 AS clean FROM pg_listening_channels()",
    ),
    (
        "a role",
        "EXECUTE 'SET ROLE other@tool'",
        "SELECT CURRENT_USER = SESSION_USER AS clean",
    ),
    (
        "the last number of a sequence",
        "PERFORM nextval('numbers')",
        "SELECT toolfleet_lastval() IS NULL AS clean",
    ),
];

/// With connections that were used before, on which all our statements are prepared.
async fn bench() -> Bench {
    let mut bench = Bench::new().await;
    bench
        .admin(
            "CREATE ROLE other@tool; GRANT other@tool TO @tool; CREATE SEQUENCE @tool.numbers;
             ALTER SEQUENCE @tool.numbers OWNER TO @tool;
             CREATE FUNCTION @tool.toolfleet_lastval() RETURNS bigint LANGUAGE plpgsql AS $$
             BEGIN RETURN lastval(); EXCEPTION WHEN object_not_in_prerequisite_state THEN RETURN NULL; END $$",
        )
        .await;
    bench
}

async fn pid(bench: &Bench) -> Value {
    let asked = bench
        .run(
            "once",
            "SELECT pg_backend_pid() AS pid",
            json!([]),
            json!({}),
        )
        .await;
    answer(&asked)[0]["pid"].clone()
}

#[tokio::test]
async fn nothing_of_a_call_is_left_for_the_next() {
    let mut bench = bench().await;
    for (what, leaves, notices) in LEAKS {
        bench
            .admin(&format!(
                "CREATE OR REPLACE FUNCTION @tool.leave() RETURNS int LANGUAGE plpgsql AS $$ BEGIN {leaves}; RETURN 1; END $$"
            ))
            .await;
        let before = pid(&bench).await;
        // What it left is there within its own transaction: otherwise this would prove nothing.
        let leaving = "SELECT leave() AS left_it";
        let outcome = bench.run("once", leaving, json!([]), json!({})).await;
        assert_eq!(word(&outcome).0, "applied", "{what}: {outcome:?}");
        let noticed = bench.run("once", notices, json!([]), json!({})).await;
        assert_eq!(answer(&noticed), json!([{"clean": true}]), "{what}");
        if what != "a prepared statement" {
            assert_eq!(
                pid(&bench).await,
                before,
                "{what}: it was the same connection"
            );
        }
    }
}

#[tokio::test]
async fn a_statement_of_ours_cannot_be_replaced_for_the_next_call() {
    let mut bench = bench().await;
    bench
        .admin(
            "CREATE FUNCTION @tool.replace_all() RETURNS int LANGUAGE plpgsql AS $$
             DECLARE one record;
             BEGIN
                 FOR one IN SELECT name FROM pg_prepared_statements WHERE statement LIKE '%honest%' LOOP
                     EXECUTE format('DEALLOCATE %I', one.name);
                     EXECUTE format('PREPARE %I AS SELECT ''forged''::text AS word', one.name);
                 END LOOP;
                 RETURN (SELECT count(*) FROM pg_prepared_statements WHERE from_sql);
             END $$",
        )
        .await;
    let honest = "SELECT 'honest'::text AS word";
    let said = async |bench: &Bench| {
        let outcome = bench.run("once", honest, json!([]), json!({})).await;
        answer(&outcome)[0]["word"].clone()
    };
    assert_eq!(said(&bench).await, "honest");
    let outcome = bench
        .run(
            "once",
            "SELECT replace_all() AS replaced",
            json!([]),
            json!({}),
        )
        .await;
    assert_eq!(
        answer(&outcome),
        json!([{"replaced": 1}]),
        "it was replaced"
    );
    assert_eq!(said(&bench).await, "honest");
}

#[tokio::test]
async fn a_statement_of_ours_that_was_thrown_away_is_prepared_again() {
    let mut bench = bench().await;
    bench
        .admin(
            "CREATE FUNCTION @tool.deallocate_all() RETURNS int LANGUAGE plpgsql AS $$
             BEGIN EXECUTE 'DEALLOCATE ALL'; RETURN 1; END $$",
        )
        .await;
    for _ in 0..3 {
        let outcome = bench
            .run(
                "once",
                "SELECT deallocate_all() AS done",
                json!([]),
                json!({}),
            )
            .await;
        assert_eq!(answer(&outcome), json!([{"done": 1}]));
    }
}

#[tokio::test]
async fn a_table_that_changes_costs_a_prepared_statement_one_attempt() {
    let mut bench = bench().await;
    let all = "SELECT * FROM items";
    bench
        .admin("INSERT INTO @tool.items VALUES (1, 'one')")
        .await;
    let ask = async |bench: &Bench| bench.run("read", all, json!([]), json!({})).await;
    // Two connections have it prepared.
    let (one, two) = tokio::join!(ask(&bench), ask(&bench));
    assert_eq!(answer(&one), answer(&two));
    bench
        .admin("ALTER TABLE @tool.items ADD COLUMN price int")
        .await;
    let refused = ask(&bench).await;
    assert_eq!(
        word(&refused),
        ("definite_failure", "tool_crashed"),
        "{refused:?}"
    );
    let (one, two) = tokio::join!(ask(&bench), ask(&bench));
    let row = json!([{"id": 1, "name": "one", "price": null}]);
    assert_eq!((answer(&one), answer(&two)), (row.clone(), row));
}
