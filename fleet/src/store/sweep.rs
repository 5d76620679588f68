//! What the sweep reads: calls that are due, calls that have waited too long, calls that run without a worker. It decides
//! nothing here.

use sqlx::{PgConnection, PgPool, Row as _, postgres::PgRow};

pub use super::look::STEP_ROWS;
use super::{StoreError, answer::listen, columns::parsed, look::CallsPart, read_all};
use crate::{
    call::{Effect, Language, Priority},
    hold::Line,
    ids::{AttemptId, CallId, QueueName},
    manifest::Manifest,
    taken_back::TakenBack,
    wire::{pointer::Pointer, trace::TraceContext},
};

/// A call to publish.
#[derive(Debug, Clone)]
pub struct Publishable {
    /// The queue, whose consumer gets it.
    pub queue: QueueName,
    /// The last token of its subject.
    pub n: i32,
    /// The message.
    pub pointer: Pointer,
}

/// An attempt that has not ended this many milliseconds after its time counts as lost, although its worker lives.
pub const OVERDUE_AFTER_MS: i64 = 30_000;

pub(super) const POINTER: &str = "call_id, tool, tool_version, encode(args_hash, 'hex') AS args_hash, queue, publish_n, \
                       tenant, language, priority, rev, attempts, probe_of IS NOT NULL AS is_probe, traceparent, tracestate, \
                       CASE WHEN octet_length(args::text) <= $1 AND (tool, tool_version) NOT IN ( \
                           SELECT v.tool, v.version FROM toolfleet.tool_versions v WHERE v.sensitive IS NOT NULL) \
                       THEN args::text END AS args";

/// Calls that are due. Usually there are none, which the first entry of the index shows. By the statistics of an emptied table,
/// reading the whole table may look cheaper than the index.
pub(super) const DUE: &str =
    "(SELECT min(due_at) FROM toolfleet.open_calls) <= now() AND due_at <= now()";

/// Calls that were due.
#[derive(Debug, Default)]
pub struct Due {
    /// Calls to publish.
    pub publish: Vec<Publishable>,
    /// How many calls are held in their lines now, for lack of room.
    pub held: u64,
}

/// Takes calls whose pause is over: publishes as many of each line as there is `room` for, and holds the others.
///
/// A line that is not listed has no room. Own statement; rows that another dispatcher is taking are skipped. If this process
/// dies before it publishes them, [`super::walk::step`] finds them by their age.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn take_due(pool: &PgPool, room: &[(Line, usize)]) -> Result<Due, StoreError> {
    let doing = "take what is due";
    // Joined by ctid, with the rows locked: a join by id would read the whole table when the statistics are those of an emptied
    // one.
    let sql = format!(
        "WITH room AS MATERIALIZED (SELECT * FROM unnest($2::text[], $3::bigint[]) AS room (line, places)), \
         due AS MATERIALIZED ( \
             SELECT ctid AS place, call_id AS id, line, due_at FROM toolfleet.open_calls \
             WHERE {DUE} AND state = 'queued' ORDER BY due_at LIMIT {STEP_ROWS} FOR UPDATE SKIP LOCKED), \
         placed AS MATERIALIZED ( \
             SELECT place, id, row_number() OVER (PARTITION BY line ORDER BY due_at, id) <= coalesce( \
                 (SELECT places FROM room r WHERE r.line = due.line), 0) AS fits FROM due) \
         UPDATE toolfleet.open_calls SET due_at = NULL, held = call_id NOT IN (SELECT id FROM placed WHERE fits) \
         WHERE ctid = ANY(ARRAY(SELECT place FROM placed)) AND state = 'queued' \
         RETURNING NOT held AS fits, {POINTER}"
    );
    let (lines, places): (Vec<String>, Vec<i64>) = room
        .iter()
        .map(|(line, room)| (line.to_string(), i64::try_from(*room).unwrap_or(i64::MAX)))
        .unzip();
    // Made of constants of this file.
    let rows = listen(
        sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(i32::try_from(Pointer::ARGS_INLINE_MAX).unwrap_or(i32::MAX))
            .bind(lines)
            .bind(places)
            .fetch_all(pool),
    )
    .await
    .map_err(|error| StoreError::from_sqlx(doing, error))?;
    let read = || -> Result<Due, sqlx::Error> {
        let mut due = Due::default();
        for row in &rows {
            if row.try_get("fits")? {
                due.publish.push(publishable(row)?);
            } else {
                due.held += 1;
            }
        }
        Ok(due)
    };
    read().map_err(|error| StoreError::unreadable(doing, error))
}

