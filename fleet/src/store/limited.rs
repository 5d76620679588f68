//! Claims a call of a tool with a limit, of attempts at a time, of starts in a time, or both, or with a policy.
//!
//! With the call, a place of its tool and a start time are taken, or there is none; and it starts only if its policy lets it.

use std::{collections::HashMap, sync::LazyLock, time::Duration};

use futures_util::future::BoxFuture;
use sqlx::{PgConnection, PgExecutor, Row as _, postgres::PgRow};

use super::{
    StoreError,
    claim::{ClaimRow, Claimed, asked, claiming, read_claim},
    lane::{Locks, Statement},
    starts::AHEAD_MS,
    statement::{left, put_together},
};
use crate::{
    checkpoint::Checkpoint,
    hold::{Admitted, Line},
    ids::{CallId, ToolName, WorkerId},
    modes::InterceptMode,
};

/// One such claim to make.
#[derive(Debug, Clone)]
pub struct LimitedRow {
    /// The claim.
    pub claim: ClaimRow,
    /// What the rate limit of its tool may do: `observe` takes start times and lets nobody wait, `off` takes none.
    pub rate_mode: InterceptMode,
}

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
        /// Whether the rate limit would have made it wait and only observes.
        is_observed: bool,
    },
    /// Every place of its tool is taken; the call is held now, in its tool's line.
    NoSlot,
    /// No start time is free in the next half second; the call is held now, in its tool's line.
    NoStart,
    /// It has a start time so far away, which counts for a second from then on: it is to be claimed again by then.
    StartsIn(Duration),
    /// Other claims are before it: they have the bucket of its start times or the lock of its policy, or more calls of its run came
    /// at once than may happen. Nothing was changed, and the claim may be tried again soon.
    Busy,
    /// It breaks a rule of its tool's policy; nothing was changed.
    Forbidden,
}

impl Limited {
    /// A claim of a tool without a limit.
    pub const fn without_place(claimed: Claimed) -> Self {
        Self::Claimed {
            claimed,
            took_place: false,
            is_observed: false,
        }
    }
}

/// The statement.
///
/// Own autocommit statement. Guards: those of [`super::claim::Claim`], and a place whose attempt is not live: in what the
/// statement saw *and*, once the place is locked, still the same attempt. Places that other statements have locked are skipped,
/// never waited for. The limits are those of the tool's newest version; where that has none, no place and no start is taken.
///
/// Start times are handed out under the lock of their bucket (`toolfleet.take_starts`), after the places. A claim that gets one
/// within half a second waits for it with its message, one that gets none goes back into its tool's line.
///
/// What its policy says is asked before both, under a lock of its tool and run, or session (`toolfleet.policy_says`), which lasts
/// until the claim is committed: so of as many claims as there are, no more start than may happen. A call that is refused takes
/// neither a place nor a start time.
#[derive(Debug)]
pub struct ClaimLimited {
    worker: WorkerId,
}

static WAITING: LazyLock<String> =
    LazyLock::new(|| claiming(&waiting_for_buckets(true), "locks", ""));
static SKIPPING: LazyLock<String> =
    LazyLock::new(|| claiming(&waiting_for_buckets(false), "locks", "SKIP LOCKED"));

fn waiting_for_buckets(waits: bool) -> String {
    let waits = if waits { "true" } else { "false" };
    put_together(include_str!("sql/claim_limited.sql"), &[("waits", waits)])
}

impl ClaimLimited {
    /// Claims for this worker.
    pub const fn new(worker: WorkerId) -> Self {
        Self { worker }
    }
}

impl Statement for ClaimLimited {
    type Row = LimitedRow;
    type Answer = Limited;
    type Key = CallId;

    const NAME: &'static str = "claim_limited";
    const SENT: Option<Checkpoint> = Some(Checkpoint::ClaimSent);

    fn key(row: &LimitedRow) -> CallId {
        row.claim.call_id
    }

    fn weight(_row: &LimitedRow) -> usize {
        64
    }

    fn run<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        rows: &'a [LimitedRow],
        locks: Locks,
    ) -> BoxFuture<'a, Result<Vec<Option<Limited>>, sqlx::Error>> {
        Box::pin(async move {
            let sql = match locks {
                Locks::Wait => WAITING.as_str(),
                Locks::Skip => SKIPPING.as_str(),
            };
            let modes: Vec<_> = rows.iter().map(|row| row.rate_mode.as_str()).collect();
            let claims = rows.iter().map(|row| &row.claim);
            let asking = asked(sql, self.worker, claims).bind(AHEAD_MS).bind(modes);
            let found = asking.fetch_all(connection).await?;
            let mut decided = HashMap::with_capacity(found.len());
            for row in &found {
                decided.insert(CallId(row.try_get("asked")?), decision(row)?);
            }
            let answer = |row: &LimitedRow| decided.remove(&row.claim.call_id);
            Ok(rows.iter().map(answer).collect())
        })
    }
}

fn decision(row: &PgRow) -> Result<Limited, sqlx::Error> {
    Ok(match row.try_get("verdict")? {
        "starts" => Limited::Claimed {
            claimed: read_claim(row)?,
            took_place: row.try_get("took_place")?,
            is_observed: false,
        },
        "observed" => Limited::Claimed {
            claimed: read_claim(row)?,
            took_place: row.try_get("took_place")?,
            is_observed: true,
        },
        "no_place" => Limited::NoSlot,
        "no_start" => Limited::NoStart,
        "later" => Limited::StartsIn(left(row.try_get("wait_ms")?)),
        "busy" => Limited::Busy,
        "forbidden" => Limited::Forbidden,
        other => {
            let error = format!("{other:?} is not a known verdict");
            return Err(sqlx::Error::Decode(error.into()));
        }
    })
}

/// How many calls of a tool whose values have lines of their own were released from there to take a place.
///
/// As [`admitted`] counts them; none above `most` is counted. One statement; changes nothing. It reads what of all tools with a limit
/// is under way.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn on_their_way_by_key(
    ledger: impl PgExecutor<'_>,
    tool: &ToolName,
    most: u32,
) -> Result<u32, StoreError> {
    let counted: Result<i64, _> = sqlx::query_scalar(
        "SELECT count(*) FROM (SELECT FROM toolfleet.open_calls \
             WHERE starts_with(line, $1) AND NOT held AND line LIKE 'tool/%' AND state = 'queued' AND due_at IS NULL \
               AND not_before > clock_timestamp() - interval '2 seconds' LIMIT $2) o",
    )
    .bind(Line::first_of_keys(tool))
    .bind(i64::from(most))
    .fetch_one(ledger)
    .await;
    let counted = counted.map_err(|error| {
        StoreError::from_sqlx("count what of a tool's values is under way", error)
    })?;
    Ok(u32::try_from(counted).unwrap_or(u32::MAX))
}

/// How many calls of a tool are under way: those that hold a place, and those that were released to take one.
///
/// A retry is not counted while its pause lasts. Afterwards it is, although it was not released. What nobody has claimed for two
/// seconds is not counted any more: it may be in a queue whose workers are busy or gone. One statement; changes nothing.
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
                 WHERE line = $2 AND NOT held AND line LIKE 'tool/%' AND state = 'queued' AND due_at IS NULL \
                   AND not_before > clock_timestamp() - interval '2 seconds')",
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
