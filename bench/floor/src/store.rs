//! The tables and the three statements of a call: accept, claim, complete. Each takes a batch and commits by itself.

use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection, Row,
    postgres::PgConnectOptions,
};
use uuid::Uuid;

const SCHEMA: &str = include_str!("schema.sql");
const DROP: &str = "DROP SCHEMA IF EXISTS toolfleet_floor CASCADE";
/// One run in a database at a time: the second would drop the tables of the first.
const LOCK: &str = "SELECT pg_try_advisory_lock(hashtext('toolfleet_floor'))";

const ACCEPT: &str = "
WITH input AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[])
        AS input (call_id, tenant, tool, key, args)
), keyed AS (
    INSERT INTO toolfleet_floor.keys (tenant, key, call_id)
    SELECT tenant, key, call_id FROM input
    ON CONFLICT DO NOTHING
    RETURNING call_id
)
INSERT INTO toolfleet_floor.open_calls (call_id, tenant, tool, key, args)
SELECT call_id, tenant, tool, key, args FROM input WHERE call_id IN (SELECT call_id FROM keyed)";

const CLAIM: &str = "
UPDATE toolfleet_floor.open_calls o
SET state = 'running', attempt_id = i.attempt_id, worker = $3, started_at = now()
FROM unnest($1::uuid[], $2::uuid[]) AS i (call_id, attempt_id)
WHERE o.call_id = i.call_id AND o.state = 'queued'
RETURNING o.call_id, o.attempt_id, o.tool, o.args";

const COMPLETE: &str = "
WITH ended AS (
    DELETE FROM toolfleet_floor.open_calls o
    USING unnest($1::uuid[], $2::uuid[], $3::text[]) AS i (call_id, attempt_id, result)
    WHERE o.call_id = i.call_id AND o.attempt_id = i.attempt_id AND o.state = 'running'
    RETURNING o.call_id, o.tenant, o.tool, o.key, o.args, i.result, o.accepted_at, o.attempt_id, o.worker, o.started_at
), finished AS (
    INSERT INTO toolfleet_floor.history (call_id, tenant, tool, key, args, state, result, accepted_at, finished_at)
    SELECT call_id, tenant, tool, key, args, 'succeeded', result, accepted_at, now() FROM ended
)
INSERT INTO toolfleet_floor.attempts (call_id, attempt_id, worker, started_at, finished_at, outcome)
SELECT call_id, attempt_id, worker, started_at, now(), 'applied' FROM ended";

/// The schema of one run, and the connection whose lock keeps other runs away.
#[derive(Debug)]
pub struct Store {
    options: PgConnectOptions,
    guard: PgConnection,
}

impl Store {
    /// Makes the tables anew.
    ///
    /// # Errors
    ///
    /// Postgres cannot be reached, refuses, or another run is there.
    pub async fn create(url: &str) -> anyhow::Result<Self> {
        // The error would quote the URL, which may contain a password.
        let options = PgConnectOptions::from_str(url)
            .ok()
            .context("read the database's URL: it is not a postgres:// URL")?
            .application_name("toolfleet-floor")
            .options([("jit", "off"), ("statement_timeout", "10s")])
            .disable_statement_logging();
        let connecting = PgConnection::connect_with(&options).await;
        let mut guard = connecting.context("connect to Postgres")?;
        let alone: bool = sqlx::query_scalar(LOCK).fetch_one(&mut guard).await?;
        ensure!(
            alone,
            "another toolfleet-floor runs in this database; wait for its end"
        );
        guard.execute(DROP).await.context("drop old tables")?;
        guard.execute(SCHEMA).await.context("make the tables")?;
        Ok(Self { options, guard })
    }

    /// A connection for one of the statements.
    ///
    /// # Errors
    ///
    /// Postgres cannot be reached.
    pub async fn lane(&self) -> anyhow::Result<Lane> {
        let connecting = PgConnection::connect_with(&self.options).await;
        let mut connection = connecting.context("connect to Postgres")?;
        // A new table has no statistics, and a plan for an empty table reads a full one as a whole.
        for way in ["enable_seqscan", "enable_hashjoin", "enable_mergejoin"] {
            let set = AssertSqlSafe(format!("SET {way} = off"));
            connection.execute(set).await?;
        }
        connection
            .execute("SET plan_cache_mode = force_generic_plan")
            .await?;
        Ok(Lane { connection })
    }

