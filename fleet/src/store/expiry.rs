//! Whether calls have expired: asked about single calls, by a dispatcher that knows when they should.

use std::time::Duration;

use sqlx::{PgPool, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{
    StoreError,
    answer::answer_within,
    over::{Expired, LEFT_MS, WAITED_TOO_LONG, left},
};
use crate::ids::CallId;

/// The time that calls have left. A call that is missing here is decided.
#[derive(Debug, Default)]
pub struct Clocks {
    /// Queued calls whose time is over.
    pub expired: Vec<Expired>,
    /// Open calls with time left, and the pause until another look is worth it.
    pub left: Vec<(CallId, Duration)>,
}

/// The pause for a call whose time is over and that runs: its worker ends it.
const AGAIN: Duration = Duration::from_millis(250);
/// How long a look waits, for a connection and for its answer.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// Looks at certain calls.
///
/// Changes nothing. A call may move between this and its ending, so the ending names the revision that was seen.
///
/// # Errors
///
/// Postgres does not answer within two seconds.
pub async fn look(pool: &PgPool, calls: &[CallId]) -> Result<Clocks, StoreError> {
    let doing = "look which calls are over";
    let sql = format!(
        "SELECT call_id, rev, state = 'queued' AS queued, effect::text AS effect, effect_unknown, language, obstacle::text AS obstacle, \
                {WAITED_TOO_LONG} AS waited_too_long, {LEFT_MS} AS left_ms \
         FROM toolfleet.open_calls WHERE call_id = ANY($1) AND state IN ('queued', 'running')"
    );
    let ids: Vec<Uuid> = calls.iter().map(|call| call.0).collect();
    // Made of constants of this file.
    let looking = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(ids);
    let rows = answer_within(doing, LOOK_MAX, looking.fetch_all(pool)).await?;
    let mut look = Clocks::default();
    for row in &rows {
        read(row, &mut look).map_err(|error| StoreError::unreadable(doing, error))?;
    }
    Ok(look)
}

fn read(row: &PgRow, look: &mut Clocks) -> Result<(), sqlx::Error> {
    let call_id = CallId(row.try_get("call_id")?);
    let left = left(row.try_get("left_ms")?);
    if row.try_get("queued")? && left.is_zero() {
        look.expired.push(Expired::read(row)?);
    } else {
        let again = if left.is_zero() { AGAIN } else { left };
        look.left.push((call_id, again));
    }
    Ok(())
}
