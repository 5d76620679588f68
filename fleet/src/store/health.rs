//! What `doctor` reads: the state of the server and of the fleet, each in a few statements that take no lock. It judges
//! nothing.

use std::time::Duration;

use sqlx::{FromRow, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{StoreError, answer::answer_within};
use crate::obstacle::Inability;

/// How long each statement may take, a connection included.
const READ_MAX: Duration = Duration::from_secs(6);

/// What `doctor` shows of the server besides [`super::server_check`].
#[derive(Debug, Clone, FromRow)]
pub struct Server {
    /// Its version in words.
    pub version: String,
    /// Connections for all roles but superusers.
    pub connections_max: i64,
    /// Connections of other programs.
    pub strangers: i64,
    /// Whether autovacuum and the statistics that it needs are on.
    pub autovacuum: bool,
    /// Seconds between two looks of autovacuum, where nothing else vacuums the open calls: dispatchers have a role that does not
    /// own them, and no server before 17 lets such a role do it.
    pub only_vacuum_s: Option<i64>,
    /// Its time.
    pub now: OffsetDateTime,
}

/// Reads it.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn server(pool: &PgPool) -> Result<Server, StoreError> {
    let sql = "SELECT current_setting('server_version') AS version, \
                current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint \
                    AS connections_max, \
                (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' \
                    AND coalesce(application_name, '') NOT LIKE 'toolfleet%') AS strangers, \
                current_setting('autovacuum') = 'on' AND current_setting('track_counts') = 'on' AS autovacuum, \
                (SELECT s.setting::bigint FROM pg_settings s CROSS JOIN pg_roles r \
                     CROSS JOIN pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                 WHERE s.name = 'autovacuum_naptime' AND r.rolname = 'toolfleet_dispatcher' \
                     AND n.nspname = 'toolfleet' AND c.relname = 'open_calls' \
                     AND has_table_privilege(r.oid, c.oid, 'DELETE') AND NOT pg_has_role(r.oid, c.relowner, 'MEMBER') \
                     AND current_setting('server_version_num')::integer < 170000) AS only_vacuum_s, \
                clock_timestamp() AS now";
    let reading = sqlx::query_as(sql).fetch_one(pool);
    answer("look at the server", reading).await
}

/// The partitions of the history.
#[derive(Debug, Clone, FromRow)]
pub struct Partitions {
    /// Days from today to the day after tomorrow without a partition.
    pub missing_days: i64,
    /// Rows in the default partition, counted up to a thousand.
    pub stray_rows: i64,
}

/// Reads it.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn partitions(pool: &PgPool) -> Result<Partitions, StoreError> {
    let sql = "SELECT (SELECT count(*) FROM generate_series(0, 2) AS ahead \
                 WHERE EXISTS (SELECT FROM unnest(ARRAY['finished_calls', 'ended_attempts', 'call_notes', 'model_requests']) AS parent \
                     WHERE to_regclass('toolfleet.' || parent || to_char( \
                         (now() + make_interval(days => ahead)) AT TIME ZONE 'UTC', '_YYYYMMDD')) IS NULL)) AS missing_days, \
                (SELECT count(*) FROM (SELECT FROM toolfleet.finished_calls_default \
                     UNION ALL SELECT FROM toolfleet.ended_attempts_default \
                     UNION ALL SELECT FROM toolfleet.call_notes_default \
                     UNION ALL SELECT FROM toolfleet.model_requests_default LIMIT 1000) strays) AS stray_rows";
    let reading = sqlx::query_as(sql).fetch_one(pool);
    answer("look at the partitions", reading).await
}

/// The calls of one queue that only lack a worker.
#[derive(Debug, Clone, FromRow)]
pub struct Waiting {
    /// The queue.
    pub queue: String,
    /// How many.
    pub calls: i64,
    /// How long the oldest has waited, in seconds.
    pub oldest_s: f64,
}

/// Counts them, queue by queue.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn waiting(pool: &PgPool) -> Result<Vec<Waiting>, StoreError> {
    let sql = "SELECT queue, count(*) AS calls, \
                extract(epoch FROM now() - min(greatest(accepted_at, not_before)))::float8 AS oldest_s \
         FROM toolfleet.open_calls WHERE state = 'queued' AND NOT held AND due_at IS NULL \
         GROUP BY queue ORDER BY queue";
    let reading = sqlx::query_as(sql).fetch_all(pool);
    answer("count what waits", reading).await
}

/// A worker that has not left.
#[derive(Debug, Clone, FromRow)]
pub struct Worker {
    /// Its process.
    pub worker_id: Uuid,
    /// Its name.
    pub name: String,
    /// `live`, `draining` or `dead`.
    pub state: String,
    /// The queues that it pulls from.
    pub queues: Vec<String>,
    /// Seconds since its last heartbeat.
    pub silent_s: f64,
    /// Its calls that are in doubt.
    pub in_doubt: i64,
    /// The tools of its queues that it cannot run, JSON text.
    pub cannot_run: Option<String>,
}

impl Worker {
    /// The tools of its queues that it cannot run, without those that a newer release has written in words of its own.
    pub fn inabilities(&self) -> Vec<Inability> {
        let told = self.cannot_run.as_deref();
        told.and_then(|told| serde_json::from_str(told).ok())
            .unwrap_or_default()
    }
}

/// The most workers that are read.
const WORKERS_MAX: i64 = 1_000;

/// Workers that live, and dead ones that still have calls in doubt.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn workers(pool: &PgPool) -> Result<Vec<Worker>, StoreError> {
    let sql = "WITH doubts AS (SELECT worker_id, count(*) AS calls FROM toolfleet.open_calls \
                               WHERE state = 'in_doubt' GROUP BY worker_id) \
         SELECT worker_id, name, state::text AS state, queues, \
                extract(epoch FROM now() - beat_at)::float8 AS silent_s, coalesce(calls, 0) AS in_doubt, \
                cannot_run::text AS cannot_run \
         FROM toolfleet.worker_processes LEFT JOIN doubts USING (worker_id) \
         WHERE state IN ('live', 'draining') OR state = 'dead' AND calls > 0 \
         ORDER BY started_at LIMIT $1";
    let reading = sqlx::query_as(sql).bind(WORKERS_MAX).fetch_all(pool);
    answer("look at the workers", reading).await
}

/// Calls in doubt.
#[derive(Debug, Clone, FromRow)]
pub struct Doubts {
    /// How many.
    pub calls: i64,
    /// The call that has been in doubt for longest.
    pub oldest: Option<Uuid>,
    /// For how long, in seconds.
    pub oldest_s: Option<f64>,
}

/// Counts them.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn doubts(pool: &PgPool) -> Result<Doubts, StoreError> {
    let sql = "SELECT count(*) AS calls, \
                (array_agg(call_id ORDER BY doubt_since))[1] AS oldest, \
                extract(epoch FROM now() - min(doubt_since))::float8 AS oldest_s \
         FROM toolfleet.open_calls WHERE state = 'in_doubt'";
    let reading = sqlx::query_as(sql).fetch_one(pool);
    answer("count calls in doubt", reading).await
}

async fn answer<T>(
    doing: &'static str,
    reading: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    answer_within(doing, READ_MAX, reading).await
}
