//! Followers: calls that are held in the line `after/<call>` until that call is over.
//!
//! None of these statements is a move, so revisions stay. What follows is bounded by calls whose leaders are open, and each statement
//! reads one entry of the index for each line.

use sqlx::{PgPool, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{StoreError, answer::listen, columns::parsed, read_all};
use crate::{
    hold::Line,
    ids::{CallId, Label, ToolName},
};

/// A line in which calls follow another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowedCall {
    /// The call that they follow.
    pub leader: CallId,
    /// Whose answer it fetches for them. `None`: it is over, or what it fetches was purged, and these wait for nothing.
    pub fetches: Option<FetchedAnswer>,
}

/// What a leader fetches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedAnswer {
    /// An answer of this tool.
    pub tool: ToolName,
    /// For calls of this tenant.
    pub tenant: Label,
}

/// The most lines that one statement reads.
pub const LINES: usize = 1_000;

/// What the lines say of their leaders. The id of a call is behind the prefix; its first digit is at most f.
/// Most that end are followed by none, and then nothing more is asked.
const STANDS: &str = "SELECT f.call_id AS leader, f.tool, f.tenant \
     FROM (SELECT array_agg(leader) AS leaders FROM lines) l CROSS JOIN LATERAL toolfleet.fetching(l.leaders) f \
     WHERE l.leaders IS NOT NULL";

/// The lines of followers behind this one, in the order of their leaders' ids, at most [`LINES`]; fewer: there are no more.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn lines_behind(
    pool: &PgPool,
    cursor: Option<CallId>,
) -> Result<Vec<FollowedCall>, StoreError> {
    let sql = format!(
        "WITH RECURSIVE walk AS ( \
             (SELECT line, 1 AS place FROM toolfleet.open_calls \
              WHERE held AND line > $1 AND line < 'after/g' ORDER BY line LIMIT 1) \
             UNION ALL \
             SELECT (SELECT o.line FROM toolfleet.open_calls o \
                     WHERE o.held AND o.line > w.line AND o.line < 'after/g' ORDER BY o.line LIMIT 1), w.place + 1 \
             FROM walk w WHERE w.line IS NOT NULL AND w.place < $2), \
         lines AS MATERIALIZED (SELECT substr(line, 7)::uuid AS leader FROM walk WHERE line ~ '^after/[0-9a-f-]{{36}}$') \
         {STANDS} ORDER BY f.call_id"
    );
    let from = cursor.map_or_else(|| "after/".to_owned(), |call| Line::After(call).to_string());
    // Made of constants of this file.
    let asking = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(from)
        .bind(i32::try_from(LINES).unwrap_or(i32::MAX))
        .fetch_all(pool);
    read(listen(asking).await)
}

/// The same of the lines behind these calls, of which there may be none.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn lines_of(pool: &PgPool, leaders: &[CallId]) -> Result<Vec<FollowedCall>, StoreError> {
    let sql = format!(
        "WITH lines AS MATERIALIZED ( \
             SELECT a.leader FROM unnest($1::uuid[]) AS a (leader) \
             CROSS JOIN LATERAL (SELECT FROM toolfleet.open_calls o WHERE o.held AND o.line = 'after/' || a.leader LIMIT 1) one) \
         {STANDS}"
    );
    let leaders: Vec<Uuid> = leaders.iter().map(|call| call.0).collect();
    // Made of constants of this file.
    let asking = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(leaders)
        .fetch_all(pool);
    read(listen(asking).await)
}

fn read(rows: Result<Vec<PgRow>, sqlx::Error>) -> Result<Vec<FollowedCall>, StoreError> {
    let doing = "look whose followers may go";
    let rows = rows.map_err(|error| StoreError::from_sqlx(doing, error))?;
    read_all(doing, &rows, |row| {
        let leader = CallId(row.try_get("leader")?);
        let is_fetching = row.try_get::<Option<&str>, _>("tool")?.is_some();
        let fetches = if is_fetching {
            Some(FetchedAnswer {
                tool: parsed(row, "tool")?,
                tenant: parsed(row, "tenant")?,
            })
        } else {
            None
        };
        Ok(FollowedCall { leader, fetches })
    })
}
