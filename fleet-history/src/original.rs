//! The request of a call as it was accepted, to make the same call again.

use fleet::{ids::CallId, store::StoreError};
use sqlx::PgPool;
use uuid::Uuid;

/// The request of a call.
#[derive(Debug, sqlx::FromRow)]
pub struct Original {
    /// The call.
    pub call_id: Uuid,
    /// The state of the call.
    pub state: String,
    /// What is known of its effect, once it is over.
    pub effect_known: Option<String>,
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
    /// The files that it named, in its order.
    pub files: Option<Vec<Uuid>>,
    /// Whether its tool has sensitive fields, which the views do not show.
    pub sensitive: bool,
    /// Whether an attempt of it said late that it did it, where its tool writes.
    pub happened_late: bool,
}

/// The request of a call; `None` if there is no such call.
///
/// # Errors
///
/// The view cannot be read.
pub async fn original(pool: &PgPool, call: CallId) -> Result<Option<Original>, StoreError> {
    Ok(originals(pool, &[call]).await?.pop())
}

/// The requests of those of these calls that are there, in no order. A request may have 256 KiB, of a model 1 MiB, so ask for a
/// hundred at most.
///
/// # Errors
///
/// The view cannot be read.
pub async fn originals(pool: &PgPool, calls: &[CallId]) -> Result<Vec<Original>, StoreError> {
    let ids: Vec<Uuid> = calls.iter().map(|call| call.0).collect();
    sqlx::query_as(
        "SELECT call_id, state, effect_known, effect, tenant, tool, args::text AS args, session, run, priority, language, meta::text AS meta, files, \
                sensitive, effect <> 'read' AND EXISTS (
                    SELECT FROM toolfleet.attempts a WHERE a.call_id = c.call_id AND a.late AND a.outcome = 'applied') AS happened_late
         FROM toolfleet.calls c WHERE call_id = ANY($1)",
    )
    .bind(ids)
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("read a call", error))
}
