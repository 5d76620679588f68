//! Cancel: a caller takes a call back. What that comes to is decided by `toolfleet.cancel` in the database.

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

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Cancellation<'a> {
    /// The call.
    pub call: CallId,
    /// Whose it must be; `None`: any tenant's.
    pub tenant: Option<&'a Label>,
    /// Who wants it.
    pub actor: &'a str,
    /// Why, in their words.
    pub reason: Option<&'a str>,
}

/// What the ledger says to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CancelVerdict {
    /// What became of the wish.
    pub result: CancelResult,
    /// Where the call stands now.
    pub state: State,
    /// Who runs it and is to be told.
    pub worker: Option<WorkerId>,
    /// Who accepted it, and tells its waiters.
    pub dispatcher: Option<DispatcherId>,
}

/// Takes a call back; `None`: there is no such call of this tenant.
///
/// Own autocommit statement; a call that waits is ended
/// or goes in doubt, one that runs is marked; safe to repeat; locks the one row, and waits for a statement that has it.
///
/// # Errors
///
/// [`DecisionError::Invalid`] for an actor that cannot be; otherwise Postgres does not answer.
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
