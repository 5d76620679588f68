//! Claims a call of a tool with a limit of attempts at a time: with the call, a place of its tool is taken, or none is free.

use std::{collections::HashMap, sync::LazyLock};

use futures_util::future::BoxFuture;
use sqlx::{PgConnection, PgExecutor, Row as _};

use super::{
    StoreError,
    claim::{ClaimRow, Claimed, asked, claiming, read_claim},
    lane::{Locks, Statement},
};
use crate::{
    checkpoint::Checkpoint,
    hold::{Admitted, Line},
    ids::{CallId, ToolName, WorkerId},
};

/// The result of such a claim.
#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "most are claimed, and none outlives its claim"
)]
pub enum Limited {
    /// The call is claimed.
    Claimed {
        /// The claim.
        claimed: Claimed,
        /// Whether it has a place of its tool, which the end of the attempt frees. A claim that was read back may say so without
        /// having one.
        took_place: bool,
    },
    /// Every place of its tool is taken; the call is held now, in its tool's line.
    NoSlot,
}

impl Limited {
    /// A claim of a tool without a limit.
    pub const fn without_place(claimed: Claimed) -> Self {
        Self::Claimed {
            claimed,
            took_place: false,
        }
    }
}

/// The statement.
///
/// Own autocommit statement. Guards: those of [`super::claim::Claim`], and a place whose attempt is not live: in what the
/// statement saw *and*, once the place is locked, still the same attempt. Places that other statements have locked are skipped,
/// never waited for. The limit is the one of the tool's newest version; where that has none, no place is taken.
#[derive(Debug)]
pub struct ClaimLimited {
    worker: WorkerId,
}

static WAITING: LazyLock<String> =
    LazyLock::new(|| claiming(include_str!("sql/claim_limited.sql"), "locks", ""));
static SKIPPING: LazyLock<String> = LazyLock::new(|| {
    let statement = include_str!("sql/claim_limited.sql");
    claiming(statement, "locks", "SKIP LOCKED")
});

impl ClaimLimited {
    /// Claims for this worker.
    pub const fn new(worker: WorkerId) -> Self {
        Self { worker }
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
            let sql = match locks {
                Locks::Wait => WAITING.as_str(),
                Locks::Skip => SKIPPING.as_str(),
            };
            let found = asked(sql, self.worker, rows).fetch_all(connection).await?;
            let mut decided = HashMap::with_capacity(found.len());
            for row in &found {
                let answer = if row.try_get("admitted")? {
                    Limited::Claimed {
                        claimed: read_claim(row)?,
                        took_place: row.try_get("took_place")?,
                    }
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
