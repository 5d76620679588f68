//! Pauses: calls that are put aside, into the line `pause/<id>`, and calls that go back to their own line.
//!
//! A call that was put aside is a held call like any other: no pointer claims it, it can be cancelled, and its time goes on.
//! None of these statements is a move, so revisions stay.

use std::sync::LazyLock;

use sqlx::{PgExecutor, PgPool, Row as _, postgres::PgRow};

use super::{
    StoreError,
    answer::listen,
    columns::{parsed, parsed_if_any},
    read_all,
};
use crate::{
    hold::Line,
    ids::{CallId, Label, QueueName, ToolName},
    rate_key::RateKey,
    wire::pointer::Pointer,
};

/// A held call, with what a pause looks at.
#[derive(Debug, Clone)]
pub struct HeldCall {
    /// The call.
    pub call: CallId,
    /// Where it waits.
    pub line: String,
    /// Its tool.
    pub tool: ToolName,
    /// Its queue.
    pub queue: QueueName,
    /// Its tenant.
    pub tenant: Label,
    /// Which calls of its tool it shares start times with, where each value of an argument has its own.
    pub rate_key: Option<RateKey>,
    /// Its arguments, where they were asked for and are short enough to travel with a pointer. A worker's gate looks into longer
    /// ones.
    pub args: Option<String>,
}

/// A held call that is to wait elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineMove {
    /// The call.
    pub call: CallId,
    /// Where it waited when it was read.
    pub from: String,
    /// Where it is to wait.
    pub to: Line,
}

/// The most calls that one statement reads or moves.
pub const STEP: usize = 1_000;

/// Puts a published call aside, into this line.
///
/// Own autocommit statement; guard: queued, not held, and not waiting for its next attempt already. False: it has moved, or is
/// held by then, and its message has nothing to do any more. Repeating it changes nothing. Waits for a statement that has the
/// row.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn put_aside(pool: &PgPool, call: CallId, line: &Line) -> Result<bool, StoreError> {
    let putting = sqlx::query(
        "UPDATE toolfleet.open_calls SET held = true, line = $2 \
         WHERE call_id = $1 AND state = 'queued' AND NOT held AND due_at IS NULL",
    )
    .bind(call.0)
    .bind(line.to_string())
    .execute(pool);
    let put = listen(putting)
        .await
        .map_err(|error| StoreError::from_sqlx("put a call aside", error))?;
    Ok(put.rows_affected() > 0)
}

static COLUMNS: LazyLock<String> = LazyLock::new(|| {
    let short = Pointer::ARGS_INLINE_MAX;
    format!(
        "call_id, line, tool, queue, tenant, rate_key, \
         CASE WHEN tool = ANY($2) AND octet_length(args::text) <= {short} THEN args::text END AS args"
    )
});

/// The next held calls behind this one in the order of their ids, at most [`STEP`]; fewer: there are no more. With the
/// arguments of those of these tools.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn held_behind(
    pool: &PgPool,
    cursor: Option<CallId>,
    with_args: &[&str],
) -> Result<Vec<HeldCall>, StoreError> {
    // Not `held` alone: by the statistics of an emptied table the index of held calls, sorted anew in each step, looks cheaper.
    let sql = format!(
        "SELECT {} FROM toolfleet.open_calls \
         WHERE coalesce(held, false) AND call_id > $1 ORDER BY call_id LIMIT {STEP}",
        *COLUMNS
    );
    let cursor = cursor.map_or(uuid::Uuid::nil(), |call| call.0);
    // Made of constants of this file.
    let asking = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(cursor)
        .bind(with_args);
    let rows = listen(asking.fetch_all(pool)).await;
    let doing = "look at held calls";
    let rows = rows.map_err(|error| StoreError::from_sqlx(doing, error))?;
    read_all(doing, &rows, held_call)
}

/// Calls that wait for a pause that is over, at most [`STEP`], with the arguments of those of these tools.
///
/// The ledger says whether it is over: this process may not know yet of a pause that another one has just met.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn left_behind(
    ledger: impl PgExecutor<'_>,
    line: &Line,
    with_args: &[&str],
) -> Result<Vec<HeldCall>, StoreError> {
    let sql = format!(
        "SELECT {} FROM toolfleet.open_calls \
         WHERE held AND line = $1 AND NOT {LASTS} ORDER BY line, tenant, priority, accepted_at, call_id LIMIT {STEP}",
        *COLUMNS
    );
    let asking = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(line.to_string())
        .bind(with_args);
    let rows = asking.fetch_all(ledger).await;
    let doing = "look who waits for a pause that is over";
    let rows = rows.map_err(|error| StoreError::from_sqlx(doing, error))?;
    read_all(doing, &rows, held_call)
}

/// Whether the pause of the line `$1` lasts.
const LASTS: &str = "EXISTS (SELECT FROM toolfleet.live_controls c \
    WHERE 'pause/' || c.control_id = $1 AND (c.expires_at IS NULL OR c.expires_at > clock_timestamp()))";

fn held_call(row: &PgRow) -> Result<HeldCall, sqlx::Error> {
    Ok(HeldCall {
        call: CallId(row.try_get("call_id")?),
        line: row.try_get("line")?,
        tool: parsed(row, "tool")?,
        queue: parsed(row, "queue")?,
        tenant: parsed(row, "tenant")?,
        rate_key: parsed_if_any(row, "rate_key")?,
        args: row.try_get("args")?,
    })
}

/// Moves held calls to other lines, where they stay held; returns how many moved.
///
/// Own autocommit statement; guards: held, and still in the line where it was read; into the line of a pause only while that
/// lasts. Rows that another statement has locked are skipped: they are being released, cancelled or moved. Safe to repeat.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn move_held(ledger: impl PgExecutor<'_>, moves: &[LineMove]) -> Result<u64, StoreError> {
    let calls: Vec<_> = moves.iter().map(|one| one.call.0).collect();
    let from: Vec<&str> = moves.iter().map(|one| one.from.as_str()).collect();
    let to: Vec<String> = moves.iter().map(|one| one.to.to_string()).collect();
    // The list makes Postgres use the index of ids, whatever the statistics of an emptied table are; `held` alone would make it
    // read the index of held calls.
    let moving = sqlx::query(
        "WITH asked AS MATERIALIZED ( \
             SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[]) AS asked (id, was, becomes)), \
         lasting AS MATERIALIZED ( \
             SELECT 'pause/' || c.control_id AS line FROM toolfleet.live_controls c \
             WHERE c.expires_at IS NULL OR c.expires_at > clock_timestamp()), \
         mine AS MATERIALIZED ( \
             SELECT o.call_id AS id FROM toolfleet.open_calls o JOIN asked a ON a.id = o.call_id \
             WHERE o.call_id = ANY($1) AND o.held IS NOT FALSE AND o.state = 'queued' AND o.line = a.was \
               AND (a.becomes NOT LIKE 'pause/%' OR a.becomes IN (SELECT line FROM lasting)) \
             FOR UPDATE OF o SKIP LOCKED) \
         UPDATE toolfleet.open_calls o SET line = a.becomes \
         FROM mine m JOIN asked a ON a.id = m.id \
         WHERE o.call_id = ANY($1) AND o.call_id = m.id AND o.held IS NOT FALSE AND o.state = 'queued'",
    )
    .bind(calls)
    .bind(from)
    .bind(to)
    .execute(ledger);
    let moved = moving
        .await
        .map_err(|error| StoreError::from_sqlx("move held calls", error))?;
    Ok(moved.rows_affected())
}
