//! Followers: calls that are held in the line `after/<call>` until that call is over.
//!
//! None of these statements is a move, so revisions stay. What follows is bounded by calls whose leaders are open, and each statement
//! reads one entry of the index for each line.

use sqlx::{PgPool, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{StoreError, answer::listen, read_all};
use crate::{hold::Line, ids::CallId};

/// A line in which calls follow another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FollowedCall {
    /// The call that they follow.
    pub leader: CallId,
    /// Whether it waits or runs, and follows no other: then these wait for it.
    pub is_open: bool,
}

/// The most lines that one statement reads.
pub const LINES: usize = 1_000;

/// What the lines say of their leaders. The id of a call is behind the prefix; its first digit is at most f.
///
/// A leader that follows another call is no leader: after a purge between two looks of one call, it may follow one of its followers.
const STANDS: &str = "SELECT l.leader, \
        EXISTS (SELECT FROM toolfleet.open_calls o WHERE o.call_id = l.leader AND o.state IN ('queued', 'running') \
            AND NOT (o.held AND o.line LIKE 'after/%')) AS is_open \
     FROM lines l";

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
         {STANDS} ORDER BY l.leader"
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
        Ok(FollowedCall {
            leader: CallId(row.try_get("leader")?),
            is_open: row.try_get("is_open")?,
        })
    })
}
