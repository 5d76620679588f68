//! Named bulk retries: which calls a name covers, fixed at the first time.

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{StoreError, answer::listen};
use crate::ids::CallId;

/// A bulk retry and the calls that it covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkRetry {
    /// The filter as it was given, in one spelling.
    pub filter: String,
    /// It covers calls accepted at this moment or later.
    pub since: OffsetDateTime,
    /// It covers calls accepted before this moment.
    pub until: OffsetDateTime,
    /// The newest call that it covers.
    pub newest: CallId,
    /// In the keys of its new calls, so that nobody can send one of them first.
    pub nonce: Uuid,
}

/// A bulk retry that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BegunRetry {
    /// What it is.
    pub retry: BulkRetry,
    /// When its name was first used.
    pub at: OffsetDateTime,
}

type RetryRow = (
    String,
    OffsetDateTime,
    OffsetDateTime,
    Uuid,
    Uuid,
    OffsetDateTime,
);

/// The bulk retry of this name, if there is one.
///
/// # Errors
///
/// Postgres does not answer, or the role may not read it.
pub async fn find(ledger: &mut PgConnection, name: &str) -> Result<Option<BegunRetry>, StoreError> {
    let reading = sqlx::query_as(
        "SELECT filter, since, until, newest, nonce, at FROM toolfleet.bulk_retries WHERE name = $1",
    )
    .bind(name);
    let row: Option<RetryRow> = listen(reading.fetch_optional(ledger))
        .await
        .map_err(|error| StoreError::from_sqlx("look for a bulk retry", error))?;
    Ok(row.map(|(filter, since, until, newest, nonce, at)| {
        let retry = BulkRetry {
            filter,
            since,
            until,
            newest: CallId(newest),
            nonce,
        };
        BegunRetry { retry, at }
    }))
}

/// Gives a bulk retry its name, unless the name is taken; returns the one that has it.
///
/// Own autocommit statements. Safe to repeat.
///
/// # Errors
///
/// Postgres does not answer, or the role may not write it.
pub async fn begin(
    ledger: &mut PgConnection,
    name: &str,
    retry: &BulkRetry,
    actor: &str,
) -> Result<BulkRetry, StoreError> {
    let naming = sqlx::query(
        "INSERT INTO toolfleet.bulk_retries (name, filter, since, until, newest, actor, nonce) VALUES ($1, $2, $3, $4, $5, $6, $7) \
         ON CONFLICT (name) DO NOTHING",
    )
    .bind(name)
    .bind(&retry.filter)
    .bind(retry.since)
    .bind(retry.until)
    .bind(retry.newest.0)
    .bind(actor)
    .bind(retry.nonce);
    listen(naming.execute(&mut *ledger))
        .await
        .map_err(|error| StoreError::from_sqlx("name a bulk retry", error))?;
    // One that was dropped with its history in between is ours again.
    let begun = find(ledger, name).await?;
    Ok(begun.map_or_else(|| retry.clone(), |begun| begun.retry))
}
