//! Whether calls have expired: asked about single calls, by a dispatcher that knows when they should.

use std::time::Duration;

use sqlx::{PgPool, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{
    StoreError,
    answer::answer_within,
    columns::parsed,
    statement::{LEFT_MS, WAITED_TOO_LONG, left},
};
use crate::{
    call::{Effect, Language},
    ids::CallId,
    obstacle::Obstacle,
};

/// A queued call whose deadline has passed.
#[derive(Debug, Clone)]
pub struct Expired {
    /// The call.
    pub call_id: CallId,
    /// Its revision: it is ended only if it has not moved since.
    pub rev: i32,
    /// What running it would mean.
    pub effect: Effect,
    /// Whether an earlier attempt left its effect unknown.
    pub unknown: bool,
    /// Whether only the first attempt did not start in time.
    pub waited_too_long: bool,
    /// What the last worker that put it back lacked.
    pub obstacle: Option<Obstacle>,
    /// The language of messages.
    pub language: Language,
}

impl Expired {
    /// From a row that names its columns as the fields here, and whose `obstacle` is a text.
    pub(super) fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let obstacle: Option<String> = row.try_get("obstacle")?;
        Ok(Self {
            call_id: CallId(row.try_get("call_id")?),
            rev: row.try_get("rev")?,
            effect: parsed(row, "effect")?,
            unknown: row.try_get("effect_unknown")?,
            waited_too_long: row.try_get("waited_too_long")?,
            // A newer release may have written words that this one does not know.
            obstacle: obstacle.and_then(|obstacle| serde_json::from_str(&obstacle).ok()),
            language: parsed(row, "language")?,
        })
    }
}

/// The time that calls have left. A call that is missing here is decided.
#[derive(Debug, Default)]
pub struct Clocks {
    /// Queued calls that have expired.
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
