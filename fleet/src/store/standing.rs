//! Where the ledger stands: looking, remembering, and what is done when writes were lost. [`crate::standing`] decides.

use std::{collections::BTreeMap, time::Duration};

use sqlx::{Executor as _, PgConnection, Row as _, postgres::PgRow};

use super::{StoreError, answer::within};
use crate::{
    call::Language,
    ids::LedgerId,
    outcome::ToolFailure,
    standing::{Mark, Seen, Standing},
    wire::{code::Code, error::ErrorBody, message::Message},
};

/// How long a quarantine may take, or waiting for that of another process.
const QUARANTINE_MAX: Duration = Duration::from_secs(600);
/// Text of a mark's columns.
const MARK: &str =
    "f.ledger_id, f.system_identifier, f.timeline, f.quarantines, f.wal_lsn::text AS wal_lsn";

/// Looks. One statement, which takes no lock; on a primary only. `None`: the server has no ledger yet.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn look(connection: &mut PgConnection) -> Result<Option<Seen>, StoreError> {
    let doing = "look where the ledger stands";
    // The checkpoint's timeline lags behind a promotion; that of the next WAL file does not.
    let sql = format!(
        "SELECT {MARK}, (SELECT system_identifier::text FROM pg_control_system()) AS server_system, \
                ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int AS server_timeline, \
                pg_current_wal_insert_lsn()::text AS server_lsn \
         FROM toolfleet.fleet f"
    );
    // Made of constants of this file.
    let row = sqlx::query(sqlx::AssertSqlSafe(sql))
        .fetch_optional(connection)
        .await;
    let row = match row {
        Ok(Some(row)) => row,
        Ok(None) => return Ok(None),
        Err(error) if lacks_schema(&error) => return Ok(None),
        Err(error) => return Err(StoreError::from_sqlx(doing, error)),
    };
    let read = |row: &PgRow| -> Result<Seen, sqlx::Error> {
        Ok(Seen {
            ledger_id: LedgerId(row.try_get("ledger_id")?),
            system_identifier: row.try_get("server_system")?,
            timeline: row.try_get("server_timeline")?,
            wal_lsn: position(row, "server_lsn")?,
            ledger: read_mark(row)?,
            quarantines: row.try_get("quarantines")?,
        })
    };
    read(&row)
        .map(Some)
        .map_err(|error| StoreError::unreadable(doing, error))
}

/// The mark in the ledger, to be remembered. Own statement; takes no lock.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn mark(connection: &mut PgConnection) -> Result<Option<Mark>, StoreError> {
    let doing = "read the ledger's mark";
    let sql = format!("SELECT {MARK} FROM toolfleet.fleet f");
    // Made of constants of this file.
    let row = sqlx::query(sqlx::AssertSqlSafe(sql))
        .fetch_one(connection)
        .await
        .map_err(|error| StoreError::from_sqlx(doing, error))?;
    read_mark(&row).map_err(|error| StoreError::unreadable(doing, error))
}

/// Which ledger this is. Own statement; takes no lock.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn ledger_id(connection: &mut PgConnection) -> Result<LedgerId, StoreError> {
    sqlx::query_scalar("SELECT ledger_id FROM toolfleet.fleet")
        .fetch_one(connection)
        .await
        .map(LedgerId)
        .map_err(|error| StoreError::from_sqlx("ask which ledger this is", error))
}

/// How many open calls are in doubt because writes were lost. Reads all open calls; for people who ask.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn quarantined(connection: &mut PgConnection) -> Result<i64, StoreError> {
    sqlx::query_scalar(
        "SELECT count(*) FROM toolfleet.open_calls WHERE quarantined AND state = 'in_doubt'",
    )
    .fetch_one(connection)
    .await
    .map_err(|error| StoreError::from_sqlx("count calls in quarantine", error))
}

/// Moves the ledger's mark to where its disk is now, never back, and returns it.
///
/// Own statement; guard: the row names this very server, so an unjudged one is never marked as seen.
/// `None`: it does not, and the next connection judges.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn advance(connection: &mut PgConnection) -> Result<Option<Mark>, StoreError> {
    let doing = "move the ledger's mark";
    let sql = format!(
        "UPDATE toolfleet.fleet f SET wal_lsn = greatest(f.wal_lsn, pg_current_wal_flush_lsn()) \
         WHERE f.system_identifier = (SELECT system_identifier::text FROM pg_control_system()) \
           AND f.timeline = ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int \
         RETURNING {MARK}"
    );
    // Made of constants of this file.
    let row = sqlx::query(sqlx::AssertSqlSafe(sql))
        .fetch_optional(connection)
        .await
        .map_err(|error| StoreError::from_sqlx(doing, error))?;
    let Some(row) = row else { return Ok(None) };
    read_mark(&row).map_err(|error| StoreError::unreadable(doing, error))
}

