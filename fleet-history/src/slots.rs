//! The calls that have a place of a limited tool (`concurrency` in its manifest).

use fleet::{
    ids::{CallId, ToolName},
    store::StoreError,
};
use serde::Deserialize;
use sqlx::PgPool;
use time::OffsetDateTime;

use crate::row::Row;

/// A row of `slots`: a place that is taken.
#[derive(Debug, Clone, Deserialize)]
pub struct TakenSlot {
    /// The tool.
    pub tool: String,
    /// Its place.
    pub slot: i32,
    /// The call that has it.
    pub call_id: CallId,
    /// `running`, or `in_doubt` while its attempt may still act.
    pub state: String,
    /// Its worker.
    pub worker: Option<String>,
    /// When its attempt began.
    #[serde(with = "time::serde::rfc3339::option")]
    pub since: Option<OffsetDateTime>,
    /// When the attempt must end.
    #[serde(with = "time::serde::rfc3339::option")]
    pub attempt_until: Option<OffsetDateTime>,
}

/// The taken places of a tool, or of all tools; at most 10,000.
///
/// # Errors
///
/// The view cannot be read.
pub async fn slots(
    pool: &PgPool,
    tool: Option<&ToolName>,
) -> Result<Vec<Row<TakenSlot>>, StoreError> {
    sqlx::query_scalar(
        "SELECT row_to_json(listed)::text FROM (
             SELECT * FROM toolfleet.slots
             WHERE $1::text IS NULL OR tool = $1
             ORDER BY tool, slot
             LIMIT 10000) listed",
    )
    .bind(tool.map(ToolName::as_str))
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("list places of tools", error))
}
