//! Attempts to smuggle something through a SQL tool: each is refused when it is applied, and when it was not checked then,
//! by the server, or does no harm.

use fleet::manifest;
use serde_json::{Value, json};
use sqlx::Row;

use crate::bench::{Bench, word};

/// What is attempted, and whether the lint has to refuse it: what it cannot see, the role must not be able to do.
const ATTEMPTS: [(&str, bool); 56] = [
    ("SELECT 1; DELETE FROM toolfleet.open_calls", true),
    ("SELECT 1; COMMIT; DROP TABLE items", true),
    ("INSERT INTO items VALUES (50); COMMIT", true),
    ("COMMIT", true),
    ("ROLLBACK", true),
    ("ROLLBACK; DROP TABLE items", true),
    ("SAVEPOINT a", true),
    ("BEGIN", true),
    ("SET ROLE postgres", true),
    ("SET SESSION AUTHORIZATION postgres", true),
    ("SELECT set_config('role', 'postgres', false)", true),
    (
        "SELECT pg_catalog.\"set_config\"('session_authorization', 'postgres', false)",
        true,
    ),
    ("RESET ALL", true),
    (
        "COPY items TO PROGRAM 'touch /tmp/toolfleet-smuggled'",
        true,
    ),
    ("COPY items FROM '/etc/passwd'", true),
    ("COPY items FROM STDIN", true),
    ("DROP TABLE items", true),
    (
        "CREATE FUNCTION pwned() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        true,
    ),
    ("DO $$ BEGIN DELETE FROM toolfleet.open_calls; END $$", true),
    ("CALL toolfleet.sweep()", true),
    ("LISTEN everything", true),
    ("PREPARE toolfleet_check AS SELECT 1", true),
    ("EXECUTE toolfleet_check", true),
    ("DEALLOCATE ALL", true),
    ("LOCK TABLE items", true),
    ("VACUUM", true),
    ("SET search_path = toolfleet", true),
    ("SELECT 1 AS one INTO stolen", true),
    ("CREATE TEMP TABLE items AS SELECT 1", true),
    ("SELECT * FROM \"toolfleet\".\"open_calls\"", true),
    ("SELECT * FROM U&\"t\\006folfleet\".open_calls", true),
    ("SELECT * FROM U&\"t\\006folfleet\" . \"calls\"", true),
    ("SELECT 1 /* */ ; /* /* ; */ */ DROP TABLE items", true),
    ("SELECT 1 -- \n; DROP TABLE items", true),
    ("SELECT $a$ $a$; DROP TABLE items; SELECT $b$ $b$", true),
    ("SELECT * FROM toolfleet.calls", true),
    ("SELECT args::text FROM toolfleet /**/ . open_calls", true),
    ("TABLE toolfleet.open_calls", true),
    (
        "WITH gone AS (DELETE FROM toolfleet.open_calls RETURNING 1) SELECT * FROM gone",
        true,
    ),
    ("UPDATE toolfleet.open_calls SET state = 'succeeded'", true),
    ("INSERT INTO toolfleet.tools DEFAULT VALUES", true),
    (
        "MERGE INTO toolfleet.open_calls o USING items i ON true WHEN MATCHED THEN DELETE",
        true,
    ),
    ("SELECT pg_read_file('/etc/passwd')", true),
    (
        "SELECT lo_export(lo_from_bytea(0, 'x'), '/tmp/toolfleet-smuggled')",
        true,
    ),
    (
        "SELECT * FROM dblink('dbname=postgres', 'SELECT 1') AS t(a int)",
        true,
    ),
    (
        "SELECT query_to_xml('SELECT * FROM toolfleet.calls', true, true, '')::text",
        true,
    ),
    (
        "SELECT table_to_xml('toolfleet.calls', true, true, '')::text",
        true,
    ),
    (
        "SELECT * FROM ts_stat('SELECT to_tsvector(args::text) FROM toolfleet.open_calls')",
        true,
    ),
    (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename <> CURRENT_USER",
        true,
    ),
    ("ALTER SYSTEM SET fsync = off", true),
    ("EXPLAIN ANALYZE DELETE FROM items", true),
    ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", true),
    ("SELECT pg_advisory_lock(1)", true),
    ("SELECT toolfleet.settle('x')", true),
    ("SELECT sly_as_tool()", false),
    (
        "SELECT sum(reltuples) FROM pg_class WHERE oid = 'toolfleet.open_calls'::regclass",
        false,
    ),
];

