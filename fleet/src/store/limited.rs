//! Claims a call of a tool with a limit of attempts at a time: with the call, a place of its tool is taken, or none is free.

use std::collections::HashMap;

use futures_util::future::BoxFuture;
use sqlx::{AssertSqlSafe, PgConnection, PgExecutor, Row as _};

use super::{
    StoreError,
    claim::{ClaimRow, Claimed, read_claim},
    lane::{Locks, Statement},
};
use crate::{
    checkpoint::Checkpoint,
    hold::{Admitted, Line},
    ids::{CallId, ToolName, WorkerId},
};

/// The result of such a claim.
#[derive(Debug, Clone)]
pub enum Limited {
    /// The call is claimed and has its place.
    Claimed(Box<Claimed>),
    /// Every place of its tool is taken; the call is held now, in its tool's line.
    NoSlot,
}

/// The statement.
///
/// Own autocommit statement. Guards: those of [`super::claim::Claim`], and a place whose attempt is not live: in what the
/// statement saw *and*, once the place is locked, still the same attempt. Places that other statements have locked are skipped,
/// never waited for. The limit is the one of the tool's newest version; where that has none, no place is taken.
#[derive(Debug)]
pub struct ClaimLimited {
    worker: WorkerId,
    waiting: String,
    skipping: String,
}

impl ClaimLimited {
    /// Claims for this worker.
    pub fn new(worker: WorkerId) -> Self {
        let sql = include_str!("sql/claim_limited.sql");
        Self {
            worker,
            waiting: sql.replace("/* locks */", ""),
            skipping: sql.replace("/* locks */", "SKIP LOCKED"),
        }
    }
}

impl Statement for ClaimLimited {
    type Row = ClaimRow;
    type Answer = Limited;
    type Key = CallId;

    const NAME: &'static str = "claim_limited";
    const SENT: Option<Checkpoint> = Some(Checkpoint::ClaimSent);

    fn key(row: &ClaimRow) -> CallId {
        row.call_id
    }

    fn weight(_row: &ClaimRow) -> usize {
        64
    }

    fn run<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        rows: &'a [ClaimRow],
        locks: Locks,
    ) -> BoxFuture<'a, Result<Vec<Option<Limited>>, sqlx::Error>> {
        Box::pin(async move {
            // The text is one of two constants made from a file of this crate.
            let sql = match locks {
                Locks::Wait => &self.waiting,
                Locks::Skip => &self.skipping,
            };
            let found = sqlx::query(AssertSqlSafe(sql.as_str()))
                .bind(self.worker.0)
                .bind(rows.iter().map(|r| r.call_id.0).collect::<Vec<_>>())
                .bind(rows.iter().map(|r| r.attempt_id.0).collect::<Vec<_>>())
                .bind(rows.iter().map(|r| r.timeout_ms).collect::<Vec<_>>())
                .fetch_all(connection)
                .await?;
            let mut decided = HashMap::with_capacity(found.len());
            for row in &found {
                let answer = if row.try_get("admitted")? {
                    Limited::Claimed(Box::new(read_claim(row)?))
                } else {
                    Limited::NoSlot
                };
                decided.insert(CallId(row.try_get("asked")?), answer);
            }
            let answer = |row: &ClaimRow| decided.remove(&row.call_id);
            Ok(rows.iter().map(answer).collect())
        })
    }
}

/// How many calls of a tool are under way: those that hold a place, and those that were released to take one.
///
/// A retry is not counted while its pause lasts. Afterwards it is, although it was not released. One statement; changes
/// nothing.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn admitted(
    ledger: impl PgExecutor<'_>,
    tool: &ToolName,
) -> Result<Admitted, StoreError> {
    let doing = "count what of a tool is under way";
    let (running, on_its_way): (i64, i64) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM toolfleet.slots WHERE tool = $1), \
                (SELECT count(*) FROM toolfleet.open_calls \
                 WHERE line = $2 AND NOT held AND line LIKE 'tool/%' AND state = 'queued' AND due_at IS NULL)",
    )
    .bind(tool.as_str())
    .bind(Line::Tool(tool.clone()).to_string())
    .fetch_one(ledger)
    .await
    .map_err(|error| StoreError::from_sqlx(doing, error))?;
    let count = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);
    Ok(Admitted {
        running: count(running),
        on_its_way: count(on_its_way),
    })
}
