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
    /// Where that stands.
    pub stands: LeaderStands,
}

/// Where a call stands that others follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaderStands {
    /// It waits or runs: the others wait for it.
    Open,
    /// It has an answer that the others may have.
    HasAnswer,
    /// It has none, or the ledger has lost it.
    IsOver,
}

/// The most lines that one statement reads.
pub const LINES: usize = 1_000;

/// What the lines say of their leaders. The id of a call is behind the prefix; its first digit is at most f.
const STANDS: &str = "SELECT l.leader, \
        EXISTS (SELECT FROM toolfleet.open_calls o WHERE o.call_id = l.leader AND o.state IN ('queued', 'running')) AS is_open, \
        (SELECT f.state = 'succeeded' AND f.error IS NULL FROM toolfleet.finished_calls f WHERE f.call_id = l.leader) AS has_answer \
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
             WHERE EXISTS (SELECT FROM toolfleet.open_calls o WHERE o.held AND o.line = 'after/' || a.leader)) \
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
        let has_answer: Option<bool> = row.try_get("has_answer")?;
        Ok(FollowedCall {
            leader: CallId(row.try_get("leader")?),
            stands: match (row.try_get("is_open")?, has_answer) {
                (true, _) => LeaderStands::Open,
                (false, Some(true)) => LeaderStands::HasAnswer,
                (false, Some(false) | None) => LeaderStands::IsOver,
            },
        })
    })
}

/// Lets all but the first of a line follow the first one, at most so many; returns how many do.
///
/// Own autocommit statement; guards: held, and still in this line. Rows that another statement has locked are skipped. Safe to repeat:
/// as long as the first one is there, it is the same.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn follow_the_first(
    pool: &PgPool,
    leader: CallId,
    limit: usize,
) -> Result<u64, StoreError> {
    // The order is that of the index of held calls; a line of followers has one tenant.
    let moving = sqlx::query(
        "WITH first AS MATERIALIZED ( \
             SELECT call_id FROM toolfleet.open_calls WHERE held AND line = $1 \
             ORDER BY line, tenant, priority, accepted_at, call_id LIMIT 1), \
         rest AS MATERIALIZED ( \
             SELECT o.call_id AS id FROM toolfleet.open_calls o, first f \
             WHERE o.held AND o.line = $1 AND o.call_id <> f.call_id \
             ORDER BY o.line, o.tenant, o.priority, o.accepted_at, o.call_id LIMIT $2 \
             FOR UPDATE OF o SKIP LOCKED) \
         UPDATE toolfleet.open_calls o SET line = 'after/' || (SELECT call_id FROM first) \
         WHERE o.call_id = ANY(ARRAY(SELECT id FROM rest)) AND o.held IS NOT FALSE AND o.state = 'queued'",
    )
    .bind(Line::After(leader).to_string())
    .bind(i64::try_from(limit).unwrap_or(i64::MAX))
    .execute(pool);
    let moved = listen(moving)
        .await
        .map_err(|error| StoreError::from_sqlx("let calls follow another one", error))?;
    Ok(moved.rows_affected())
}
