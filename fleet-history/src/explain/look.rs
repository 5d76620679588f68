//! Reads the facts about a call: one statement over the views.

use std::sync::LazyLock;

use fleet::{ids::CallId, lease, manifest::Manifest, store::StoreError};
use sqlx::{AssertSqlSafe, PgPool};
use uuid::Uuid;

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

/// The same statement for several calls, which Postgres plans once for all of them: that takes it longer than to run it.
static OF_MANY: LazyLock<String> = LazyLock::new(|| {
    let of_one = include_str!("facts.sql").replace("$1", "asked.call_id");
    format!(
        "SELECT found.facts FROM unnest($1::uuid[]) AS asked (call_id) CROSS JOIN LATERAL ({of_one}) AS found (facts)"
    )
});

/// The facts about those of these calls that there are, in no order.
///
/// # Errors
///
/// The views cannot be read.
pub async fn facts_of(pool: &PgPool, calls: &[CallId]) -> Result<Vec<Row<Facts>>, StoreError> {
    let ids: Vec<Uuid> = calls.iter().map(|call| call.0).collect();
    sqlx::query_scalar(AssertSqlSafe(OF_MANY.as_str()))
        .bind(ids)
        .bind(i64::from(Manifest::LOSSES))
        .bind(lease::LATE.as_secs_f64())
        .fetch_all(pool)
        .await
        .map_err(|error| StoreError::from_sqlx("read calls", error))
}
