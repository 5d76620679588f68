//! The bench's questions to Postgres: its own table of effects, the settings that decide how durable a commit is, and sizes.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, bail};
use fleet::store::StoreError;
use futures_util::TryStreamExt;
use secrecy::{ExposeSecret, SecretString};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row, postgres::PgConnectOptions};
use uuid::Uuid;

use crate::{
    answer::Told,
    effects::{Happened, Tag},
    tally::Tally,
    tools,
};

/// The advisory lock that two benches on one database share.
const LOCK: &str = "toolfleet bench";
/// How long one look may take.
const LOOK_MAX: Duration = Duration::from_secs(60);

/// The rows that one statement puts into the history.
const HISTORY_CHUNK: i64 = 50_000;

/// Calls as they are after a successful `once`. Their ids have their times, as ids of calls do.
const HISTORY: &str = "\
    WITH made AS ( \
        SELECT n, at, (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') \
                       || '7000b' || lpad(to_hex(n), 15, '0'))::uuid AS id \
        FROM generate_series($1 + 1, $2) n \
        CROSS JOIN LATERAL (SELECT now() - interval '1 hour' * (1 - n::float8 / $3) AS at) t), \
    kept AS ( \
        INSERT INTO toolfleet.idempotency_keys \
            (tenant, key_hash, call_id, tool, tool_version, args_hash, original_hash) \
        SELECT 'bench-history', sha256(id::text::bytea), id, 'bench_once', 1, sha256('a'), sha256('a') FROM made) \
    INSERT INTO toolfleet.finished_calls \
        (call_id, rev, from_state, state, outcome, source, effect_known, tenant, tool, tool_version, effect, queue, \
         priority, key_hash, key_retention_ms, args, args_hash, result, language, accepted_at, deadline_at, \
         first_started_at, finished_at, queued_ms, run_ms, attempts, attempt_id, worker_id, claim_rev, \
         attempt_started_at, attempt_timeout_ms, attempt_outcome, actor, reason) \
    SELECT id, 2, 'running', 'succeeded', 'success', 'live', 'applied', 'bench-history', 'bench_once', 1, 'once', \
           'bench', 1, sha256(id::text::bytea), 86400000, '{\"id\":\"\",\"pad\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}', \
           sha256('a'), '{\"pad\":\"\"}', 'en', at, at + interval '5 minutes', at, at, 0, 0, 1, \
           gen_random_uuid(), gen_random_uuid(), 1, at, 30000, 'applied', 'bench', 'completed' \
    FROM made";

/// A connection of the bench's own.
#[derive(Debug)]
pub struct Ledger {
    connection: PgConnection,
    has_table: bool,
}

impl Ledger {
    /// Connects, and makes sure that no other bench uses this database.
    ///
    /// # Errors
    ///
    /// Postgres does not answer within ten seconds, or another bench is there.
    pub async fn open(url: &SecretString) -> anyhow::Result<Self> {
        let doing = "connect to Postgres";
        let refused = |problem| StoreError::from_sqlx(doing, problem);
        let connecting = PgConnection::connect(url.expose_secret());
        let connecting = tokio::time::timeout(Duration::from_secs(10), connecting);
        let late = |_elapsed| sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
        let mut connection = connecting
            .await
            .map_err(late)
            .map_err(refused)?
            .map_err(refused)?;
        let taken: bool = sqlx::query_scalar("SELECT pg_try_advisory_lock(hashtext($1))")
            .bind(LOCK)
            .fetch_one(&mut connection)
            .await
            .map_err(refused)?;
        if !taken {
            bail!("another bench runs on this database: wait until it is over");
        }
        Ok(Self {
            connection,
            has_table: false,
        })
    }

