//! When a call expires: its deadline, and the longest wait for its first attempt.

use std::time::Duration;

use sqlx::{Row as _, postgres::PgRow};

use super::columns::parsed;
use crate::{
    call::{Effect, Language},
    ids::CallId,
    obstacle::Obstacle,
};

macro_rules! over_at {
    () => {
        "least(deadline_at, CASE WHEN attempts = 0 THEN queue_until END)"
    };
}

/// When an open call expires: its deadline, or before its first attempt the end of its queue wait, whichever comes first.
pub(super) const OVER_AT: &str = over_at!();

/// The same in milliseconds from now.
pub(super) const LEFT_MS: &str = concat!(
    "(extract(epoch FROM ",
    over_at!(),
    " - now()) * 1000)::float8"
);

/// Whether only the first attempt did not start in time.
pub(super) const WAITED_TOO_LONG: &str = "attempts = 0 AND coalesce(queue_until <= now(), false)";

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

/// The time in milliseconds; zero when it is over.
pub(super) fn left(ms: f64) -> Duration {
    // More than any process lives is the same as never.
    Duration::try_from_secs_f64((ms / 1_000.0).clamp(0.0, 1e9)).unwrap_or_default()
}
