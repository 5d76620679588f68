//! The dead letters in groups of one cause.

use fleet::store::StoreError;
use serde::Deserialize;
use sqlx::{PgPool, QueryBuilder};
use time::OffsetDateTime;

use crate::{
    filter::{Filter, conditions},
    row::Row,
};

/// Dead letters of one tool that failed in the same way.
#[derive(Debug, Clone, Deserialize)]
pub struct DeadGroup {
    /// The tool.
    pub tool: String,
    /// The code of their errors.
    pub code: Option<String>,
    /// The code of what the last attempt came to, which is another one behind `retries_exhausted` and `deadline_exceeded`.
    pub last_code: Option<String>,
    /// The beginning of what it said, with `#` for each number, so that one cause is one group.
    pub last_error: Option<String>,
    /// How many there are.
    pub calls: i64,
    /// When the first of them ended.
    #[serde(with = "time::serde::rfc3339")]
    pub oldest_at: OffsetDateTime,
    /// When the last of them ended.
    #[serde(with = "time::serde::rfc3339")]
    pub newest_at: OffsetDateTime,
    /// One of them.
    pub example: String,
    /// The beginning of what that one's last attempt said, as it was.
    pub example_error: Option<String>,
}

/// The dead letters of a filter, the largest groups first; `filter.limit` is the most groups.
///
/// # Errors
///
/// The view cannot be read, or not in time.
pub async fn dead_groups(
    pool: &PgPool,
    filter: &Filter,
) -> Result<Vec<Row<DeadGroup>>, StoreError> {
    let mut statement = QueryBuilder::new(
        "SELECT row_to_json(grouped)::text FROM (
             SELECT tool, code, last_code, last_error, count(*) AS calls, min(finished_at) AS oldest_at,
                    max(finished_at) AS newest_at, max(call_id::text) AS example,
                    -- What the example said: ids are of one length.
                    nullif(substr(max(call_id::text || coalesce(said, '')), 37), '') AS example_error
             FROM (
                 SELECT tool, code, last_error->>'code' AS last_code,
                        regexp_replace(left(last_error->>'message', 160), '[0-9]+', '#', 'g') AS last_error,
                        CASE WHEN length(last_error->>'message') > 240 THEN left(last_error->>'message', 240) || '...'
                             ELSE last_error->>'message' END AS said,
                        finished_at, call_id
                 FROM toolfleet.dead_letters
                 WHERE true",
    );
    conditions(&mut statement, filter);
    statement
        .push(
            ") letters
             GROUP BY tool, code, last_code, last_error
             ORDER BY count(*) DESC, tool, code, last_code, last_error
             LIMIT ",
        )
        .push_bind(filter.limit)
        .push(") grouped");
    statement
        .build_query_scalar()
        .fetch_all(pool)
        .await
        .map_err(|error| StoreError::from_sqlx("group dead letters", error))
}

/// How many calls of a filter were abandoned: they are no dead letters, and nobody will ever know what became of them.
///
/// # Errors
///
/// The views cannot be read, or not in time.
pub async fn abandoned(pool: &PgPool, filter: &Filter) -> Result<i64, StoreError> {
    let mut statement = QueryBuilder::new(
        "SELECT count(*) FROM toolfleet.calls
         WHERE call_id IN (SELECT m.call_id FROM toolfleet.marks m WHERE m.what = 'abandoned')",
    );
    conditions(&mut statement, filter);
    statement
        .build_query_scalar()
        .fetch_one(pool)
        .await
        .map_err(|error| StoreError::from_sqlx("count abandoned calls", error))
}
