//! The calls in doubt.

use fleet::{
    ids::{CallId, Label},
    store::StoreError,
};
use serde::Deserialize;
use sqlx::PgPool;
use time::OffsetDateTime;

use crate::{inbox::InboxOf, row::Row};

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

/// How much of the arguments a list shows, in characters.
pub const ARGUMENTS_SHOWN: i32 = 2_000;

/// The same rows for who is to settle them: with the beginning of the arguments, and how long these are.
///
/// # Errors
///
/// The view cannot be read.
pub async fn inbox(
    pool: &PgPool,
    wanted: InboxOf<'_>,
) -> Result<Vec<Row<ListedDoubt>>, StoreError> {
    sqlx::query_scalar(
        "SELECT row_to_json(listed)::text FROM (
             SELECT call_id, tenant, tool, tool_version, since, why, worker, worker_fenced, attempt_id IS NOT NULL AND worker IS NULL AS by_client,
                    (SELECT c.meta->>'principal' FROM toolfleet.calls c WHERE c.call_id = d.call_id) AS asked_by,
                    (SELECT a.worker_id FROM toolfleet.attempts a WHERE a.call_id = d.call_id AND a.attempt_id = d.attempt_id AND NOT a.late) AS worker_id,
                    attempt_until, coalesce(attempt_until <= now(), true) AS attempt_over, quarantined, probe_state, probes, next_probe_at, left(args::text, $3) AS arguments,
                    length(args::text) AS arguments_length, now() AS now
             FROM toolfleet.in_doubt d
             WHERE ($1::text IS NULL OR tenant = $1) AND ($4::uuid IS NULL OR call_id = $4)
               AND ($5::text[] IS NULL OR tool LIKE ANY ($5)) AND ($6::text IS NULL OR tenant <> $6)
             ORDER BY since, call_id
             LIMIT $2) listed",
    )
    .bind(wanted.tenant.map(Label::as_str))
    .bind(wanted.limit)
    .bind(ARGUMENTS_SHOWN)
    .bind(wanted.call.map(|call| call.0))
    .bind(wanted.tools_like)
    .bind(wanted.but_of)
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("list calls in doubt", error))
}
