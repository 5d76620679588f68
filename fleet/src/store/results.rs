//! The answers of calls that have succeeded, for those that read them piece by piece.

use sqlx::PgPool;

use super::{StoreError, answer::listen};
use crate::ids::CallId;

/// The answer of a call of this tenant, JSON text; `None` where there is none to read.
///
/// There is none of a call that does not exist, is another tenant's, has not succeeded, or whose day of history is dropped; nor of a
/// tool with sensitive fields, whose values would be shown in the call that reads them.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn result(
    pool: &PgPool,
    tenant: &str,
    call: CallId,
) -> Result<Option<String>, StoreError> {
    let reading = sqlx::query_scalar(
        "SELECT f.result::text FROM toolfleet.finished_calls f \
         WHERE f.call_id = $1 AND f.tenant = $2 AND f.state = 'succeeded' AND f.result IS NOT NULL \
           AND NOT EXISTS (SELECT FROM toolfleet.tool_versions v WHERE v.tool = f.tool AND v.version = f.tool_version \
                           AND v.manifest->'sensitive' IS NOT NULL)",
    )
    .bind(call.0)
    .bind(tenant)
    .fetch_optional(pool);
    listen(reading)
        .await
        .map_err(|error| StoreError::from_sqlx("read a result", error))
}
