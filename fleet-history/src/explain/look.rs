//! Reads the facts about a call: one statement over the views.

use fleet::{ids::CallId, lease, manifest::Manifest, store::StoreError};
use sqlx::PgPool;

use super::facts::Facts;
use crate::row::Row;

/// The facts about a call; `None` if there is no such call. It has at most 1,000 workers of its queue.
///
/// # Errors
///
/// The views cannot be read.
pub async fn facts(pool: &PgPool, call: CallId) -> Result<Option<Row<Facts>>, StoreError> {
    sqlx::query_scalar(include_str!("facts.sql"))
        .bind(call.0)
        .bind(i64::from(Manifest::LOSSES))
        .bind(lease::LATE.as_secs_f64())
        .fetch_optional(pool)
        .await
        .map_err(|error| StoreError::from_sqlx("read a call", error))
}
