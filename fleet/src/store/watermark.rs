//! The ledger's watermark: read, moved forward, and compared with the server. [`crate::lost_writes`] decides.

use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::StoreError;
use crate::{
    ids::LedgerId,
    lost_writes::{Seen, WalPosition, Watermark},
};

/// The columns of a watermark.
const COLUMNS: &str =
    "f.ledger_id, f.system_identifier, f.timeline, f.quarantines, f.wal_lsn::text AS wal_lsn";

/// Reads the watermark and where the server is now. One statement, which takes no lock; on a primary only. `None`: the server
/// has no ledger yet.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn look(connection: &mut PgConnection) -> Result<Option<Seen>, StoreError> {
    let doing = "look where the ledger stands";
    // The checkpoint's timeline lags behind a promotion; that of the next WAL file does not.
    let sql = format!(
        "SELECT {COLUMNS}, (SELECT system_identifier::text FROM pg_control_system()) AS server_system, \
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
    let seen = |row: &PgRow| -> Result<Seen, sqlx::Error> {
        Ok(Seen {
            ledger_id: LedgerId(row.try_get("ledger_id")?),
            system_identifier: row.try_get("server_system")?,
            timeline: row.try_get("server_timeline")?,
            wal_lsn: position(row, "server_lsn")?,
            ledger: parse(row)?,
            quarantines: row.try_get("quarantines")?,
        })
    };
    seen(&row)
        .map(Some)
        .map_err(|error| StoreError::unreadable(doing, error))
}

/// Reads the watermark in the ledger. Own statement; takes no lock.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn read(connection: &mut PgConnection) -> Result<Option<Watermark>, StoreError> {
    let doing = "read the ledger's watermark";
    let sql = format!("SELECT {COLUMNS} FROM toolfleet.fleet f");
    // Made of constants of this file.
    let row = sqlx::query(sqlx::AssertSqlSafe(sql))
        .fetch_one(connection)
        .await
        .map_err(|error| StoreError::from_sqlx(doing, error))?;
    parse(&row).map_err(|error| StoreError::unreadable(doing, error))
}

/// Reads the ledger's id. Own statement; takes no lock.
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

/// Moves the ledger's watermark to what the server has flushed, never back, and returns it.
///
/// Own statement; guard: the row names this very server, so a server that was not compared yet is left as it is. `None`: it
/// does not, and the next connection compares.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn advance(connection: &mut PgConnection) -> Result<Option<Watermark>, StoreError> {
    let doing = "move the ledger's watermark";
    let sql = format!(
        "UPDATE toolfleet.fleet f SET wal_lsn = greatest(f.wal_lsn, pg_current_wal_flush_lsn()) \
         WHERE f.system_identifier = (SELECT system_identifier::text FROM pg_control_system()) \
           AND f.timeline = ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int \
         RETURNING {COLUMNS}"
    );
    // Made of constants of this file.
    let row = sqlx::query(sqlx::AssertSqlSafe(sql))
        .fetch_optional(connection)
        .await
        .map_err(|error| StoreError::from_sqlx(doing, error))?;
    let Some(row) = row else { return Ok(None) };
    parse(&row).map_err(|error| StoreError::unreadable(doing, error))
}

/// Writes the first watermark of a new ledger. Own statement; guard: there is none. Its number of quarantines is at least the
/// remembered one.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn adopt(
    connection: &mut PgConnection,
    seen: &Seen,
    remembered: Option<&Watermark>,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE toolfleet.fleet SET system_identifier = $1, timeline = $2, wal_lsn = pg_current_wal_flush_lsn(), \
                quarantines = greatest(quarantines, $3) \
         WHERE system_identifier IS NULL",
    )
    .bind(&seen.system_identifier)
    .bind(seen.timeline)
    .bind(remembered.map_or(0, |watermark| watermark.quarantines))
    .execute(connection)
    .await
    .map(drop)
    .map_err(|error| StoreError::from_sqlx("adopt a new ledger", error))
}

fn parse(row: &PgRow) -> Result<Option<Watermark>, sqlx::Error> {
    let (system_identifier, timeline) = (
        row.try_get::<Option<String>, _>("system_identifier")?,
        row.try_get::<Option<i32>, _>("timeline")?,
    );
    let (Some(system_identifier), Some(timeline)) = (system_identifier, timeline) else {
        return Ok(None);
    };
    Ok(Some(Watermark {
        ledger_id: Some(LedgerId(row.try_get("ledger_id")?)),
        system_identifier,
        timeline,
        quarantines: row.try_get("quarantines")?,
        wal_lsn: position(row, "wal_lsn")?,
    }))
}

fn position(row: &PgRow, column: &str) -> Result<WalPosition, sqlx::Error> {
    let text: String = row.try_get(column)?;
    text.parse().map_err(|e| sqlx::Error::Decode(Box::new(e)))
}

/// No schema, no table or no column of ours: there is nothing to compare, and the check of the schema reports it.
fn lacks_schema(error: &sqlx::Error) -> bool {
    let code = match error {
        sqlx::Error::Database(answer) => answer.code(),
        _ => None,
    };
    code.is_some_and(|code| matches!(code.as_ref(), "42P01" | "3F000" | "42703"))
}
