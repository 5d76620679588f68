//! Names that lie in wait: whatever the role's `search_path`, its functions and its settings hold, our own statements and the
//! function that ends a transaction mean what they say; and what is not the tool's stays out of its reach.

use std::time::Duration;

use fleet::{
    ids::{AttemptId, CallId},
    manifest,
    outcome::Outcome,
};
use fleet_tests::running;
use serde_json::{Value, json};

use crate::bench::{Bench, answer, context, manifest as unchecked, word};

/// Each of them fails when it is called.
const TRAPS: &str = "
    CREATE FUNCTION @tool.caught() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'led astray'; END $$;
    DO $do$
    DECLARE f text; t text; o text;
    BEGIN
        FOREACH f IN ARRAY ARRAY[
            'now()', 'clock_timestamp()', 'pg_backend_pid()', 'set_config(pg_catalog.text, pg_catalog.text, boolean)',
            'current_setting(pg_catalog.text)', 'unnest(pg_catalog.text[])', 'count(bigint)', 'count(pg_catalog.text)',
            'format(pg_catalog.text, pg_catalog.name, pg_catalog.name)', 'format_type(oid, int)', 'strpos(pg_catalog.text, pg_catalog.text)',
            'octet_length(pg_catalog.text)', 'replace(pg_catalog.text, pg_catalog.text, pg_catalog.text)',
            'succeed(pg_catalog.uuid, pg_catalog.uuid, pg_catalog.json)', 'finish()', 'pg_has_role(oid, oid, pg_catalog.text)',
            'has_schema_privilege(oid, oid, pg_catalog.text)', 'session_user()']
        LOOP
            EXECUTE format('CREATE FUNCTION @tool.%s RETURNS boolean LANGUAGE sql AS ''SELECT @tool.caught()''', f);
        END LOOP;
        FOREACH t IN ARRAY ARRAY['text', 'name', 'oid', 'uuid', 'json', '\"char\"', 'int4', 'int8', 'timestamptz'] LOOP
            EXECUTE format('CREATE FUNCTION @tool.trap(pg_catalog.%s, pg_catalog.%s) RETURNS boolean LANGUAGE sql
                AS ''SELECT @tool.caught()''', t, t);
            FOREACH o IN ARRAY ARRAY['=', '<>', '||', '<', '>', '+', '-'] LOOP
                EXECUTE format('CREATE OPERATOR @tool.%s (LEFTARG = pg_catalog.%s, RIGHTARG = pg_catalog.%s, FUNCTION = @tool.trap)', o, t, t);
            END LOOP;
        END LOOP;
        FOREACH t IN ARRAY ARRAY['json', 'uuid', 'timestamptz', 'int4'] LOOP
            EXECUTE format('CREATE TYPE @tool.%I AS ENUM (''led astray'')', t);
            EXECUTE format('CREATE FUNCTION @tool.out_of(@tool.%I) RETURNS pg_catalog.json LANGUAGE sql
                AS ''SELECT ''''\"led astray\"''''::pg_catalog.json''', t);
            EXECUTE format('CREATE CAST (@tool.%I AS pg_catalog.json) WITH FUNCTION @tool.out_of(@tool.%I) AS IMPLICIT', t, t);
        END LOOP;
        FOREACH t IN ARRAY ARRAY['open_calls', 'finished_calls', 'tool_versions', 'pg_type', 'pg_roles', 'pg_namespace',
                                 'pg_prepared_statements'] LOOP
            EXECUTE format('CREATE VIEW @tool.%I AS SELECT @tool.caught() AS oid', t);
        END LOOP;
    END $do$;
    CREATE TABLE @tool.kept (i pg_catalog.int4, u pg_catalog.uuid, j pg_catalog.json, t pg_catalog.text, m pg_catalog.timestamptz);
    GRANT ALL ON ALL TABLES IN SCHEMA @tool TO @tool;
    ALTER ROLE @tool SET search_path = @tool, pg_catalog;
    GRANT USAGE ON SCHEMA toolfleet_tool TO @tool;
    GRANT EXECUTE ON FUNCTION toolfleet_tool.succeed TO @tool";