    /// The folder of the server's programs; only a superuser is told.
    pub async fn programs(&mut self) -> Option<String> {
        let asking = sqlx::query_scalar("SELECT setting FROM pg_config WHERE name = 'BINDIR'");
        asking.fetch_one(&mut self.guard).await.ok()
    }

    /// Empties the tables.
    ///
    /// # Errors
    ///
    /// Postgres refuses.
    pub async fn empty(&mut self) -> anyhow::Result<()> {
        let emptying = self.guard.execute(
            "TRUNCATE toolfleet_floor.open_calls, toolfleet_floor.keys, toolfleet_floor.history, toolfleet_floor.attempts",
        );
        emptying.await.context("empty the tables")?;
        Ok(())
    }

    /// Drops everything.
    ///
    /// # Errors
    ///
    /// Postgres refuses.
    pub async fn remove(mut self) -> anyhow::Result<()> {
        // A session that was cut off in a statement still holds its locks until the server notices.
        self.guard.execute("SET lock_timeout = '10s'").await?;
        self.guard.execute(DROP).await.context("drop the tables")?;
        self.guard.close().await?;
        Ok(())
    }
}

/// A connection for one statement.
#[derive(Debug)]
pub struct Lane {
    connection: PgConnection,
}

/// Calls that came, column by column.
#[derive(Debug, Default)]
pub struct Arrived<'a> {
    /// The ids that they were given.
    pub ids: Vec<Uuid>,
    /// Their tenants.
    pub tenants: Vec<&'a str>,
    /// Their tools.
    pub tools: Vec<&'a str>,
    /// Their keys: the same key is the same call.
    pub keys: Vec<&'a str>,
    /// JSON.
    pub args: Vec<&'a str>,
}

/// A claimed call.
#[derive(Debug)]
pub struct Claimed {
    /// The call.
    pub call_id: Uuid,
    /// This attempt at it.
    pub attempt_id: Uuid,
    /// Its tool.
    pub tool: String,
    /// JSON.
    pub args: String,
}

impl Lane {
    /// Two rows for each: the open call, and its key.
    ///
    /// # Errors
    ///
    /// Postgres refuses, or a key is known.
    pub async fn accept(&mut self, arrived: &Arrived<'_>) -> anyhow::Result<()> {
        let accepting = sqlx::query(ACCEPT)
            .bind(&arrived.ids)
            .bind(&arrived.tenants)
            .bind(&arrived.tools)
            .bind(&arrived.keys)
            .bind(&arrived.args)
            .execute(&mut self.connection);
        let accepted = accepting.await.context("accept calls")?;
        all(accepted.rows_affected(), arrived.ids.len(), "accepted")
    }

    /// Makes an attempt for each, by primary key.
    ///
    /// # Errors
    ///
    /// Postgres refuses.
    pub async fn claim(&mut self, calls: &[Uuid], worker: &str) -> anyhow::Result<Vec<Claimed>> {
        let attempts: Vec<Uuid> = calls.iter().map(|_| Uuid::now_v7()).collect();
        let claiming = sqlx::query(CLAIM)
            .bind(calls)
            .bind(attempts)
            .bind(worker)
            .fetch_all(&mut self.connection);
        let claimed = claiming.await.context("claim calls")?;
        let claimed = claimed.iter().map(|row| {
            Ok(Claimed {
                call_id: row.try_get(0)?,
                attempt_id: row.try_get(1)?,
                tool: row.try_get(2)?,
                args: row.try_get(3)?,
            })
        });
        Ok(claimed.collect::<Result<_, sqlx::Error>>()?)
    }

    /// Deletes the open row, and inserts those of the history and of the attempt.
    ///
    /// # Errors
    ///
    /// Postgres refuses, or one of them is not running.
    pub async fn complete(
        &mut self,
        calls: &[Uuid],
        attempts: &[Uuid],
        results: &[&str],
    ) -> anyhow::Result<()> {
        let completing = sqlx::query(COMPLETE)
            .bind(calls)
            .bind(attempts)
            .bind(results)
            .execute(&mut self.connection);
        let completed = completing.await.context("complete calls")?;
        all(completed.rows_affected(), calls.len(), "completed")
    }
}

/// No other process touches these rows, so each of them must have been there.
fn all(rows: u64, expected: usize, done: &str) -> anyhow::Result<()> {
    if usize::try_from(rows) != Ok(expected) {
        bail!("{rows} of {expected} calls were {done}: another process changes these tables");
    }
    Ok(())
}
