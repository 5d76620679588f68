//! The answers of calls that have succeeded, for those that read them piece by piece.

use sqlx::PgPool;

use super::{StoreError, answer::listen};
use crate::ids::CallId;

/// The answer of a call, if it is not larger than it may be.
#[derive(Debug)]
pub enum KeptResult {
    /// JSON text.
    Text(String),
    /// It has more bytes.
    TooLarge,
}

/// Which answers are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Those of calls that have succeeded.
    Good,
    /// Also those that stand in for a tool's own, whose marks get lost with whoever reads them.
    AlsoDegraded,
}

/// The answer of a call of this tenant; `None` where there is none to read.
///
/// There is none of a call that does not exist, is another tenant's, has no answer of this kind, or whose day of history is
/// dropped; nor of a tool with sensitive fields, whose values would be shown in the call that reads them.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn result(
    pool: &PgPool,
    tenant: &str,
    call: CallId,
    which: Which,
    bytes_max: usize,
) -> Result<Option<KeptResult>, StoreError> {
    // The length first, so that what is too large is not sent.
    let reading = sqlx::query_scalar::<_, Option<String>>(
        "SELECT CASE WHEN octet_length(r.answer) <= $3 THEN r.answer END \
         FROM (SELECT f.result::text AS answer FROM toolfleet.finished_calls f \
               WHERE f.call_id = $1 AND f.tenant = $2 AND f.result IS NOT NULL \
                 AND (f.state = 'succeeded' OR $4 AND f.outcome = 'fallback') \
                 AND NOT EXISTS (SELECT FROM toolfleet.tool_versions v WHERE v.tool = f.tool AND v.version = f.tool_version \
                                 AND v.manifest->'sensitive' IS NOT NULL)) r",
    )
    .bind(call.0)
    .bind(tenant)
    .bind(i64::try_from(bytes_max).unwrap_or(i64::MAX))
    .bind(which == Which::AlsoDegraded)
    .fetch_optional(pool);
    let found = listen(reading)
        .await
        .map_err(|error| StoreError::from_sqlx("read a result", error))?;
    Ok(found.map(|text| text.map_or(KeptResult::TooLarge, KeptResult::Text)))
}
