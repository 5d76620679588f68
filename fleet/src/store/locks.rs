//! **Who keeps the fleet from its rows?** The transactions for whose locks sessions of the fleet wait.
//!
//! A lock of a table that conflicts with writes stops every process at once, and reads go on: a process says that it is ready,
//! and no call moves.

use std::time::Duration;

use sqlx::{FromRow, PgPool};

use super::{StoreError, answer::listen};

/// A transaction that waits for nothing itself, and that sessions of the fleet wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// Its process; `None`: a prepared transaction, which belongs to no session any more.
    pub pid: Option<i32>,
    /// Its user; empty where there is no session.
    pub user: String,
    /// The name that its program gave; empty where it gave none.
    pub program: String,
    /// How long its transaction has been open. `None` where Postgres does not show it: for sessions of other users the user
    /// needs `pg_read_all_stats`.
    pub open_for: Option<Duration>,
    /// Sessions of the fleet that wait for it, also behind others that wait.
    pub waiting: u64,
    /// How long the first of them has waited. Their statements give up after some seconds and wait again, so this stays short.
    pub waited: Duration,
}

#[derive(FromRow)]
struct BlockerRow {
    pid: i32,
    usename: String,
    program: String,
    open_ms: Option<i64>,
    waiting: i64,
    waited_ms: i64,
}

/// The blockers, at most a few; the one for which most sessions wait comes first.
///
/// Own statement. It takes no lock that others wait for, and changes nothing; `pg_blocking_pids` stops the lock manager for a
/// moment, so it is asked about sessions that wait, and about at most 200 of them.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn blockers(pool: &PgPool) -> Result<Vec<Blocker>, StoreError> {
    // What a tool's own statement waits for is its own affair. Behind a CREATE INDEX that waits stands all that comes after it:
    // the chain is followed to who waits for nothing.
    let sql = "WITH RECURSIVE waiting AS MATERIALIZED ( \
                 SELECT a.pid, min(l.waitstart) AS since, \
                        a.application_name LIKE 'toolfleet%' AND a.application_name <> 'toolfleet tool' AS is_ours \
                 FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
                 WHERE NOT l.granted AND a.datname = current_database() GROUP BY a.pid, a.application_name LIMIT 200), \
             edges AS MATERIALIZED ( \
                 SELECT w.pid, by.pid AS by, w.is_ours FROM waiting w CROSS JOIN unnest(pg_blocking_pids(w.pid)) AS by (pid)), \
             chain (pid, by) AS ( \
                 SELECT pid, by FROM edges WHERE is_ours \
                 UNION SELECT c.pid, e.by FROM chain c JOIN edges e ON e.pid = c.by) \
         SELECT c.by AS pid, coalesce(a.usename, '')::text AS usename, coalesce(a.application_name, '') AS program, \
                (extract(epoch FROM clock_timestamp() - a.xact_start) * 1000)::bigint AS open_ms, \
                count(DISTINCT c.pid) AS waiting, \
                coalesce(extract(epoch FROM max(clock_timestamp() - w.since)) * 1000, 0)::bigint AS waited_ms \
         FROM chain c JOIN waiting w USING (pid) LEFT JOIN pg_stat_activity a ON a.pid = c.by \
         WHERE c.by NOT IN (SELECT pid FROM waiting) \
         GROUP BY c.by, a.usename, a.application_name, a.xact_start ORDER BY waiting DESC, pid LIMIT 5";
    let rows: Result<Vec<BlockerRow>, _> = listen(sqlx::query_as(sql).fetch_all(pool)).await;
    let rows = rows.map_err(|error| StoreError::from_sqlx("look for locks", error))?;
    let millis = |ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    let blocker = |row: BlockerRow| Blocker {
        pid: Some(row.pid).filter(|pid| *pid != 0),
        user: row.usename,
        program: row.program,
        open_for: row.open_ms.map(millis),
        waiting: u64::try_from(row.waiting).unwrap_or(0),
        waited: millis(row.waited_ms),
    };
    Ok(rows.into_iter().map(blocker).collect())
}