/// Writes the first mark of a new ledger. Own statement; guard: there is none. A number that is remembered from a ledger
/// before stays behind it.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn adopt(
    connection: &mut PgConnection,
    seen: &Seen,
    remembered: Option<&Mark>,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE toolfleet.fleet SET system_identifier = $1, timeline = $2, wal_lsn = pg_current_wal_flush_lsn(), \
                quarantines = greatest(quarantines, $3) \
         WHERE system_identifier IS NULL",
    )
    .bind(&seen.system_identifier)
    .bind(seen.timeline)
    .bind(remembered.map_or(0, |mark| mark.quarantines))
    .execute(connection)
    .await
    .map(drop)
    .map_err(|error| StoreError::from_sqlx("adopt a new ledger", error))
}

/// Puts in doubt every call that may have run without the ledger knowing.
///
/// Returns how many calls; `None`: another process has done it. One autocommit statement; guard: the number of quarantines;
/// safe to repeat; it closes the open calls to writers while it runs, and waits as long for another process that runs it already.
///
/// # Errors
///
/// Postgres does not answer; whether it was done is unknown, and the next look finds out.
pub async fn quarantine(
    connection: &mut PgConnection,
    seen: &Seen,
    remembered: Option<&Mark>,
    standing: Standing,
) -> Result<Option<i64>, StoreError> {
    let doing = "put in doubt what was open";
    let failed = |error| StoreError::from_sqlx(doing, error);
    let patience = format!(
        "SET statement_timeout = {limit}; SET lock_timeout = {limit}",
        limit = QUARANTINE_MAX.as_millis()
    );
    let quarantining = async {
        // Made of a constant of this file.
        let patient = connection.execute(sqlx::AssertSqlSafe(patience)).await;
        patient.map_err(failed)?;
        let (done, doubted): (bool, i64) = sqlx::query_as(
            "SELECT done, doubted FROM toolfleet.quarantine($1, $2, $3, $4, $5, $6::json)",
        )
        .bind(seen.quarantines)
        .bind(seen.next_quarantine(remembered))
        .bind(&seen.system_identifier)
        .bind(seen.timeline)
        .bind(standing.as_str())
        .bind(errors_of_doubt())
        .fetch_one(&mut *connection)
        .await
        .map_err(failed)?;
        let reset = connection.execute("RESET statement_timeout; RESET lock_timeout");
        reset.await.map_err(failed)?;
        Ok(done.then_some(doubted))
    };
    within(
        doing,
        QUARANTINE_MAX + Duration::from_secs(10),
        quarantining,
    )
    .await
}

/// What callers read about a call that was put in doubt, by its language.
fn errors_of_doubt() -> String {
    let what = Message::fixed(
        "the ledger lost its latest writes, and perhaps with them that the call was run",
        "账本丢失了最近的写入，这次调用曾经执行的记录可能也随之丢失",
    );
    let failure = ToolFailure::new(Code::InDoubt, what);
    let errors: BTreeMap<&str, ErrorBody> = Language::ALL
        .iter()
        .map(|language| (language.as_str(), ErrorBody::in_doubt(&failure, *language)))
        .collect();
    serde_json::to_string(&errors).expect("errors have only string keys")
}

fn read_mark(row: &PgRow) -> Result<Option<Mark>, sqlx::Error> {
    let (system_identifier, timeline) = (
        row.try_get::<Option<String>, _>("system_identifier")?,
        row.try_get::<Option<i32>, _>("timeline")?,
    );
    let (Some(system_identifier), Some(timeline)) = (system_identifier, timeline) else {
        return Ok(None);
    };
    Ok(Some(Mark {
        ledger_id: Some(LedgerId(row.try_get("ledger_id")?)),
        system_identifier,
        timeline,
        quarantines: row.try_get("quarantines")?,
        wal_lsn: position(row, "wal_lsn")?,
    }))
}

fn position(row: &PgRow, column: &str) -> Result<crate::standing::WalPosition, sqlx::Error> {
    let text: String = row.try_get(column)?;
    text.parse().map_err(|e| sqlx::Error::Decode(Box::new(e)))
}

/// No schema, no table or none of our columns: nothing to judge, and the check of the schema says more.
fn lacks_schema(error: &sqlx::Error) -> bool {
    let code = match error {
        sqlx::Error::Database(answer) => answer.code(),
        _ => None,
    };
    code.is_some_and(|code| matches!(code.as_ref(), "42P01" | "3F000" | "42703"))
}
