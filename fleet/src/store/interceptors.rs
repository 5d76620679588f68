//! What the interceptors of workers' programs did: counts by worker, for the view `interceptors`.

use serde::Serialize;
use sqlx::PgPool;

use super::{StoreError, answer::listen};
use crate::ids::WorkerId;

/// What one interceptor did on one worker since that started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct InterceptorCounts {
    /// Its name.
    pub name: String,
    /// Calls that it was asked about.
    pub calls: u64,
    /// Calls that it let go on.
    pub continued: u64,
    /// Calls that it refused.
    pub refused: u64,
    /// Calls that it let wait.
    pub waited: u64,
    /// Answers that it changed.
    pub changed: u64,
    /// Calls that it answered, which only a cache and a fallback do.
    pub answered: u64,
    /// Hooks that panicked, took too long or could not be called.
    pub errors: u64,
    /// The time that all its hooks took, in microseconds.
    pub own_us: u64,
    /// The last error. It holds no value of a call.
    pub last_error: Option<String>,
    /// How long ago that was, in milliseconds.
    pub last_error_age_ms: Option<u64>,
}

/// Writes the counts of a worker in place of those that were there. Own statement; repeating it changes nothing. The counts of a
/// worker go with its row.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn record(
    pool: &PgPool,
    worker: WorkerId,
    counts: &[InterceptorCounts],
) -> Result<(), StoreError> {
    let doing = "write what interceptors did";
    let counts =
        serde_json::to_string(counts).map_err(|error| StoreError::unreadable(doing, error))?;
    let writing = sqlx::query(
        "INSERT INTO toolfleet.interceptor_stats \
             (worker_id, name, calls, continued, refused, waited, changed, answered, errors, own_us, last_error, last_error_at) \
         SELECT w.worker_id, s.name, s.calls, s.continued, s.refused, s.waited, s.changed, s.answered, s.errors, s.own_us, s.last_error, \
                now() - s.last_error_age_ms * interval '1 millisecond' \
         FROM toolfleet.worker_processes w, json_to_recordset($2::text::json) AS s (name text, calls bigint, continued bigint, \
             refused bigint, waited bigint, changed bigint, answered bigint, errors bigint, own_us bigint, last_error text, last_error_age_ms bigint) \
         WHERE w.worker_id = $1 \
         ON CONFLICT (worker_id, name) DO UPDATE SET \
             calls = excluded.calls, continued = excluded.continued, refused = excluded.refused, waited = excluded.waited, \
             changed = excluded.changed, answered = excluded.answered, errors = excluded.errors, own_us = excluded.own_us, \
             last_error = excluded.last_error, last_error_at = excluded.last_error_at",
    )
    .bind(worker.0)
    .bind(counts)
    .execute(pool);
    listen(writing)
        .await
        .map(drop)
        .map_err(|error| StoreError::from_sqlx(doing, error))
}
