//! The arguments of calls.

use sqlx::PgPool;

use super::{StoreError, read::answer};
use crate::ids::CallId;

const DOING: &str = "read arguments";

/// Of a call that is still open, JSON text.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn of_open(pool: &PgPool, call: CallId) -> Result<Option<String>, StoreError> {
    let sql = "SELECT args::text FROM toolfleet.open_calls WHERE call_id = $1";
    let reading = sqlx::query_scalar(sql).bind(call.0).fetch_optional(pool);
    answer(DOING, reading).await
}

/// Of a call, wherever it stands, JSON text.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn of_any(pool: &PgPool, call: CallId) -> Result<Option<String>, StoreError> {
    let sql = "SELECT args::text FROM toolfleet.open_calls WHERE call_id = $1 \
               UNION ALL SELECT args::text FROM toolfleet.finished_calls WHERE call_id = $1 LIMIT 1";
    let reading = sqlx::query_scalar(sql).bind(call.0).fetch_optional(pool);
    answer(DOING, reading).await
}
