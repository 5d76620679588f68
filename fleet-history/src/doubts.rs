//! The calls in doubt.

use fleet::{
    ids::{CallId, Label},
    store::StoreError,
};
use serde::Deserialize;
use sqlx::PgPool;
use time::OffsetDateTime;

use crate::row::Row;

/// A row of `in_doubt`, without the arguments.
#[derive(Debug, Clone, Deserialize)]
pub struct ListedDoubt {
    /// The call.
    pub call_id: CallId,
    /// Its tenant.
    pub tenant: String,
    /// Its tool.
    pub tool: String,
    /// Since when.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
    /// The reason, as a word.
    pub why: String,
    /// The worker of its last attempt.
    pub worker: Option<String>,
    /// Whether everything that was started for it is proven gone.
    pub worker_fenced: bool,
    /// Whether Postgres lost writes while it was open.
    pub quarantined: bool,
    /// The last finding of its probe.
    pub probe_state: Option<String>,
    /// When its next probe is due.
    #[serde(with = "time::serde::rfc3339::option")]
    pub next_probe_at: Option<OffsetDateTime>,
}

/// The calls in doubt of a tenant, or of all, the longest in doubt first; at most so many.
///
/// # Errors
///
/// The view cannot be read.
pub async fn doubts(
    pool: &PgPool,
    tenant: Option<&Label>,
    limit: i64,
) -> Result<Vec<Row<ListedDoubt>>, StoreError> {
    sqlx::query_scalar(
        "SELECT row_to_json(listed)::text FROM (
             SELECT call_id, tenant, tool, tool_version, since, why, worker, worker_fenced, attempt_until, quarantined,
                    probe_state, probes, next_probe_at
             FROM toolfleet.in_doubt
             WHERE $1::text IS NULL OR tenant = $1
             ORDER BY since, call_id
             LIMIT $2) listed",
    )
    .bind(tenant.map(Label::as_str))
    .bind(limit)
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("list calls in doubt", error))
}
