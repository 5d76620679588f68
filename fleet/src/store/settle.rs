//! Settle: what a call in doubt turned out to be. `toolfleet.settle` in the database decides whether that is allowed, for
//! people with psql, for operators over NATS and for probes alike.

use std::time::Duration;

use sqlx::{PgPool, Row as _, postgres::PgRow};
use time::OffsetDateTime;

use super::{DecisionError, columns::parsed, decision::decide};
use crate::{
    call::{State, words},
    ids::{CallId, DispatcherId, Label},
};

words! {
    /// What was found out.
    SettledAs {
        /// The effect happened.
        Applied = "applied",
        /// It did not, and will not.
        NotApplied = "not_applied",
        /// Nobody will ever know. Only a person says so.
        Abandoned = "abandoned",
    }
}

/// A finding about a call.
#[derive(Debug, Clone)]
pub struct Settlement<'a> {
    /// The call.
    pub call: CallId,
    /// The tenant that must own it; `None`: any tenant.
    pub tenant: Option<&'a Label>,
    /// What was found out.
    pub finding: SettledAs,
    /// The author.
    pub actor: &'a str,
    /// How the author knows.
    pub note: &'a str,
    /// The tool's answer, JSON text, where it was found too.
    pub result: Option<&'a str>,
    /// Accept "not applied" although something of its attempts may still be alive.
    pub by_time_only: bool,
}

/// The ledger's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is settled with this finding.
    Settled {
        /// The new state of the call.
        state: State,
        /// The dispatcher that accepted it, if it was settled just now: its waiters must be told.
        tell: Option<DispatcherId>,
    },
    /// It is not in doubt, or was settled differently.
    Conflict {
        /// The state of the call.
        state: State,
        /// The author of that decision, if it is decided.
        decided_by: Option<String>,
        /// When.
        decided_at: Option<OffsetDateTime>,
    },
    /// Something that was started for it may still act.
    WorkerNotFenced,
    /// The time of its attempt is not over.
    TooEarly {
        /// When it will be.
        until: OffsetDateTime,
        /// How long that is from now, by Postgres's clock.
        wait: Duration,
    },
    /// There is no such call of this tenant.
    NotFound,
}

const SQL: &str = "SELECT verdict, state, decided_by, decided_at, dispatcher_id, \
    greatest(0, ceil(extract(epoch FROM decided_at - clock_timestamp()) * 1000))::bigint AS wait_ms \
    FROM toolfleet.settle($1, $2, $3, $4, $5::json, $6, $7)";

/// Settles a call.
///
/// Own autocommit statement; guard: in doubt, and proof of the finding; the verdict says which one failed. Safe to repeat, for
/// it recognises its own decision. Locks the one row, and waits for a statement that has it.
///
/// # Errors
///
/// [`DecisionError::Invalid`] for an invalid actor, note or result; otherwise Postgres does not answer.
pub async fn settle(pool: &PgPool, settlement: &Settlement<'_>) -> Result<Verdict, DecisionError> {
    let asking = sqlx::query(SQL)
        .bind(settlement.call.0)
        .bind(settlement.finding.as_str())
        .bind(settlement.actor)
        .bind(settlement.note)
        .bind(settlement.result)
        .bind(settlement.by_time_only)
        .bind(settlement.tenant.map(Label::as_str));
    decide("settle a call", pool, asking, read).await
}

fn read(row: &PgRow) -> Result<Verdict, sqlx::Error> {
    Ok(match row.try_get("verdict")? {
        "settled" => Verdict::Settled {
            state: parsed(row, "state")?,
            tell: row
                .try_get::<Option<_>, _>("dispatcher_id")?
                .map(DispatcherId),
        },
        "conflict" => Verdict::Conflict {
            state: parsed(row, "state")?,
            decided_by: row.try_get("decided_by")?,
            decided_at: row.try_get("decided_at")?,
        },
        "worker_not_fenced" => Verdict::WorkerNotFenced,
        "too_early" => Verdict::TooEarly {
            until: row.try_get("decided_at")?,
            wait: Duration::from_millis(row.try_get::<i64, _>("wait_ms")?.unsigned_abs()),
        },
        "not_found" => Verdict::NotFound,
        other => {
            let unknown = format!("{other:?} is not a known verdict");
            return Err(sqlx::Error::Decode(unknown.into()));
        }
    })
}
