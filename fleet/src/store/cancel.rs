//! Cancel: a caller cancels a call. `toolfleet.cancel` in the database decides the result.

use sqlx::{PgPool, Row as _, postgres::PgRow};

use super::{
    DecisionError,
    columns::{parse, parsed},
    decision::decide,
};
use crate::{
    call::State,
    ids::{CallId, DispatcherId, Label, WorkerId},
    wire::cancel::CancelResult,
};

/// A request to cancel.
#[derive(Debug, Clone)]
pub struct Cancellation<'a> {
    /// The call.
    pub call: CallId,
    /// The tenant that must own it; `None`: any tenant.
    pub tenant: Option<&'a Label>,
    /// The author.
    pub actor: &'a str,
    /// The reason, in the author's words.
    pub reason: Option<&'a str>,
}

/// The ledger's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CancelVerdict {
    /// The result of the request.
    pub result: CancelResult,
    /// The new state of the call.
    pub state: State,
    /// The worker that runs it and must be told.
    pub worker: Option<WorkerId>,
    /// The dispatcher that accepted it, which tells its waiters.
    pub dispatcher: Option<DispatcherId>,
}

/// Cancels a call; `None`: this tenant has no such call.
///
/// Own autocommit statement. A call that waits ends or goes in doubt; a call that runs gets the flag. Safe to repeat. Locks the
/// one row, and waits for a statement that has it.
///
/// # Errors
///
/// [`DecisionError::Invalid`] for an invalid actor; otherwise Postgres does not answer.
pub async fn cancel(
    pool: &PgPool,
    cancellation: &Cancellation<'_>,
) -> Result<Option<CancelVerdict>, DecisionError> {
    let asking = sqlx::query(
        "SELECT verdict, state, worker_id, dispatcher_id FROM toolfleet.cancel($1, $2, $3, $4)",
    )
    .bind(cancellation.call.0)
    .bind(cancellation.actor)
    .bind(cancellation.reason)
    .bind(cancellation.tenant.map(Label::as_str));
    decide("cancel a call", pool, asking, read).await
}

fn read(row: &PgRow) -> Result<Option<CancelVerdict>, sqlx::Error> {
    let verdict: &str = row.try_get("verdict")?;
    if verdict == "not_found" {
        return Ok(None);
    }
    Ok(Some(CancelVerdict {
        result: parse(verdict)?,
        state: parsed(row, "state")?,
        worker: row.try_get::<Option<_>, _>("worker_id")?.map(WorkerId),
        dispatcher: row
            .try_get::<Option<_>, _>("dispatcher_id")?
            .map(DispatcherId),
    }))
}
