//! Breakers: what workers counted is reported, permits are asked for and given back, and the states are read.
//!
//! `toolfleet.breaker_report`, `breaker_permit` and `breaker_give_back` decide, each under the lock of the breaker's row.

use std::time::Duration;

use sqlx::{PgConnection, PgExecutor, PgPool, Row as _, postgres::PgRow};
use tokio::time::Instant;

use super::{StoreError, answer::listen, columns::parsed, read_all, session::Postgres};
use crate::{
    breaker::{BreakerId, Breakers, Counted, KnownBreaker, PermitVerdict, ReportVerdict},
    ids::{ToolName, WorkerId},
};

/// What a worker counted in one second of its own clock, for one generation of a breaker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedSecond {
    /// The tool.
    pub tool: ToolName,
    /// What its attempts depend on.
    pub target: String,
    /// For which generation they count.
    pub generation: i64,
    /// The second of the worker's own clock, since its start.
    pub second: i64,
    /// How long ago it began.
    pub age: Duration,
    /// All that was counted in it so far: a repetition counts once.
    pub counted: Counted,
}

/// What a worker has to know of a breaker after a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportAnswer {
    /// The tool.
    pub tool: ToolName,
    /// The target.
    pub target: String,
    /// What the report came to.
    pub verdict: ReportVerdict,
    /// For how long the worker leaves such calls to others, where it alone fails.
    pub local_for: Option<Duration>,
}

/// The most seconds in one report.
pub const REPORT_MAX: usize = 1_000;

/// The ledger's answer to a call that asks for a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permitted {
    /// The breaker.
    pub id: BreakerId,
    /// Whether the call may try the target.
    pub verdict: PermitVerdict,
    /// The generation for which its attempt counts.
    pub generation: i64,
    /// When it is refused: when a call may ask again.
    pub until: Option<Instant>,
}

/// A connection for reports.
///
/// # Errors
///
/// Postgres cannot be reached within five seconds, or is not safe to write to.
pub async fn connect(postgres: &Postgres) -> Result<PgConnection, StoreError> {
    postgres.connect_lane().await
}

/// Reports what this worker counted; answers with the breakers of which it has to know something new.
///
/// Own autocommit statement; safe to repeat: a second counts once, with the most that was reported of it. Locks the rows of its
/// breakers, in one order.
///
/// # Errors
///
/// Postgres does not answer: it may have been counted.
pub async fn report(
    connection: &mut PgConnection,
    worker: WorkerId,
    seconds: &[CountedSecond],
) -> Result<Vec<ReportAnswer>, StoreError> {
    let doing = "report what was counted of breakers";
    let all = || seconds.iter();
    let count = |n: i64| i32::try_from(n).unwrap_or(i32::MAX);
    let rows = sqlx::query(
        "SELECT tool, target, verdict, for_ms FROM toolfleet.breaker_report($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(worker.0)
    .bind(all().map(|one| one.tool.as_str()).collect::<Vec<_>>())
    .bind(all().map(|one| one.target.as_str()).collect::<Vec<_>>())
    .bind(all().map(|one| one.generation).collect::<Vec<_>>())
    .bind(all().map(|one| one.second).collect::<Vec<_>>())
    .bind(all().map(|one| as_ms(one.age)).collect::<Vec<_>>())
    .bind(all().map(|one| count(one.counted.calls)).collect::<Vec<_>>())
    .bind(all().map(|one| count(one.counted.failures)).collect::<Vec<_>>())
    .bind(all().map(|one| count(one.counted.slow)).collect::<Vec<_>>())
    .fetch_all(connection)
    .await
    .map_err(|error| StoreError::from_sqlx(doing, error))?;
    read_all(doing, &rows, |row| {
        Ok(ReportAnswer {
            tool: parsed(row, "tool")?,
            target: row.try_get("target")?,
            verdict: parsed(row, "verdict")?,
            local_for: left(row, "for_ms")?,
        })
    })
}

/// Asks whether a call may try its target, with an attempt that may take so long.
///
/// Own autocommit statement; each call that is granted one holds another permit. A permit that is not answered lapses.
///
/// # Errors
///
/// Postgres does not answer: a permit may have been given out.
pub async fn permit(
    pool: &PgPool,
    tool: &ToolName,
    target: &str,
    timeout: Duration,
) -> Result<Permitted, StoreError> {
    let doing = "ask for a permit of a breaker";
    let asking = sqlx::query(
        "SELECT verdict, breaker_id, generation, left_ms FROM toolfleet.breaker_permit($1, $2, $3)",
    )
    .bind(tool.as_str())
    .bind(target)
    .bind(as_ms(timeout))
    .fetch_one(pool);
    let row = listen(asking).await;
    let answered_at = Instant::now();
    let row = row.map_err(|error| StoreError::from_sqlx(doing, error))?;
    let read = |row: &PgRow| {
        Ok(Permitted {
            id: BreakerId(row.try_get("breaker_id")?),
            verdict: parsed(row, "verdict")?,
            generation: row.try_get("generation")?,
            until: left(row, "left_ms")?.map(|left| answered_at + left),
        })
    };
    read(&row).map_err(|error: sqlx::Error| StoreError::unreadable(doing, error))
}

/// Gives a permit back that says nothing about the target; false: its round is over.
///
/// Own autocommit statement; guard: the round of this generation goes on. Not repeated: a permit that was given back twice would
/// be another one's, and one that is lost lapses.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn give_back(
    connection: &mut PgConnection,
    tool: &ToolName,
    target: &str,
    generation: i64,
) -> Result<bool, StoreError> {
    sqlx::query_scalar("SELECT toolfleet.breaker_give_back($1, $2, $3)")
        .bind(tool.as_str())
        .bind(target)
        .bind(generation)
        .fetch_one(connection)
        .await
        .map_err(|error| StoreError::from_sqlx("give a permit of a breaker back", error))
}

