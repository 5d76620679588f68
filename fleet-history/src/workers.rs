//! The workers, alive or gone.

use fleet::store::StoreError;
use serde::Deserialize;
use sqlx::PgPool;
use time::OffsetDateTime;

use crate::row::Row;

/// A row of `workers`.
#[derive(Debug, Clone, Deserialize)]
pub struct ListedWorker {
    /// Its id, another one for each start.
    pub worker_id: String,
    /// Its name.
    pub name: String,
    /// Its machine.
    pub host: String,
    /// Its process.
    pub pid: i32,
    /// `live`, `draining`, `dead`, `left` or `fenced`.
    pub state: String,
    /// The queues it pulls from.
    pub queues: Vec<String>,
    /// How many calls it runs at a time.
    pub concurrency: i32,
    /// How many it runs now.
    pub running: i64,
    /// Its last heartbeat.
    #[serde(with = "time::serde::rfc3339")]
    pub beat_at: OffsetDateTime,
    /// When it ended.
    #[serde(with = "time::serde::rfc3339::option")]
    pub ended_at: Option<OffsetDateTime>,
    /// Who recorded that.
    pub ended_by: Option<String>,
    /// Who proved it gone.
    pub fenced_by: Option<String>,
    /// How.
    pub fence_note: Option<String>,
}

/// Workers, the newest first, at most 1,000: those that have not ended or may have left processes behind, or all.
///
/// # Errors
///
/// The view cannot be read.
pub async fn workers(pool: &PgPool, all: bool) -> Result<Vec<Row<ListedWorker>>, StoreError> {
    sqlx::query_scalar(
        "SELECT row_to_json(listed)::text FROM (
             SELECT * FROM toolfleet.workers
             WHERE state NOT IN ('left', 'fenced') OR $1
             ORDER BY started_at DESC, worker_id
             LIMIT 1000) listed",
    )
    .bind(all)
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("list workers", error))
}
