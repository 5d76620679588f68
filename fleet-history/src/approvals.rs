//! What was decided about a call that waited for a yes, or waits.

use fleet::{ids::CallId, store::StoreError};
use serde::Deserialize;
use sqlx::PgPool;
use time::OffsetDateTime;

use crate::row::Row;

/// Where a call stands, and what was decided about it.
#[derive(Debug, Clone, Deserialize)]
pub struct Decided {
    /// Its state.
    pub state: String,
    /// The decisions, the oldest first.
    pub decisions: Vec<Decision>,
}

/// A row of `approvals`.
#[derive(Debug, Clone, Deserialize)]
pub struct Decision {
    /// `approve` or `deny`.
    pub decision: String,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// Who.
    pub actor: String,
    /// Why.
    pub note: String,
}

/// The call with its decisions; `None`: the history has no such call.
///
/// # Errors
///
/// The views cannot be read.
pub async fn decided(pool: &PgPool, call: CallId) -> Result<Option<Row<Decided>>, StoreError> {
    sqlx::query_scalar(
        "SELECT row_to_json(d)::text FROM ( \
             SELECT c.state, coalesce((SELECT json_agg(a ORDER BY a.at) FROM ( \
                 SELECT decision, at, actor, note FROM toolfleet.approvals \
                 WHERE call_id = $1 ORDER BY at LIMIT 100) a), '[]') AS decisions \
             FROM toolfleet.calls c WHERE c.call_id = $1) d",
    )
    .bind(call.0)
    .fetch_optional(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("read what was decided about a call", error))
}