/// All breakers that have rows. One statement.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn known(ledger: impl PgExecutor<'_>) -> Result<Breakers, StoreError> {
    let doing = "read breakers";
    let rows = listen(
        sqlx::query(
            "SELECT breaker_id, tool, target, state, generation, probes_out, \
                    ceil(extract(epoch FROM CASE state WHEN 'open' THEN open_until WHEN 'half_open' THEN round_until END \
                        - clock_timestamp()) * 1000)::bigint AS left_ms \
             FROM toolfleet.breaker_states",
        )
        .fetch_all(ledger),
    )
    .await;
    // After the answer: what the ledger counts from its own clock is never over here before it is over there.
    let read_at = Instant::now();
    let rows = rows.map_err(|error| StoreError::from_sqlx(doing, error))?;
    let read = |row: &PgRow| {
        let breaker = KnownBreaker {
            id: BreakerId(row.try_get("breaker_id")?),
            target: row.try_get("target")?,
            state: parsed(row, "state")?,
            generation: row.try_get("generation")?,
            until: left(row, "left_ms")?.map(|left| read_at + left),
            probes_out: u32::try_from(row.try_get::<i32, _>("probes_out")?).unwrap_or(0),
        };
        Ok((parsed(row, "tool")?, breaker))
    };
    let known = rows.iter().filter_map(|row| {
        let read: Result<(ToolName, KnownBreaker), sqlx::Error> = read(row);
        // The others hold all the same; that of a row that cannot be read counts as closed, and its results as too old.
        read.inspect_err(|error| tracing::warn!(%error, "a breaker cannot be read by this program and is left out"))
            .ok()
    });
    Ok(Breakers::new(known))
}

/// The tools and targets of the breakers that are not closed, or forced open.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn shut(pool: &PgPool) -> Result<Vec<(ToolName, String)>, StoreError> {
    let doing = "read which breakers are open";
    let asking = sqlx::query(
        "SELECT tool, target FROM toolfleet.breakers WHERE coalesce(forced, state) <> 'closed'",
    )
    .fetch_all(pool);
    let rows = listen(asking).await;
    let rows = rows.map_err(|error| StoreError::from_sqlx(doing, error))?;
    read_all(doing, &rows, |row| {
        Ok((parsed(row, "tool")?, row.try_get("target")?))
    })
}

/// Deletes those of these breakers for which no call waits; returns their number.
///
/// Own autocommit statement; safe to repeat. An attempt that is under way, or a call that is put aside for one meanwhile, loses
/// nothing: a breaker without a row is closed, and its calls go back to their line.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn drop_unused(
    connection: &mut PgConnection,
    ids: &[BreakerId],
) -> Result<i64, StoreError> {
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    sqlx::query_scalar("SELECT toolfleet.drop_breakers($1)")
        .bind(ids)
        .fetch_one(connection)
        .await
        .map_err(|error| StoreError::from_sqlx("drop unused breakers", error))
}

/// Whether a breaker is not closed.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn is_shut(pool: &PgPool, id: BreakerId) -> Result<bool, StoreError> {
    let asking = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM toolfleet.breaker_states WHERE breaker_id = $1 AND state <> 'closed')",
    )
    .bind(id.0)
    .fetch_one(pool);
    listen(asking)
        .await
        .map_err(|error| StoreError::from_sqlx("look at a breaker", error))
}

fn as_ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// A time that is left; none, if it is over.
fn left(row: &PgRow, column: &str) -> Result<Option<Duration>, sqlx::Error> {
    let ms: Option<i64> = row.try_get(column)?;
    Ok(ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0))))
}
