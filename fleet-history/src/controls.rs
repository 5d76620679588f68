//! The controls that hold now, and every change of one that was ever made.

use fleet::store::StoreError;
use serde::Deserialize;
use serde_json::Value;
use sqlx::PgPool;
use time::OffsetDateTime;

use crate::row::Row;

/// What a control is about, as rows of both views have it.
#[derive(Debug, Clone, Deserialize)]
pub struct ListedScope {
    /// Its kind.
    pub kind: String,
    /// A tool.
    pub tool: Option<String>,
    /// A queue.
    pub queue: Option<String>,
    /// A tenant.
    pub tenant: Option<String>,
    /// JSON pointer into the arguments.
    pub pointer: Option<String>,
    /// The value there.
    pub value: Option<Value>,
    /// What it is about besides calls.
    pub subject: Option<String>,
    /// What it does there.
    pub setting: Value,
}

/// A row of `controls`.
#[derive(Debug, Clone, Deserialize)]
pub struct ListedControl {
    /// Its id.
    pub control_id: i64,
    /// What it is about.
    #[serde(flatten)]
    pub scope: ListedScope,
    /// Who set it.
    pub actor: String,
    /// Why.
    pub note: String,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub set_at: OffsetDateTime,
    /// When it is over by itself.
    #[serde(with = "time::serde::rfc3339::option")]
    pub expires_at: Option<OffsetDateTime>,
    /// Calls that wait for it; at most 100,000 are counted. None where no call waits for its kind, and in the answer to a change.
    #[serde(default)]
    pub waiting: Option<i64>,
}

/// A row of `control_log`.
#[derive(Debug, Clone, Deserialize)]
pub struct ControlChange {
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// `set`, `unset` or `expired`.
    pub change: String,
    /// Of which control.
    pub control_id: i64,
    /// What it was about.
    #[serde(flatten)]
    pub scope: ListedScope,
    /// Who did it.
    pub actor: String,
    /// Why.
    pub note: String,
}

/// The controls that hold, in the order in which they were set; at most 1,000, for there are no more.
///
/// # Errors
///
/// The view cannot be read.
pub async fn controls(pool: &PgPool) -> Result<Vec<Row<ListedControl>>, StoreError> {
    sqlx::query_scalar(
        "SELECT row_to_json(listed)::text FROM (
             SELECT * FROM toolfleet.controls ORDER BY control_id LIMIT 1000) listed",
    )
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("list controls", error))
}

/// The name of the limit to which a tool's newest version keeps; none where it has no rate limit.
///
/// # Errors
///
/// The view cannot be read.
pub async fn limit_of(pool: &PgPool, tool: &str) -> Result<Option<String>, StoreError> {
    sqlx::query_scalar("SELECT name FROM toolfleet.limits WHERE $1 = ANY (tools) LIMIT 1")
        .bind(tool)
        .fetch_optional(pool)
        .await
        .map_err(|error| StoreError::from_sqlx("read the limits", error))
}

/// The newest changes, the newest first.
///
/// # Errors
///
/// The view cannot be read.
pub async fn control_log(pool: &PgPool, limit: i64) -> Result<Vec<Row<ControlChange>>, StoreError> {
    sqlx::query_scalar(
        "SELECT row_to_json(listed)::text FROM (
             SELECT * FROM toolfleet.control_log ORDER BY rev DESC LIMIT $1) listed",
    )
    .bind(limit)
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("read the log of controls", error))
}
