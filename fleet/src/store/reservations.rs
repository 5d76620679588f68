//! Reservations of calls that are made again: before the new call is sent, so that nobody else sends another one.
//! `toolfleet.reserve_retries` in the database decides, one after the other for all who ask.

use sqlx::{PgConnection, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{StoreError, answer::listen, columns::parsed};
use crate::{call::words, ids::CallId};

words! {
    /// The ledger's answer about one call.
    ReserveVerdict {
        /// It is this retry's: the new call may be sent.
        Held = "held",
        /// An attempt says late that it did it.
        EffectHappened = "effect_happened",
        /// Another call was made instead of it already.
        RetriedBefore = "retried_before",
        /// It was given up.
        DiscardedBefore = "discarded_before",
        /// Nobody will ever know whether it was carried out.
        EffectUnknown = "effect_unknown",
        /// Another retry has it.
        UnderWay = "under_way",
        /// It was reserved so long ago that the key of its new call may have lapsed, and has no mark.
        Unsure = "unsure",
        /// It is open, or in doubt.
        NotOver = "not_over",
        /// There is no such call.
        NotFound = "not_found",
    }
}

/// Who makes calls again.
#[derive(Debug, Clone, Copy)]
pub struct Reserver<'a> {
    /// The name of a bulk retry; `None`: it is one call.
    pub name: Option<&'a str>,
    /// The retry, for ever: the nonce of a bulk retry.
    pub retry: Uuid,
    /// This process.
    pub run: Uuid,
}

/// What came of reserving one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved {
    /// The call.
    pub call_id: CallId,
    /// The answer.
    pub verdict: ReserveVerdict,
    /// The name of the bulk retry that has it, where one has.
    pub holder: Option<String>,
}

/// Reserves calls, at most 1,000, and says who has each of them; in no order.
///
/// Own autocommit statement; guards: the call is over, has no mark, and no late proof of its effect. Safe to repeat: it recognises
/// its own reservations.
///
/// # Errors
///
/// Postgres does not answer, or the role may not reserve: then nothing may be sent.
pub async fn reserve(
    ledger: &mut PgConnection,
    by: Reserver<'_>,
    calls: &[CallId],
) -> Result<Vec<Reserved>, StoreError> {
    const DOING: &str = "reserve calls that are made again";
    let asking = sqlx::query(
        "SELECT call_id, verdict, holder FROM toolfleet.reserve_retries($1, $2, $3, $4)",
    )
    .bind(ids(calls))
    .bind(by.name)
    .bind(by.retry)
    .bind(by.run);
    let rows = listen(asking.fetch_all(ledger))
        .await
        .map_err(|error| StoreError::from_sqlx(DOING, error))?;
    let rows: Result<Vec<Reserved>, sqlx::Error> = rows.iter().map(read).collect();
    rows.map_err(|error| StoreError::unreadable(DOING, error))
}

/// Takes reservations back of which no new call was made, and none can be under way. What another process of the same retry has
/// reserved too stays.
///
/// Own autocommit statement. Safe to repeat.
///
/// # Errors
///
/// Postgres does not answer; then they may stay, and this retry can still use them.
pub async fn release(
    ledger: &mut PgConnection,
    by: Reserver<'_>,
    calls: &[CallId],
) -> Result<(), StoreError> {
    let asking = sqlx::query("SELECT toolfleet.release_retries($1, $2, $3)")
        .bind(ids(calls))
        .bind(by.retry)
        .bind(by.run);
    listen(asking.execute(ledger))
        .await
        .map_err(|error| StoreError::from_sqlx("take reservations back", error))?;
    Ok(())
}

fn ids(calls: &[CallId]) -> Vec<Uuid> {
    calls.iter().map(|call| call.0).collect()
}

fn read(row: &PgRow) -> Result<Reserved, sqlx::Error> {
    Ok(Reserved {
        call_id: CallId(row.try_get("call_id")?),
        verdict: parsed(row, "verdict")?,
        holder: row.try_get("holder")?,
    })
}
