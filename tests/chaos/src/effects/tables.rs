//! SQL tools: their tables, their statements, and what came of them.

use sqlx::{AssertSqlSafe, PgConnection, PgPool};

/// How many accounts there are.
pub const ACCOUNTS: u64 = 64;
/// What every account has at first.
const BALANCE: u64 = 10_000;
/// What they have together, at any time.
pub const TOTAL: u64 = ACCOUNTS * BALANCE;

/// What SQL tools did for one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The tool.
    pub tool: String,
    /// Which of the clients' calls.
    pub n: u64,
    /// The call, as the tool was told.
    pub call: String,
    /// How often.
    pub times: u64,
}

/// Makes the tables in schema `tools`, as their owner.
///
/// # Errors
///
/// The server refuses.
pub async fn lay_out(owner: &mut PgConnection) -> sqlx::Result<()> {
    // Who a row is from: as the tool was told.
    let told = "n bigint NOT NULL, call text NOT NULL DEFAULT current_setting('toolfleet.call_id'), \
                attempt int NOT NULL DEFAULT current_setting('toolfleet.attempt')::int, mode text NOT NULL";
    // Made of words of this file.
    let tables = format!(
        "CREATE TABLE tools.notes ({told}, key text NOT NULL); \
         CREATE TABLE tools.puts ({told}, key text PRIMARY KEY); \
         CREATE TABLE tools.journal ({told}, from_account int NOT NULL, to_account int NOT NULL, amount bigint NOT NULL); \
         CREATE TABLE tools.accounts (id int PRIMARY KEY, balance bigint NOT NULL CHECK (balance >= 0)); \
         INSERT INTO tools.accounts SELECT n, {BALANCE} FROM generate_series(0, {ACCOUNTS} - 1) n; \
         {BEHAVE}"
    );
    sqlx::raw_sql(AssertSqlSafe(tables)).execute(owner).await?;
    Ok(())
}

/// What SQL tools did so far, each call by itself.
///
/// # Errors
///
/// The server does not answer.
pub async fn read_tables(pool: &PgPool) -> sqlx::Result<Vec<Row>> {
    let rows: Vec<(String, i64, String, i64)> = sqlx::query_as(
        "SELECT tool, n, call, count(*) FROM ( \
             SELECT 'sql_note' AS tool, n, call FROM tools.notes \
             UNION ALL SELECT 'sql_put', n, call FROM tools.puts \
             UNION ALL SELECT 'transfer', n, call FROM tools.journal) did \
         GROUP BY tool, n, call ORDER BY n, tool, call",
    )
    .fetch_all(pool)
    .await?;
    let rows = rows.into_iter().map(|(tool, n, call, times)| Row {
        tool,
        n: n.unsigned_abs(),
        call,
        times: times.unsigned_abs(),
    });
    Ok(rows.collect())
}

/// What all accounts have together now: [`TOTAL`], unless money was made or lost.
///
/// # Errors
///
/// The server does not answer.
pub async fn total(pool: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT sum(balance)::bigint FROM tools.accounts")
        .fetch_one(pool)
        .await
}

/// The statement of a tool, and its parameters.
///
/// # Panics
///
/// It is not a SQL tool.
pub(super) fn statement(tool: &str) -> (&'static str, Vec<&'static str>) {
    match tool {
        "sql_note" => (NOTE, vec!["{n}", "{mode}"]),
        "sql_put" => (PUT, vec!["{n}", "{mode}"]),
        "sql_look" => (LOOK, vec!["{n}", "{mode}"]),
        "transfer" => (
            TRANSFER,
            vec!["{n}", "{mode}", "{from}", "{to}", "{amount}"],
        ),
        other => unreachable!("{other} is not a SQL tool"),
    }
}

const NOTE: &str = "INSERT INTO tools.notes (n, mode, key) \
    SELECT $1::bigint, $2::text, current_setting('toolfleet.idempotency_key') FROM tools.behave($2::text) RETURNING n";
const PUT: &str = "INSERT INTO tools.puts (n, mode, key) \
    SELECT $1::bigint, $2::text, current_setting('toolfleet.idempotency_key') FROM tools.behave($2::text) \
    ON CONFLICT (key) DO NOTHING RETURNING n";
const LOOK: &str = "SELECT $1::bigint AS n, count(*) AS accounts, sum(balance) AS total, min(b.how) AS how \
    FROM tools.accounts, (SELECT tools.behave($2::text) AS how OFFSET 0) b";
/// Accounts are locked in their order, so that two transfers never wait for each other; and only then, for a slow one
/// would hold up all others.
const TRANSFER: &str = "WITH behaved AS MATERIALIZED (SELECT tools.behave($2::text) AS how), \
    locked AS MATERIALIZED ( \
        SELECT a.id FROM behaved, tools.accounts a WHERE behaved.how IS NOT NULL AND a.id IN ($3::int, $4::int) \
        ORDER BY a.id FOR UPDATE OF a), \
    moved AS ( \
        UPDATE tools.accounts a \
        SET balance = a.balance + CASE WHEN a.id = $3::int THEN -$5::bigint ELSE $5::bigint END \
        FROM locked WHERE a.id = locked.id RETURNING a.id, a.balance), \
    noted AS ( \
        INSERT INTO tools.journal (n, mode, from_account, to_account, amount) \
        VALUES ($1::bigint, $2::text, $3::int, $4::int, $5::bigint)) \
    SELECT id, balance FROM moved ORDER BY id";

/// What a mode means in the middle of a statement, which is done or undone as a whole.
const BEHAVE: &str = "CREATE FUNCTION tools.behave(mode text) RETURNS text LANGUAGE plpgsql AS $$ \
    DECLARE first boolean := current_setting('toolfleet.attempt') = '1'; \
    BEGIN \
        CASE \
            WHEN mode = 'slow' THEN PERFORM pg_sleep(1); \
            WHEN mode = 'business' THEN RAISE EXCEPTION 'not on a Saturday; choose another day'; \
            WHEN mode = 'error_before' AND first THEN RAISE EXCEPTION 'broken' USING ERRCODE = '40001'; \
            WHEN mode = 'hang_before' AND first THEN PERFORM pg_sleep(60); \
            WHEN mode = 'huge' THEN RETURN repeat('x', 262144); \
            ELSE NULL; \
        END CASE; \
        RETURN mode; \
    END $$";