/// What a tool's own function can do to the session before the call is ended.
const MISCHIEF: &str = "
    CREATE FUNCTION @tool.mischief() RETURNS int LANGUAGE plpgsql AS $$
    DECLARE s text;
    BEGIN
        CREATE TEMP TABLE open_calls (call_id uuid);
        CREATE TEMP TABLE finished_calls (call_id uuid);
        CREATE TEMP TABLE tool_versions (tool text);
        CREATE TEMP VIEW pg_type AS SELECT 1 AS oid;
        CREATE FUNCTION pg_temp.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT timestamptz ''epoch''';
        CREATE FUNCTION pg_temp.finish(int) RETURNS int LANGUAGE sql AS 'SELECT 1';
        FOREACH s IN ARRAY ARRAY['search_path=pg_temp,toolfleet_tool,@tool', 'timezone=Pacific/Kiritimati', 'datestyle=SQL,DMY',
            'standard_conforming_strings=off', 'transform_null_equals=on', 'synchronous_commit=off', 'statement_timeout=0',
            'row_security=off', 'enable_indexscan=off', 'toolfleet.call_id=another', 'quote_all_identifiers=on',
            'check_function_bodies=off', 'array_nulls=off', 'extra_float_digits=-15']
        LOOP
            PERFORM set_config(split_part(s, '=', 1), split_part(s, '=', 2), true);
        END LOOP;
        INSERT INTO @tool.items VALUES (7);
        RETURN 7;
    END $$;
    GRANT USAGE ON SCHEMA toolfleet_tool TO @tool;
    GRANT EXECUTE ON FUNCTION toolfleet_tool.succeed TO @tool";

/// Runs a statement as a `transaction` whose call runs.
async fn transact(bench: &mut Bench, statement: &str, params: Value) -> (CallId, Outcome) {
    let context = context(Duration::from_secs(10));
    let call = context.call_id;
    running::transaction(&mut bench.admin, call, context.attempt_id).await;
    let tool = unchecked("transaction", statement, &params);
    (call, bench.attempt(&tool, &json!({}), context).await)
}

/// How a call has ended, and with what; none: it runs.
async fn ended(bench: &mut Bench, call: CallId) -> Option<(String, Value)> {
    let (state, result): (Option<String>, Option<Value>) = sqlx::query_as(
        "SELECT f.state::text, f.result FROM (VALUES ($1)) AS c (id) \
         LEFT JOIN toolfleet.finished_calls f ON f.call_id = c.id",
    )
    .bind(call.0)
    .fetch_one(&mut bench.admin)
    .await
    .unwrap();
    state.map(|state| (state, result.unwrap_or_default()))
}

#[tokio::test]
async fn what_shadows_our_names_is_never_asked() {
    let mut bench = Bench::new().await;
    bench.admin(TRAPS).await;
    let id = "00000000-0000-0000-0000-000000000001";
    let when = "2026-11-21T01:02:03.000000Z";
    let insert = "INSERT INTO kept VALUES ($1, $2, $3, $4, $5)
        RETURNING COALESCE(i) AS i, COALESCE(u) AS u, COALESCE(j) AS j, COALESCE(t) AS t, COALESCE(m) AS m";
    let params = json!([1, id, {"a": 1.50}, "x", when]);
    let row = json!([{"i": 1, "u": id, "j": {"a": 1.50}, "t": "x", "m": when}]);
    let once = bench.run("once", insert, params.clone(), json!({})).await;
    let text = |value: &Value| value.to_string().replace(".000000Z", "Z");
    assert_eq!(text(&answer(&once)), text(&row));
    let read = bench
        .run(
            "read",
            "SELECT COALESCE(i) AS i FROM kept",
            json!([]),
            json!({}),
        )
        .await;
    assert_eq!(answer(&read), json!([{"i": 1}]));
    let (call, outcome) = transact(&mut bench, insert, params).await;
    assert_eq!(text(&answer(&outcome)), text(&row));
    let (state, result) = ended(&mut bench, call).await.unwrap();
    assert_eq!((state.as_str(), text(&result)), ("succeeded", text(&row)));
    // What is asked of a plain column is asked of the server's own names, too.
    let plain = "INSERT INTO kept VALUES (9) RETURNING i";
    let plain = bench.run("once", plain, json!([]), json!({})).await;
    assert_eq!(answer(&plain), json!([{"i": 9}]));
    assert_eq!(bench.ask("SELECT count(*) FROM @tool.kept").await, 3);
    // They do lie there.
    let led = bench
        .run("once", "SELECT now()", json!([]), json!({}))
        .await;
    assert!(
        led.failure()
            .is_some_and(|led| led.message.english().contains("led astray")),
        "{led:?}"
    );
}

#[tokio::test]
async fn what_a_tool_does_to_its_session_does_not_reach_the_end_of_its_call() {
    let mut bench = Bench::new().await;
    bench.admin(MISCHIEF).await;
    let statement = "SELECT mischief() AS n, 'a\\b' AS t";
    let (call, outcome) = transact(&mut bench, statement, json!([])).await;
    let said = json!([{"n": 7, "t": "a\\b"}]);
    assert_eq!(answer(&outcome), said);
    assert_eq!(
        ended(&mut bench, call).await,
        Some(("succeeded".to_owned(), said))
    );
    let lately = format!(
        "SELECT count(*) FROM toolfleet.finished_calls WHERE call_id = '{}' AND finished_at BETWEEN now() - interval '1 minute' AND now()",
        call.0
    );
    assert_eq!(bench.ask(&lately).await, 1);
    // And nothing of it is left for the next one on that connection.
    let clean = bench
        .run(
            "read",
            "SELECT count(*) AS n FROM pg_class WHERE relname = 'open_calls' AND relpersistence = 't'",
            json!([]),
            json!({}),
        )
        .await;
    assert_eq!(answer(&clean), json!([{"n": 0}]));
}

#[tokio::test]
async fn a_tool_cannot_end_a_call_by_itself() {
    let mut bench = Bench::new().await;
    bench.admin(MISCHIEF).await;
    bench
        .admin(
            "CREATE FUNCTION @tool.does(what text) RETURNS int LANGUAGE plpgsql AS
             $$ BEGIN EXECUTE what; INSERT INTO @tool.items VALUES (8); RETURN 1; END $$",
        )
        .await;
    let (other, held) = (CallId::generate(), AttemptId::generate());
    running::transaction(&mut bench.admin, other, held).await;
    let succeed = |call: CallId, attempt: AttemptId| {
        format!(
            "SELECT * FROM toolfleet_tool.succeed('{}', '{}', '\"mine\"')",
            call.0, attempt.0
        )
    };
    let guess = AttemptId::generate();
    let own = "SELECT * FROM toolfleet_tool.succeed(current_setting('toolfleet.call_id')::uuid, gen_random_uuid(), '1')";
    for (what, sqlstate) in [
        (succeed(other, guess), "TF001"),
        (succeed(CallId::generate(), held), "TF001"),
        (own.to_owned(), "TF001"),
        (format!("SELECT toolfleet.cancel('{}', 'me')", other.0), "42501"),
        (format!("SELECT toolfleet.settle('{}', 'applied', 'me', 'because')", other.0), "42501"),
        (
            "SELECT toolfleet.finish(o, 'succeeded', 'success', 'live', 'applied', '1', NULL, 'me', '', NULL) \
             FROM toolfleet.open_calls o"
                .to_owned(),
            "42501",
        ),
        ("UPDATE toolfleet.open_calls SET state = 'queued'".to_owned(), "42501"),
        ("SELECT attempt_id FROM toolfleet.open_calls".to_owned(), "42501"),
    ] {
        // As the statement itself, and hidden in a function.
        for (statement, params) in [(what.as_str(), json!([])), ("SELECT does($1)", json!([what]))] {
            let (call, outcome) = transact(&mut bench, statement, params).await;
            assert_eq!(word(&outcome), ("definite_failure", "tool_crashed"), "{statement} {what}: {outcome:?}");
            let details = outcome.failure().unwrap().details.as_ref().unwrap();
            assert_eq!(details["sqlstate"], sqlstate, "{what}");
            assert_eq!(ended(&mut bench, call).await, None, "{what}");
        }
    }
    // No tool is told the id of an attempt. A tool that knew its own would have ended it before its time, and that
    // undoes itself; twice is once too often already.
    for twice in [false, true] {
        let context = context(Duration::from_secs(10));
        let (call, attempt) = (context.call_id, context.attempt_id);
        running::transaction(&mut bench.admin, call, attempt).await;
        let again = succeed(call, attempt);
        let statement = if twice {
            format!(
                "SELECT (SELECT state FROM ({again}) a) AS a, (SELECT state FROM ({again}) b) AS b"
            )
        } else {
            again
        };
        let tool = unchecked("transaction", &statement, &json!([]));
        let outcome = bench.attempt(&tool, &json!({}), context).await;
        assert_eq!(outcome.word().as_str(), "definite_failure", "{outcome:?}");
        assert_eq!(ended(&mut bench, call).await, None);
    }
    let told = bench
        .run(
            "read",
            "SELECT count(*) AS n FROM pg_settings WHERE setting LIKE '%' || $1 || '%'",
            json!([held.0.to_string()]),
            json!({}),
        )
        .await;
    assert_eq!(answer(&told), json!([{"n": 0}]));
    assert_eq!(ended(&mut bench, other).await, None);
    assert_eq!(bench.ask("SELECT count(*) FROM @tool.items").await, 0);
}

#[test]
fn the_function_of_the_worker_is_refused_however_it_is_written() {
    for function in [
        "toolfleet_tool.succeed",
        "TOOLFLEET_TOOL.Succeed",
        "\"toolfleet_tool\".succeed",
        "\"toolfleet_tool\" . \"succeed\"",
        "toolfleet_tool /* a /* b */ */ . -- c\n succeed",
        "U&\"toolfleet\\005ftool\".succeed",
        "U&\"toolfleet!005ftool\" UESCAPE '!' . succeed",
        "u&\"toolfleet_tool\".succeed",
    ] {
        let file = json!({
            "name": "tool", "version": 1, "description": "a tool that ends its own call", "effect": "transaction",
            "input_schema": {"type": "object", "additionalProperties": false},
            "executor": {"sql": {"database": "fleet", "statement": format!("SELECT * FROM {function}(NULL, NULL, NULL)")}},
        });
        let refused = manifest::parse(&file.to_string());
        let why = format!("{:?}", refused.expect_err(function));
        assert!(
            why.contains("the fleet's own") || why.contains("U& hides"),
            "{function}: {why}"
        );
    }
}