/// A running call whose worker is gone.
#[derive(Debug, Clone, Copy)]
pub struct Lost {
    /// The call.
    pub call_id: CallId,
    /// The attempt that was lost.
    pub attempt_id: AttemptId,
    /// What running it again would mean.
    pub effect: Effect,
    /// How many attempts were lost with their workers before.
    pub lost_attempts: u32,
    /// How many losses the version of its tool allows.
    pub allowed: u32,
    /// Why it counts as lost.
    pub why: TakenBack,
    /// Whether it was asked to stop.
    pub cancel_requested: bool,
    /// The language of messages.
    pub language: Language,
}

/// Running calls of a part without a live worker and, if asked for, those that are long overdue. At most [`STEP_ROWS`],
/// in the order of their ids.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn lost_in(
    pool: &PgPool,
    part: CallsPart<'_>,
    overdue_too: bool,
) -> Result<Vec<Lost>, StoreError> {
    let predicate = part.predicate();
    let doing = "look for calls without a worker";
    let sql = format!(
        "SELECT o.call_id, o.attempt_id, o.effect::text AS effect, o.lost_attempts, o.cancel_requested, o.language, \
                (SELECT v.losses FROM toolfleet.tool_versions v \
                 WHERE v.tool = o.tool AND v.version = o.tool_version) AS losses, \
                w.leaving_since IS NOT NULL AS leaving, \
                coalesce(w.state IN ('live', 'draining'), false) AS overdue \
         FROM toolfleet.open_calls o LEFT JOIN toolfleet.worker_processes w USING (worker_id) \
         WHERE o.state = 'running' AND o.call_id {predicate} \
           AND (w.worker_id IS NULL OR w.state NOT IN ('live', 'draining') \
                OR $1 AND o.attempt_until < now() - make_interval(secs => {OVERDUE_AFTER_MS} / 1000.0)) \
         ORDER BY o.call_id LIMIT {STEP_ROWS}"
    );
    // Made of constants of this file.
    let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(overdue_too);
    let rows = listen(part.bind(query).fetch_all(pool)).await;
    let rows = rows.map_err(|error| StoreError::from_sqlx(doing, error))?;
    read_all(doing, &rows, |row| {
        Ok(Lost {
            call_id: CallId(row.try_get("call_id")?),
            attempt_id: AttemptId(row.try_get("attempt_id")?),
            effect: parsed(row, "effect")?,
            lost_attempts: u32::try_from(row.try_get::<i32, _>("lost_attempts")?)
                .unwrap_or(u32::MAX),
            allowed: row
                .try_get::<Option<i32>, _>("losses")?
                .map_or(Manifest::LOSSES, |losses| {
                    u32::try_from(losses).unwrap_or(Manifest::LOSSES)
                }),
            why: match (row.try_get("overdue")?, row.try_get("leaving")?) {
                (true, _) => TakenBack::AttemptOverdue,
                (false, true) => TakenBack::WorkerLeft,
                (false, false) => TakenBack::WorkerLost,
            },
            cancel_requested: row.try_get("cancel_requested")?,
            language: parsed(row, "language")?,
        })
    })
}

/// [`lost_in`] the calls behind the cursor.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn lost_behind(
    pool: &PgPool,
    cursor: Option<CallId>,
    overdue_too: bool,
) -> Result<Vec<Lost>, StoreError> {
    lost_in(pool, CallsPart::Behind(cursor), overdue_too).await
}

