//! Park: lets a call wait whose attempt runs, and gives it what its tool has asked for.
//!
//! It waits for its tool, which answers later, or for its caller, who is asked. `toolfleet.park` and `toolfleet.give_input` in the
//! database decide whether that counts.

use sqlx::{PgPool, Row as _};
use time::OffsetDateTime;

use super::{DecisionError, StoreError, decision::decide, read::answer};
use crate::{
    call::Awaiting,
    ids::{AttemptId, CallId},
    input::Asked,
    wire::token::{Handed, HandedAs},
};

/// For what a call is to wait.
#[derive(Debug, Clone, Copy)]
pub enum Parking<'a> {
    /// For its tool, at most so many milliseconds.
    Completion {
        /// How long.
        wait_ms: i64,
    },
    /// For its caller.
    Input(&'a Asked),
}

impl Parking<'_> {
    /// For whom.
    pub const fn whom(&self) -> Awaiting {
        match self {
            Self::Completion { .. } => Awaiting::Completion,
            Self::Input(_) => Awaiting::Input,
        }
    }
}

/// The ledger's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parked {
    /// The call waits, or has waited since this attempt.
    Waits {
        /// Its revision then.
        rev: i32,
        /// Since when.
        at: OffsetDateTime,
        /// Until when.
        until: OffsetDateTime,
    },
    /// The tool's answer was quicker.
    Over,
    /// The attempt does not have the call any more, or the call is to be cancelled.
    NotNow,
}

/// Lets a call wait.
///
/// Own autocommit statement; guard: the attempt runs it, and it is not to be cancelled. Safe to repeat. Locks the one row, and waits for
/// a statement that has it.
///
/// # Errors
///
/// [`DecisionError::Invalid`] where Postgres refuses what the tool asks; otherwise it does not answer.
pub async fn park(
    pool: &PgPool,
    (call, attempt): (CallId, AttemptId),
    parking: Parking<'_>,
    actor: &str,
) -> Result<Parked, DecisionError> {
    let (wait_ms, asked) = match parking {
        Parking::Completion { wait_ms } => (Some(wait_ms), None),
        Parking::Input(asked) => {
            let text = serde_json::to_string(asked);
            let text = text.map_err(|wrong| DecisionError::Invalid(wrong.to_string()))?;
            (None, Some(text))
        }
    };
    let asking = sqlx::query(
        "SELECT verdict, rev, at, until FROM toolfleet.park($1, $2, $3, $4, $5::json, $6) LIMIT 1",
    )
    .bind(call.0)
    .bind(attempt.0)
    .bind(parking.whom().as_str())
    .bind(wait_ms)
    .bind(asked)
    .bind(actor);
    decide("let a call wait", pool, asking, |row| {
        Ok(match row.try_get("verdict")? {
            "waits" => Parked::Waits {
                rev: row.try_get("rev")?,
                at: row.try_get("at")?,
                until: row.try_get("until")?,
            },
            "over" => Parked::Over,
            "not_now" => Parked::NotNow,
            other => {
                let unknown = format!("{other:?} is not a known verdict");
                return Err(sqlx::Error::Decode(unknown.into()));
            }
        })
    })
    .await
}

/// Gives a call what its tool has asked for at this revision; `false`: it does not wait for that any more.
///
/// Own autocommit statement; guard: the revision. Locks the one row.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn give_input(
    pool: &PgPool,
    call: CallId,
    seen: i32,
    input: &str,
    actor: &str,
) -> Result<bool, StoreError> {
    let giving = sqlx::query("SELECT rev FROM toolfleet.give_input($1, $2, $3::json, $4)")
        .bind(call.0)
        .bind(seen)
        .bind(input)
        .bind(actor)
        .fetch_optional(pool);
    Ok(answer("give a tool what it asked for", giving)
        .await?
        .is_some())
}

/// As what a call was ever handed to its tool, or asked about: the questions, and at most a hundred attempts.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn handed(pool: &PgPool, call: CallId) -> Result<Vec<Handed>, StoreError> {
    let doing = "read to whom a call was handed";
    let reading = sqlx::query(
        "SELECT rev, attempt_id, reason FROM toolfleet.call_notes \
         WHERE call_id = $1 AND to_state = 'awaiting_client' AND reason = 'asks' \
         UNION ALL \
         SELECT NULL, attempt_id, NULL FROM toolfleet.ended_attempts WHERE call_id = $1 AND NOT late \
         UNION ALL \
         SELECT NULL, attempt_id, NULL FROM toolfleet.finished_calls WHERE call_id = $1 AND attempt_id IS NOT NULL \
         LIMIT 100",
    )
    .bind(call.0)
    .fetch_all(pool);
    let rows = answer(doing, reading).await?;
    super::read_all(doing, &rows, |row| {
        let rev: Option<i32> = row.try_get("rev")?;
        let (awaiting, turn) = match rev {
            Some(rev) => (Awaiting::Input, HandedAs::Revision(rev)),
            None => {
                let attempt = AttemptId(row.try_get("attempt_id")?);
                (Awaiting::Completion, HandedAs::Attempt(attempt))
            }
        };
        Ok(Handed {
            call,
            awaiting,
            turn,
        })
    })
}
