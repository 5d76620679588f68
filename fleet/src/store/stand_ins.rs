//! What the ledger has for a call that another answer may stand in for.

use std::time::Duration;

use sqlx::{PgPool, Row as _};

use super::{StoreError, answer::listen};
use crate::{
    fallback::{StandIn, StandInKind},
    ids::CallId,
};

/// The last good answer to a call equal to this open one. `max_age`: how old it may be. `None`: there is none, the call probes
/// another one, or it is not open any more.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn stale(
    pool: &PgPool,
    call: CallId,
    max_age: Duration,
) -> Result<Option<StandIn>, StoreError> {
    let max_age = i64::try_from(max_age.as_millis()).unwrap_or(i64::MAX);
    let asking = sqlx::query("SELECT age_ms, result FROM toolfleet.stale_answer($1, $2)")
        .bind(call.0)
        .bind(max_age)
        .fetch_optional(pool);
    let read = async {
        let Some(row) = asking.await? else {
            return Ok(None);
        };
        Ok(Some(StandIn {
            kind: StandInKind::Stale,
            result: row.try_get("result")?,
            age_ms: row.try_get("age_ms")?,
            tool: None,
        }))
    };
    listen(read)
        .await
        .map_err(|error| StoreError::from_sqlx("look for an answer that stands in", error))
}