/// The first step of [`lost_behind`].
///
/// # Errors
///
/// Postgres does not answer.
pub async fn lost(pool: &PgPool, overdue_too: bool) -> Result<Vec<Lost>, StoreError> {
    lost_behind(pool, None, overdue_too).await
}

/// Whether Postgres answers at all.
pub async fn answers(pool: &PgPool) -> bool {
    listen(sqlx::query("SELECT 1").execute(pool)).await.is_ok()
}

/// The result of upkeep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// Partitions made ahead.
    pub made: i32,
    /// Days of history dropped.
    pub dropped_days: i32,
}

/// Creates history partitions ahead, drops the days before the horizon and forgets the workers that ended before it.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn keep_partitions(
    connection: &mut PgConnection,
    retention_days: Option<i32>,
) -> Result<Upkeep, StoreError> {
    let doing = "keep partitions";
    let failed = |error| StoreError::from_sqlx(doing, error);
    let made: i32 = sqlx::query_scalar("SELECT toolfleet.ensure_partitions(7)")
        .fetch_one(&mut *connection)
        .await
        .map_err(failed)?;
    let mut done = Upkeep {
        made,
        dropped_days: 0,
    };
    let Some(days) = retention_days else {
        return Ok(done);
    };
    // A day each, so that the locks of a drop are held for a moment only.
    let drop_one = "SELECT toolfleet.drop_history(now() - make_interval(days => $1)) IS NOT NULL";
    while done.dropped_days < DAYS_DROPPED_MAX {
        let dropping = sqlx::query_scalar(drop_one)
            .bind(days)
            .fetch_one(&mut *connection)
            .await;
        if !dropping.map_err(failed)? {
            break;
        }
        done.dropped_days += 1;
    }
    sqlx::query(
        "DELETE FROM toolfleet.worker_processes w \
         WHERE state IN ('left', 'dead', 'fenced') AND ended_at < now() - make_interval(days => $1) \
           AND NOT EXISTS (SELECT FROM toolfleet.open_calls o WHERE o.worker_id = w.worker_id) \
           AND NOT EXISTS (SELECT FROM toolfleet.open_calls o JOIN toolfleet.ended_attempts a USING (call_id) \
                           WHERE a.worker_id = w.worker_id)",
    )
    .bind(days)
    .execute(connection)
    .await
    .map_err(failed)?;
    Ok(done)
}

/// Days dropped in one go; the next hour goes on.
const DAYS_DROPPED_MAX: i32 = 400;

fn priority(row: &PgRow) -> Result<Option<Priority>, sqlx::Error> {
    // As `accept` stores them.
    let stored = row.try_get::<i16, _>("priority")?;
    let priority = Priority::ALL
        .iter()
        .find(|priority| **priority as i16 == stored);
    Ok(priority.copied())
}

pub(super) fn publishable(row: &PgRow) -> Result<Publishable, sqlx::Error> {
    let args: Option<String> = row.try_get("args")?;
    let args = args
        .map(serde_json::value::RawValue::from_string)
        .transpose();
    Ok(Publishable {
        queue: parsed(row, "queue")?,
        n: row.try_get("publish_n")?,
        pointer: Pointer {
            call_id: CallId(row.try_get("call_id")?),
            tool: parsed(row, "tool")?,
            tool_version: row.try_get("tool_version")?,
            args_hash: row.try_get("args_hash")?,
            args: args.map_err(|e| sqlx::Error::Decode(Box::new(e)))?,
            tenant: Some(parsed(row, "tenant")?),
            language: Some(parsed(row, "language")?),
            priority: priority(row)?,
            rev: Some(row.try_get("rev")?),
            is_probe: row.try_get("is_probe")?,
            trace: TraceContext {
                traceparent: row.try_get("traceparent")?,
                tracestate: row.try_get("tracestate")?,
                baggage: None,
            },
            attempts: u32::try_from(row.try_get::<i32, _>("attempts")?).unwrap_or(u32::MAX),
        },
    })
}
