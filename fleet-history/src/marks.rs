//! The marks of a call: what was done about it after its end, and for which call it was made itself.

use fleet::{ids::CallId, store::StoreError};
use serde::Deserialize;
use sqlx::PgPool;
use time::OffsetDateTime;

use crate::row::Row;

/// A row of `marks`, with what the new call has come to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Mark {
    /// The call that has the mark.
    pub call_id: CallId,
    /// `retried`, `discarded` or `abandoned`; a newer release may have others.
    pub what: String,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// By whom.
    pub actor: String,
    /// Why.
    pub note: Option<String>,
    /// The name of the bulk operation that made it.
    pub bulk_name: Option<String>,
    /// The call that was made instead.
    pub new_call_id: Option<CallId>,
    /// Its state, while the history has it.
    pub new_state: Option<String>,
}

/// The marks of a call, and those of the calls that it was made for, the oldest first; at most 100.
///
/// # Errors
///
/// The views cannot be read.
pub async fn marks(pool: &PgPool, call: CallId) -> Result<Row<Vec<Mark>>, StoreError> {
    sqlx::query_scalar(
        "SELECT coalesce(json_agg(m ORDER BY m.at, m.call_id), '[]')::text FROM (
             SELECT k.*, (SELECT n.state FROM toolfleet.calls n WHERE n.call_id = k.new_call_id) AS new_state
             FROM toolfleet.marks k
             WHERE k.call_id = $1 OR k.new_call_id = $1
             ORDER BY k.at, k.call_id LIMIT 100) m",
    )
    .bind(call.0)
    .fetch_one(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("read the marks of a call", error))
}
