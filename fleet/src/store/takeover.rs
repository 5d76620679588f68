//! A record for people: who gave a prefix to this ledger although NATS had another ledger's watermark. Nothing is decided by
//! it.

use sqlx::PgConnection;
use uuid::Uuid;

use super::StoreError;
use crate::{ids::Prefix, owner::LedgerName};

/// A request of a person.
#[derive(Debug, Clone, Copy)]
pub struct Takeover<'a> {
    /// The prefix.
    pub prefix: &'a Prefix,
    /// The ledger that has it so far.
    pub former: &'a LedgerName,
    /// The author.
    pub by: &'a str,
    /// How the author knows that the other ledger is gone.
    pub note: &'a str,
}

/// Records the takeover before it is done; returns the record's id. Own statement.
///
/// # Errors
///
/// Postgres does not answer, or refuses.
pub async fn asked(
    connection: &mut PgConnection,
    takeover: Takeover<'_>,
) -> Result<Uuid, StoreError> {
    sqlx::query_scalar(
        "INSERT INTO toolfleet.prefix_takeovers (prefix, former_ledger_id, former_place, taken_by, note) \
         VALUES ($1, $2, $3, $4, $5) RETURNING takeover_id",
    )
    .bind(takeover.prefix.as_str())
    .bind(takeover.former.id.0)
    .bind(&takeover.former.place)
    .bind(takeover.by)
    .bind(takeover.note)
    .fetch_one(connection)
    .await
    .map_err(|error| StoreError::from_sqlx("record who takes the prefix", error))
}

/// Records that it was done. Own statement, by the record's id; safe to repeat.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn taken(connection: &mut PgConnection, takeover: Uuid) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE toolfleet.prefix_takeovers SET taken_at = coalesce(taken_at, now()) WHERE takeover_id = $1",
    )
    .bind(takeover)
    .execute(connection)
    .await
    .map(drop)
    .map_err(|error| StoreError::from_sqlx("record that the prefix was taken", error))
}
