//! The list of calls that a filter means, without reading the whole history for it.

use fleet::{ids::CallId, store::StoreError};
use serde::Deserialize;
use sqlx::{PgPool, Postgres, QueryBuilder};
use time::OffsetDateTime;

use crate::{
    attempts_max,
    filter::{Filter, conditions_of_calls},
    row::Row,
};

/// How much of the arguments a list shows that does, in characters.
const ARGUMENTS_SHOWN: usize = 200;

/// A row of `calls` without the bodies, which may be large.
#[derive(Debug, Clone, Deserialize)]
pub struct ListedCall {
    /// The call.
    pub call_id: String,
    /// Its tool.
    pub tool: String,
    /// Its state.
    pub state: String,
    /// For whom it waits, if it is `awaiting_client`.
    #[serde(default)]
    pub awaiting: Option<String>,
    /// Whether it is held.
    pub held: bool,
    /// How many attempts were made.
    pub attempts: i32,
    /// The code of its error; of an open call, of its last attempt's.
    pub error_code: Option<String>,
    /// Of a call in doubt or that was, the code of what went wrong.
    #[serde(default)]
    pub cause_code: Option<String>,
    /// When it was accepted.
    #[serde(with = "time::serde::rfc3339")]
    pub accepted_at: OffsetDateTime,
    /// When it ended.
    #[serde(with = "time::serde::rfc3339::option")]
    pub finished_at: Option<OffsetDateTime>,
}

/// The calls of a filter, the newest first.
///
/// # Errors
///
/// The view cannot be read.
pub async fn calls(pool: &PgPool, filter: &Filter) -> Result<Vec<Row<ListedCall>>, StoreError> {
    let mut statement = QueryBuilder::new("");
    write(&mut statement, filter);
    statement
        .build_query_scalar()
        .fetch_all(pool)
        .await
        .map_err(|error| StoreError::from_sqlx("list calls", error))
}

/// The time by Postgres's clock, from which "two hours ago" counts.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn now(pool: &PgPool) -> Result<OffsetDateTime, StoreError> {
    sqlx::query_scalar("SELECT now()")
        .fetch_one(pool)
        .await
        .map_err(|error| StoreError::from_sqlx("ask Postgres for the time", error))
}

/// The tenant of a call; `None` if there is no such call.
///
/// # Errors
///
/// The view cannot be read.
pub async fn tenant_of(pool: &PgPool, call: CallId) -> Result<Option<String>, StoreError> {
    sqlx::query_scalar("SELECT tenant FROM toolfleet.calls WHERE call_id = $1")
        .bind(call.0)
        .fetch_optional(pool)
        .await
        .map_err(|error| StoreError::from_sqlx("look for the tenant of a call", error))
}

/// The result of a call of this tenant as the view shows it; `None`: there is no such call, or it has none.
///
/// # Errors
///
/// The view cannot be read.
pub async fn result_of(
    pool: &PgPool,
    tenant: &str,
    call: CallId,
) -> Result<Option<String>, StoreError> {
    let found: Result<Option<Option<String>>, sqlx::Error> = sqlx::query_scalar(
        "SELECT result::text FROM toolfleet.calls WHERE call_id = $1 AND tenant = $2",
    )
    .bind(call.0)
    .bind(tenant)
    .fetch_optional(pool)
    .await;
    let found = found.map_err(|error| StoreError::from_sqlx("read the result of a call", error))?;
    Ok(found.flatten())
}

/// Appends the statement for this filter. Its plan is a promise, which a test checks.
pub fn write(statement: &mut QueryBuilder<Postgres>, filter: &Filter) {
    write_of(statement, filter, None);
}

/// Appends the statement for this filter, of these calls alone where they are given.
pub(crate) fn write_of(
    statement: &mut QueryBuilder<Postgres>,
    filter: &Filter,
    ids: Option<Vec<uuid::Uuid>>,
) {
    statement.push("SELECT row_to_json(listed)::text FROM (");
    if filter.shows_arguments {
        // Looked up for the rows that are listed alone.
        statement.push("SELECT listed.*, ");
        attempts_max::write(statement, "listed");
        statement.push(" AS attempts_max FROM (");
    }
    statement.push(
        "SELECT call_id, tenant, tool, tool_version, effect, state, awaiting, outcome, source, held, attempts,
                    error->>'code' AS error_code, error->'details'->'cause'->>'code' AS cause_code, session, run, priority, not_before, deadline_at,
                    accepted_at, started_at, finished_at, worker",
    );
    if filter.shows_arguments {
        statement.push(format_args!(
            ", left(args::text, {ARGUMENTS_SHOWN}) AS arguments, held_why, now() AS now"
        ));
    }
    statement.push(" FROM toolfleet.calls WHERE true");
    conditions_of_calls(statement, filter);
    if let Some(ids) = ids {
        statement
            .push(" AND call_id = ANY(")
            .push_bind(ids)
            .push(")");
    }
    statement.push(" ORDER BY call_id DESC LIMIT ");
    statement.push_bind(filter.limit).push(") listed");
    if filter.shows_arguments {
        statement.push(") listed");
    }
}
