//! The request of a call as it was accepted, to make the same call again.

use fleet::{ids::CallId, store::StoreError};
use sqlx::PgPool;

/// The request of a call.
#[derive(Debug, sqlx::FromRow)]
pub struct Original {
    /// The state of the call.
    pub state: String,
    /// The effect class of its tool.
    pub effect: String,
    /// The caller's tenant.
    pub tenant: String,
    /// The tool.
    pub tool: String,
    /// The stored text, byte for byte.
    pub args: String,
    /// Its session.
    pub session: Option<String>,
    /// Its run.
    pub run: Option<String>,
    /// Its priority.
    pub priority: String,
    /// The language of its messages.
    pub language: String,
    /// Its meta, a JSON object.
    pub meta: Option<String>,
    /// Whether its tool has sensitive fields, which the views do not show.
    pub sensitive: bool,
}

/// The request of a call; `None` if there is no such call.
///
/// # Errors
///
/// The view cannot be read.
pub async fn original(pool: &PgPool, call: CallId) -> Result<Option<Original>, StoreError> {
    sqlx::query_as(
        "SELECT state, effect, tenant, tool, args::text AS args, session, run, priority, language, meta::text AS meta, sensitive
         FROM toolfleet.calls WHERE call_id = $1",
    )
    .bind(call.0)
    .fetch_optional(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("read a call", error))
}