    /// The table for the effects of transactions, empty, for the role of this URL.
    ///
    /// # Errors
    ///
    /// It cannot be made.
    pub async fn make_table(&mut self, tools: &SecretString) -> anyhow::Result<()> {
        let options: PgConnectOptions = tools.expose_secret().parse()?;
        let role = options.get_username().replace('"', "\"\"");
        // A name from the URL, quoted; names of ours.
        let sql = format!(
            "CREATE SCHEMA IF NOT EXISTS toolfleet_bench; \
             CREATE TABLE IF NOT EXISTS toolfleet_bench.effects (id uuid NOT NULL); \
             TRUNCATE toolfleet_bench.effects; \
             GRANT USAGE ON SCHEMA toolfleet_bench TO \"{role}\"; \
             GRANT INSERT, SELECT ON toolfleet_bench.effects TO \"{role}\""
        );
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut self.connection)
            .await
            .context("make the table of effects, toolfleet_bench.effects")?;
        self.has_table = true;
        Ok(())
    }

    /// Leaves the table empty, if there is one.
    ///
    /// # Errors
    ///
    /// Postgres does not do it.
    pub async fn clear_table(&mut self) -> anyhow::Result<()> {
        if !self.has_table {
            return Ok(());
        }
        sqlx::query("TRUNCATE toolfleet_bench.effects")
            .execute(&mut self.connection)
            .await?;
        Ok(())
    }

    /// The effects of this workload's transactions, in the order of the calls.
    pub(crate) async fn effects(
        &mut self,
        run: u32,
        workload: u32,
    ) -> anyhow::Result<Vec<Happened>> {
        let mut rows = sqlx::query("SELECT id FROM toolfleet_bench.effects ORDER BY id")
            .fetch(&mut self.connection);
        let mut found = Vec::new();
        while let Some(row) = rows.try_next().await? {
            let tag = Tag::of(row.try_get::<Uuid, _>(0)?.as_u128());
            if (tag.run, tag.workload) == (run, workload) {
                found.push(Happened {
                    number: tag.number,
                    key: 0,
                });
            }
        }
        Ok(found)
    }

    /// The settings that decide how durable a commit is, by the server's own names.
    pub(crate) async fn settings(&mut self) -> anyhow::Result<BTreeMap<String, String>> {
        let rows: Vec<(String, String)> = sqlx::query_as(
            "SELECT name, current_setting(name) FROM pg_settings WHERE name IN ( \
                 'server_version', 'fsync', 'synchronous_commit', 'full_page_writes', 'wal_sync_method', \
                 'shared_buffers', 'commit_delay', 'wal_level', 'max_wal_size', 'synchronous_standby_names')",
        )
        .fetch_all(&mut self.connection)
        .await?;
        Ok(rows.into_iter().collect())
    }

    /// The server process of this connection.
    ///
    /// # Errors
    ///
    /// Postgres does not say.
    pub async fn backend(&mut self) -> anyhow::Result<i32> {
        let pid = sqlx::query_scalar("SELECT pg_backend_pid()");
        Ok(pid.fetch_one(&mut self.connection).await?)
    }

    /// Calls of the bench that are not over, without those in doubt, which end only when they are settled, and without those of
    /// a queue without workers.
    pub(crate) async fn open_calls(&mut self) -> anyhow::Result<u64> {
        let counting = sqlx::query_scalar(
            "SELECT count(*) FROM toolfleet.open_calls WHERE queue = $1 AND state <> 'in_doubt'",
        )
        .bind(tools::QUEUE)
        .fetch_one(&mut self.connection);
        let count: i64 = tokio::time::timeout(LOOK_MAX, counting).await??;
        Ok(count.unsigned_abs())
    }

    /// Puts finished calls into the history, over the last hour, each with a key as a write has one; `tell` gets the number so
    /// far.
    pub(crate) async fn make_history(
        &mut self,
        calls: u64,
        tell: impl Fn(u64),
    ) -> anyhow::Result<()> {
        let (calls, mut done) = (i64::try_from(calls)?, 0);
        while done < calls {
            let until = (done + HISTORY_CHUNK).min(calls);
            sqlx::query(HISTORY)
                .bind(done)
                .bind(until)
                .bind(calls)
                .execute(&mut self.connection)
                .await
                .context("put calls into the history")?;
            done = until;
            tell(done.unsigned_abs());
        }
        // As the server would do by itself within a minute.
        sqlx::raw_sql("VACUUM (ANALYZE) toolfleet.finished_calls, toolfleet.idempotency_keys")
            .execute(&mut self.connection)
            .await?;
        Ok(())
    }

    /// The smallest id of a call that is accepted from now on.
    pub(crate) async fn mark(&mut self) -> anyhow::Result<Uuid> {
        let mark = sqlx::query_scalar("SELECT toolfleet.uuid_floor(now() - interval '10 seconds')");
        Ok(mark.fetch_one(&mut self.connection).await?)
    }

    /// Adds the outcomes of calls whose callers did not wait, from the history.
    pub(crate) async fn tell(
        &mut self,
        tally: &mut Tally,
        since: Uuid,
        (run, workload): (u32, u32),
    ) -> anyhow::Result<()> {
        let mut rows = sqlx::query(
            "SELECT args->>'id', state = 'succeeded' FROM toolfleet.finished_calls \
             WHERE call_id >= $1 AND queue = $2 AND tenant NOT IN ('bench-backlog', 'bench-history')",
        )
        .bind(since)
        .bind(tools::QUEUE)
        .fetch(&mut self.connection);
        while let Some(row) = rows.try_next().await? {
            let (id, succeeded): (String, bool) = (row.try_get(0)?, row.try_get(1)?);
            if let Some(tag) = Tag::parse(&id)
                && (tag.run, tag.workload) == (run, workload)
            {
                let told = if succeeded {
                    Told::Succeeded
                } else {
                    Told::Failed
                };
                tally.told(tag.number, told);
            }
        }
        Ok(())
    }

    /// Sizes in bytes and rows, as the server estimates them.
    pub(crate) async fn sizes(&mut self) -> anyhow::Result<BTreeMap<String, i64>> {
        let row = sqlx::query(
            "SELECT pg_relation_size('toolfleet.open_calls') AS open_calls_bytes, \
                    pg_indexes_size('toolfleet.open_calls') AS open_calls_index_bytes, \
                    (SELECT count(*) FROM toolfleet.open_calls) AS open_calls_rows, \
                    (SELECT coalesce(sum(pg_total_relation_size(inhrelid)), 0)::bigint FROM pg_inherits \
                     WHERE inhparent = 'toolfleet.finished_calls'::regclass) AS finished_calls_bytes, \
                    pg_total_relation_size('toolfleet.idempotency_keys') AS idempotency_keys_bytes",
        )
        .fetch_one(&mut self.connection)
        .await?;
        let names = [
            "open_calls_bytes",
            "open_calls_index_bytes",
            "open_calls_rows",
            "finished_calls_bytes",
            "idempotency_keys_bytes",
        ];
        let sizes = names.map(|name| Ok((name.to_owned(), row.try_get(name)?)));
        sizes.into_iter().collect()
    }
}
