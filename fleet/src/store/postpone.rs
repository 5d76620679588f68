//! Postpone: a queued call that cannot run here and now waits in the ledger, not in NATS.
//!
//! A message that is refused with a delay keeps its place among those in flight, so thousands of them would stop a whole
//! queue. The row waits for nothing: the sweep publishes it again when its pause is over.

use std::time::Duration;

use sqlx::PgPool;

use super::StoreError;
use crate::ids::CallId;

/// Lets a queued call wait. Own autocommit statement; guard: queued, not held and not moved since `rev`; false: it has moved;
/// repeating it only prolongs the wait. It is no move, so the revision stays.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn postpone(
    pool: &PgPool,
    call: CallId,
    rev: i32,
    pause: Duration,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE toolfleet.open_calls \
         SET not_before = now() + make_interval(secs => $3), due_at = now() + make_interval(secs => $3), \
             publish_n = publish_n + 1 \
         WHERE call_id = $1 AND rev = $2 AND state = 'queued' AND NOT held",
    )
    .bind(call.0)
    .bind(rev)
    .bind(pause.as_secs_f64())
    .execute(pool)
    .await;
    done.map(|done| done.rows_affected() == 1)
        .map_err(|error| StoreError::from_sqlx("postpone a call", error))
}
