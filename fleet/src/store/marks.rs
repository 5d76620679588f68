//! Marks of calls that are over: somebody has made one again, or given it up. `toolfleet.mark_calls` in the database decides
//! whether that is allowed, for people with psql and at the command line alike.

use std::time::Duration;

use sqlx::{PgExecutor, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{DecisionError, StoreError, answer::within, columns::parsed, columns::parsed_if_any};
use crate::{
    call::{State, words},
    ids::CallId,
};

/// The most calls that are marked at a time.
pub const MARKS_MAX: usize = 1_000;

words! {
    /// What was done about a call after its end.
    CallMark {
        /// Another call was made instead.
        Retried = "retried",
        /// It was given up.
        Discarded = "discarded",
    }
}

words! {
    /// The ledger's answer about one call.
    MarkVerdict {
        /// It has the mark now, or had it before.
        Marked = "marked",
        /// It cannot be discarded, for it is no dead letter.
        NotDead = "not_dead",
        /// It is not discarded now, for somebody makes it again.
        UnderWay = "under_way",
        /// It is open, or in doubt.
        NotOver = "not_over",
        /// There is no such call.
        NotFound = "not_found",
    }
}

/// Marks of one kind, by one author.
#[derive(Debug, Clone)]
pub struct NewMarks<'a> {
    /// What was done.
    pub what: CallMark,
    /// The author.
    pub actor: &'a str,
    /// Why; required where calls are discarded.
    pub note: Option<&'a str>,
    /// The name of the bulk operation.
    pub bulk_name: Option<&'a str>,
    /// The calls, at most [`MARKS_MAX`]; each with the one that was made instead where it was retried.
    pub calls: &'a [(CallId, Option<CallId>)],
}

/// What came of marking one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marked {
    /// The call.
    pub call_id: CallId,
    /// The answer.
    pub verdict: MarkVerdict,
    /// Its state, where there is such a call.
    pub state: Option<State>,
}

/// How long marking waits for its answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

const SQL: &str =
    "SELECT call_id, verdict, state FROM toolfleet.mark_calls($1, $2, $3, $4, $5, $6)";

/// Marks calls, in no order.
///
/// Own autocommit statement; guards: the call is over, and a dead letter where it is discarded. Safe to repeat: it recognises its
/// own marks. Locks no call.
///
/// # Errors
///
/// [`DecisionError::Invalid`] for an invalid actor or note; otherwise Postgres does not answer.
pub async fn mark(
    ledger: impl PgExecutor<'_>,
    marks: &NewMarks<'_>,
) -> Result<Vec<Marked>, DecisionError> {
    const DOING: &str = "mark calls";
    let calls: Vec<Uuid> = marks.calls.iter().map(|(call, _)| call.0).collect();
    let new: Option<Vec<Uuid>> = match marks.what {
        CallMark::Retried => Some(
            marks
                .calls
                .iter()
                .filter_map(|(_, new)| new.map(|new| new.0))
                .collect(),
        ),
        CallMark::Discarded => None,
    };
    let asking = sqlx::query(SQL)
        .bind(calls)
        .bind(marks.what.as_str())
        .bind(marks.actor)
        .bind(marks.note)
        .bind(new)
        .bind(marks.bulk_name);
    let asking = async { Ok(asking.fetch_all(ledger).await) };
    let rows = within(DOING, ANSWER_MAX, asking)
        .await?
        .map_err(|error| DecisionError::from_sqlx(DOING, error))?;
    let rows: Result<Vec<Marked>, sqlx::Error> = rows.iter().map(read).collect();
    Ok(rows.map_err(|error| StoreError::unreadable(DOING, error))?)
}

fn read(row: &PgRow) -> Result<Marked, sqlx::Error> {
    Ok(Marked {
        call_id: CallId(row.try_get("call_id")?),
        verdict: parsed(row, "verdict")?,
        state: parsed_if_any(row, "state")?,
    })
}
