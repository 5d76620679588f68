//! Calls that wait for somebody outside the fleet: those whose wait is over, and what was stored of those that are decided.

use std::time::Duration;

use sqlx::{PgPool, Row as _};

use super::{
    StoreError,
    answer::listen,
    columns::{parsed, parsed_if_any},
    look::STEP_ROWS,
    read::answer,
    read_all,
    statement::left,
    sweep::DUE,
};
use crate::{
    call::{Awaiting, Effect, Language, Source},
    ids::{AttemptId, CallId},
};

/// A call whose wait is over.
#[derive(Debug, Clone)]
pub struct WaitOver {
    /// The call.
    pub call_id: CallId,
    /// For whom it waits.
    pub awaiting: Awaiting,
    /// The attempt as which it was handed out, if it was.
    pub attempt_id: Option<AttemptId>,
    /// How often it has moved.
    pub rev: i32,
    /// Whether it may have had its effect before, as after lost writes.
    pub effect_unknown: bool,
    /// What running it means.
    pub effect: Effect,
    /// The language of messages.
    pub language: Language,
    /// Its tool.
    pub tool: String,
    /// The version it was accepted with.
    pub tool_version: i32,
    /// How many attempts count against the tool's limit.
    pub spent: u32,
    /// How long the call has left.
    pub remaining: Duration,
    /// How long ago its first attempt started; zero where none has.
    pub since_first_start: Duration,
}

/// Calls whose wait is over, at most [`STEP_ROWS`]. Changes nothing: the ending names the attempt that was seen.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn over(pool: &PgPool) -> Result<Vec<WaitOver>, StoreError> {
    let doing = "look for calls whose wait is over";
    let sql = format!(
        "SELECT call_id, awaiting, attempt_id, rev, effect_unknown, effect::text AS effect, language, tool, tool_version, \
                attempts - unspent_attempts AS spent, date_part('epoch', deadline_at - now()) * 1000 AS remaining_ms, \
                date_part('epoch', now() - coalesce(first_started_at, now())) * 1000 AS since_start_ms \
         FROM toolfleet.open_calls \
         WHERE {DUE} AND awaiting IN ('client', 'approval', 'completion', 'input') ORDER BY due_at LIMIT {STEP_ROWS}"
    );
    // Made of constants of this folder.
    let looking = listen(sqlx::query(sqlx::AssertSqlSafe(sql)).fetch_all(pool)).await;
    let rows = looking.map_err(|error| StoreError::from_sqlx(doing, error))?;
    read_all(doing, &rows, |row| {
        Ok(WaitOver {
            call_id: CallId(row.try_get("call_id")?),
            awaiting: parsed(row, "awaiting")?,
            attempt_id: row.try_get::<Option<_>, _>("attempt_id")?.map(AttemptId),
            rev: row.try_get("rev")?,
            effect_unknown: row.try_get("effect_unknown")?,
            effect: parsed(row, "effect")?,
            language: parsed(row, "language")?,
            tool: row.try_get("tool")?,
            tool_version: row.try_get("tool_version")?,
            spent: row.try_get::<i32, _>("spent")?.max(1).unsigned_abs(),
            remaining: left(row.try_get("remaining_ms")?),
            since_first_start: left(row.try_get("since_start_ms")?),
        })
    })
}

/// What is stored of a call that is over: all of its answer, whatever its callers get of it.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The attempt as which it was handed out.
    pub attempt_id: Option<AttemptId>,
    /// Where its answer is from.
    pub source: Source,
    /// Who ended it.
    pub by: String,
    /// The result, JSON text.
    pub result: Option<String>,
    /// The error, JSON text.
    pub error: Option<String>,
}

/// Reads it; `None`: the history has no such call.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn stored(pool: &PgPool, call: CallId) -> Result<Option<Stored>, StoreError> {
    let doing = "read the answer of a call";
    let reading = sqlx::query(
        "SELECT coalesce(attempt_id, (SELECT a.attempt_id FROM toolfleet.ended_attempts a \
                                      WHERE a.call_id = f.call_id AND a.worker_id IS NULL LIMIT 1)) AS attempt_id, \
                source::text AS source, actor, result::text AS result, error::text AS error \
         FROM toolfleet.finished_calls f WHERE call_id = $1",
    )
    .bind(call.0)
    .fetch_all(pool);
    let rows = answer(doing, reading).await?;
    let mut read: Vec<Stored> = read_all(doing, &rows, |row| {
        let attempt: Option<uuid::Uuid> = row.try_get("attempt_id")?;
        Ok(Stored {
            attempt_id: attempt.map(AttemptId),
            source: parsed_if_any(row, "source")?.unwrap_or(Source::Error),
            by: row.try_get("actor")?,
            result: row.try_get("result")?,
            error: row.try_get("error")?,
        })
    })?;
    Ok(read.pop())
}