#[tokio::test]
async fn nothing_can_be_smuggled_through_a_statement() {
    let mut bench = Bench::new().await;
    // Whatever a tool's own functions and operators do, they do as its role.
    bench
        .admin(
            "CREATE FUNCTION @tool.sly_as_tool() RETURNS bigint LANGUAGE plpgsql AS
             $$ BEGIN EXECUTE 'DELETE FROM toolfleet.open_calls'; RETURN 1; END $$;
             ALTER FUNCTION @tool.sly_as_tool() OWNER TO @tool;
             CREATE FUNCTION @tool.unnest(anyarray, anyarray) RETURNS SETOF int LANGUAGE sql AS 'SELECT 1';
             INSERT INTO @tool.items VALUES (1, 'one')",
        )
        .await;
    let before = ledger(&mut bench).await;
    let mut passed = Vec::new();
    println!("{:<92} {:<8} without the lint", "attempt", "at apply");
    for (statement, must_refuse) in ATTEMPTS {
        let refused = lint(statement);
        assert!(refused || !must_refuse, "applied: {statement}");
        let outcome = bench.run("once", statement, json!([]), json!({})).await;
        let (word, code) = word(&outcome);
        let by = if refused { "refused" } else { "-" };
        let flat = statement.replace('\n', " ");
        println!("{flat:<92} {by:<8} {word} {code}");
        if word == "applied" {
            passed.push(statement);
        }
    }
    // Reads of catalogues that every role may read, a setting that ends with the connection's use, a lock that does too.
    for statement in &passed {
        assert!(
            HARMLESS.contains(statement),
            "{statement} was run without the lint"
        );
    }
    assert_eq!(ledger(&mut bench).await, before, "the ledger is as it was");
    assert_eq!(bench.ask("SELECT count(*) FROM @tool.items").await, 1);
    let risen =
        "SELECT count(*) FROM pg_roles WHERE rolname = '@tool' AND (rolsuper OR rolcreaterole)";
    assert_eq!(bench.ask(risen).await, 0);
    assert_eq!(
        bench
            .ask("SELECT count(*) FROM pg_proc WHERE proname = 'pwned'")
            .await,
        0
    );
    assert!(!std::path::Path::new("/tmp/toolfleet-smuggled").exists());
    let held = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
        WHERE a.usename = '@tool' AND l.locktype = 'advisory'";
    assert_eq!(bench.ask(held).await, 0);
}

#[tokio::test]
async fn what_stands_in_a_parameter_arrives_as_data() {
    let mut bench = Bench::new().await;
    for (index, text) in [
        "'; DROP TABLE items; --",
        "$1",
        "\\'; COMMIT; --",
        "{name}",
        "secret://DB",
        "1); DELETE FROM items; SELECT (1",
        "U&'\\0041'",
        "$$ $$",
    ]
    .into_iter()
    .enumerate()
    {
        let statement = "INSERT INTO items VALUES ($1, $2) RETURNING name";
        let args = json!({"id": index, "name": text});
        let outcome = bench
            .run("once", statement, json!(["{id}", "{name}"]), args)
            .await;
        assert_eq!(crate::bench::answer(&outcome), json!([{ "name": text }]));
    }
    assert_eq!(bench.ask("SELECT count(*) FROM @tool.items").await, 8);
}

const HARMLESS: [&str; 2] = [
    // The lock ends with DISCARD ALL.
    "SELECT pg_advisory_lock(1)",
    // Every role may read pg_class; resolving the name needs the schema, so it may be refused as well.
    "SELECT sum(reltuples) FROM pg_class WHERE oid = 'toolfleet.open_calls'::regclass",
];

/// Whether `tools apply` refuses the statement.
fn lint(statement: &str) -> bool {
    let file = json!({
        "name": "tool", "version": 1, "description": "a tool that smuggles something", "effect": "once",
        "input_schema": {"type": "object", "additionalProperties": false},
        "executor": {"sql": {"database": "fleet", "statement": statement}},
    });
    manifest::parse(&file.to_string()).is_err()
}

/// The content of every table of the fleet, but for the clock's own.
async fn ledger(bench: &mut Bench) -> Value {
    let tables = sqlx::query(
        "SELECT table_name::text FROM information_schema.tables
         WHERE table_schema = 'toolfleet' AND table_type = 'BASE TABLE' ORDER BY 1",
    )
    .fetch_all(&mut bench.admin)
    .await
    .unwrap();
    let mut content = json!({});
    for table in tables {
        let table: String = table.get(0);
        let hash = format!(
            "SELECT count(*)::bigint + COALESCE(sum(hashtext(t::text)::bigint), 0)::bigint FROM toolfleet.\"{table}\" t"
        );
        content[table] = bench.ask(&hash).await.into();
    }
    content
}
