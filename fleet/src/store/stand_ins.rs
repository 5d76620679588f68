//! What the ledger has for a call that another answer may stand in for.

use std::time::Duration;

use sqlx::{PgPool, Row as _};

use super::{StoreError, answer::listen};
use crate::{
    fallback::{StandIn, StandInKind},
    ids::CallId,
};

/// What the ledger has for an open call whose tool cannot answer.
#[derive(Debug, Clone)]
pub struct StandInFacts {
    /// Whether it is the probe of a call in doubt: then nothing stands in.
    pub is_probe: bool,
    /// Its arguments in canonical form, where they were asked for.
    pub args: Option<String>,
    /// The last good answer to an equal call, where one was asked for and is there.
    pub stale: Option<StandIn>,
}

/// Reads it. `max_age`: how old an answer may be, where one is wanted. `None`: the call is not open any more.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn facts(
    pool: &PgPool,
    call: CallId,
    wants_args: bool,
    max_age: Option<Duration>,
) -> Result<Option<StandInFacts>, StoreError> {
    let max_age = max_age.map(|age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
    let asking = sqlx::query(
        "SELECT o.probe_of IS NOT NULL AS is_probe, CASE WHEN $2 THEN o.args::text END AS args, s.age_ms, s.result \
         FROM toolfleet.open_calls o LEFT JOIN LATERAL toolfleet.stale_answer(o.call_id, $3) s ON true \
         WHERE o.call_id = $1",
    )
    .bind(call.0)
    .bind(wants_args)
    .bind(max_age)
    .fetch_optional(pool);
    let read = async {
        let Some(row) = asking.await? else {
            return Ok(None);
        };
        let (age_ms, result) = (row.try_get("age_ms")?, row.try_get("result")?);
        let stale = |result: String| StandIn {
            kind: StandInKind::Stale,
            result,
            age_ms,
            tool: None,
        };
        Ok(Some(StandInFacts {
            is_probe: row.try_get("is_probe")?,
            args: row.try_get("args")?,
            stale: Option::map(result, stale),
        }))
    };
    listen(read)
        .await
        .map_err(|error| StoreError::from_sqlx("look for an answer that stands in", error))
}
