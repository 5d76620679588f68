//! How many open calls each tenant has, without reading the calls. Triggers keep the counts, in the statement that accepts or
//! ends a call, so they are exact in every snapshot.

use sqlx::{PgConnection, PgPool, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{StoreError, answer::listen};
use crate::ids::{CallId, Label};

/// The most rows that one statement folds.
const FOLDED_MAX: i32 = 5_000;
/// With more rows than this, those of living sessions are folded too.
const CROWD: i32 = 20_000;

/// The open calls of one tenant at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Open {
    /// Its open calls.
    pub calls: i64,
    /// Which of the calls that were asked for are among them.
    pub there: Vec<CallId>,
}

/// How many open calls these tenants have, in their order. Own statement, which reads some rows for each of them.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn of_all(pool: &PgPool, tenants: &[Label]) -> Result<Vec<i64>, StoreError> {
    let names: Vec<&str> = tenants.iter().map(Label::as_str).collect();
    listen(
        sqlx::query_scalar(
            "SELECT toolfleet.open_count(asked.tenant) \
         FROM unnest($1::text[]) WITH ORDINALITY asked (tenant, place) ORDER BY place",
        )
        .bind(names)
        .fetch_all(pool),
    )
    .await
    .map_err(|error| StoreError::from_sqlx("count the open calls of tenants", error))
}

/// How many open calls a tenant has, and which of these are among them. Own statement.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn of(pool: &PgPool, tenant: &Label, calls: &[CallId]) -> Result<Open, StoreError> {
    let ids: Vec<Uuid> = calls.iter().map(|call| call.0).collect();
    let row = listen(
        sqlx::query(
            "SELECT toolfleet.open_count($1), \
                ARRAY(SELECT o.call_id FROM toolfleet.open_calls o WHERE o.call_id = ANY($2))",
        )
        .bind(tenant.as_str())
        .bind(ids)
        .fetch_one(pool),
    )
    .await;
    let read = |row: PgRow| -> Result<Open, sqlx::Error> {
        let there: Vec<Uuid> = row.try_get(1)?;
        Ok(Open {
            calls: row.try_get(0)?,
            there: there.into_iter().map(CallId).collect(),
        })
    };
    row.and_then(read)
        .map_err(|error| StoreError::from_sqlx("count the open calls of a tenant", error))
}

/// Adds up the rows of sessions that are gone, and returns how many; the next call goes on. Own statement; rows that a session
/// is adding to are left out.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn fold(connection: &mut PgConnection) -> Result<i64, StoreError> {
    sqlx::query_scalar("SELECT toolfleet.fold_open_counts($1, $2)")
        .bind(FOLDED_MAX)
        .bind(CROWD)
        .fetch_one(connection)
        .await
        .map_err(|error| StoreError::from_sqlx("fold the counts of open calls", error))
}

/// Counts the calls themselves, and corrects the counts; returns for how many tenants they were wrong. Own statement; it reads
/// every open call.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn recount(connection: &mut PgConnection) -> Result<i64, StoreError> {
    sqlx::query_scalar("SELECT toolfleet.recount_open()")
        .fetch_one(connection)
        .await
        .map_err(|error| StoreError::from_sqlx("recount open calls", error))
}
