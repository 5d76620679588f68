//! The worker's own row: its identity, its heartbeat, and what follows when the heartbeat stops.

use serde::Serialize;
use sqlx::{PgConnection, PgExecutor, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{StoreError, columns::parsed, read_all, schema::newest_known};
use crate::{
    call::{Effect, Language},
    ids::{AttemptId, CallId, InterceptorName, QueueName, WorkerId},
    lease::LEASE,
    obstacle::Inability,
};

/// A worker's description of itself.
#[derive(Debug, Clone)]
pub struct WorkerRow {
    /// Random, per process start.
    pub worker_id: WorkerId,
    /// A label.
    pub name: String,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: i32,
    /// The queues it pulls from.
    pub queues: Vec<QueueName>,
    /// How many attempts run at a time.
    pub concurrency: i32,
    /// What its kernel gives to sandboxes, and which programs it runs.
    pub sandbox: serde_json::Value,
    /// The interceptors of its program, by their order.
    pub interceptors: Vec<InterceptorRow>,
}

/// What a worker says of an interceptor of its program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InterceptorRow {
    /// Its name.
    pub name: String,
    /// Its place.
    pub order: u16,
    /// Whether no operator may switch it off.
    pub mandatory: bool,
    /// `open` or `closed`.
    pub fails: &'static str,
    /// How long a hook may take, in milliseconds.
    pub budget_ms: u64,
}

/// Writes the row. Own statement; repeating it is refused by the primary key.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn register(connection: &mut PgConnection, worker: &WorkerRow) -> Result<(), StoreError> {
    let doing = "register the worker";
    let interceptors = serde_json::to_string(&worker.interceptors)
        .map_err(|error| StoreError::unreadable(doing, error))?;
    sqlx::query(
        "INSERT INTO toolfleet.worker_processes (worker_id, name, host, pid, version, queues, concurrency, newest_migration, sandbox, interceptors) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::json, $10::json)",
    )
    .bind(worker.worker_id.0)
    .bind(&worker.name)
    .bind(&worker.host)
    .bind(worker.pid)
    .bind(env!("CARGO_PKG_VERSION"))
    .bind(worker.queues.iter().map(QueueName::as_str).collect::<Vec<_>>())
    .bind(worker.concurrency)
    .bind(newest_known())
    .bind(worker.sandbox.to_string())
    .bind(interceptors)
    .execute(connection)
    .await
    .map(drop)
    .map_err(|error| StoreError::from_sqlx(doing, error))
}

/// Beats. Own statement. False: another process has declared this worker gone, so it must not start anything any more.
///
/// # Errors
///
/// Postgres does not answer; the lease was not renewed.
pub async fn beat(connection: &mut PgConnection, worker: WorkerId) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE toolfleet.worker_processes SET beat = beat + 1, beat_at = now() \
         WHERE worker_id = $1 AND state IN ('live', 'draining')",
    )
    .bind(worker.0)
    .execute(connection)
    .await;
    done.map(|done| done.rows_affected() == 1)
        .map_err(|error| StoreError::from_sqlx("beat", error))
}

/// Writes which tools this worker cannot run. Own statement; the row of a worker that has ended stays as it is.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn cannot_run(
    executor: impl PgExecutor<'_>,
    worker: WorkerId,
    tools: &[Inability],
) -> Result<(), StoreError> {
    let doing = "write what the worker cannot run";
    let tools =
        serde_json::to_string(tools).map_err(|error| StoreError::unreadable(doing, error))?;
    sqlx::query(
        "UPDATE toolfleet.worker_processes SET cannot_run = nullif($2, '[]')::json \
         WHERE worker_id = $1 AND state IN ('live', 'draining')",
    )
    .bind(worker.0)
    .bind(tools)
    .execute(executor)
    .await
    .map(drop)
    .map_err(|error| StoreError::from_sqlx(doing, error))
}

/// The interceptors among these that no live worker of the queue has.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn without_interceptors(
    connection: &mut PgConnection,
    queue: &QueueName,
    names: &[InterceptorName],
) -> Result<Vec<String>, StoreError> {
    sqlx::query_scalar(
        "SELECT wanted.name FROM unnest($1::text[]) WITH ORDINALITY AS wanted (name, place) \
         WHERE NOT EXISTS (SELECT FROM toolfleet.worker_processes w, json_array_elements(w.interceptors) has \
             WHERE w.state = 'live' AND $2 = ANY(w.queues) AND has->>'name' = wanted.name) \
         ORDER BY wanted.place",
    )
    .bind(names.iter().map(InterceptorName::as_str).collect::<Vec<_>>())
    .bind(queue.as_str())
    .fetch_all(connection)
    .await
    .map_err(|error| StoreError::from_sqlx("look for workers with interceptors", error))
}

/// Writes that it takes nothing new.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn drain(connection: &mut PgConnection, worker: WorkerId) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE toolfleet.worker_processes SET state = 'draining', leaving_since = now() \
         WHERE worker_id = $1 AND state = 'live'",
    )
    .bind(worker.0)
    .execute(connection)
    .await
    .map(drop)
    .map_err(|error| StoreError::from_sqlx("drain", error))
}

/// The result for a worker that is about to exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// It has left: none of its processes lives, and nothing is left to do.
    Left,
    /// It is fenced: none of its processes lives, and the sweep decides about calls that still run under its name.
    Fenced,
    /// One of its processes may live: another process has to prove that it is gone.
    Dead,
}

/// Ends the row of a worker that is about to exit. `clean`: every attempt has ended, and none of its processes lives.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn leave(
    connection: &mut PgConnection,
    worker: WorkerId,
    clean: bool,
) -> Result<Leave, StoreError> {
    let left: Result<Option<String>, _> = sqlx::query_scalar("SELECT toolfleet.leave($1, $2)")
        .bind(worker.0)
        .bind(clean)
        .fetch_one(connection)
        .await;
    let state = left.map_err(|error| StoreError::from_sqlx("leave", error))?;
    Ok(match state.as_deref() {
        Some("left") => Leave::Left,
        Some("fenced") => Leave::Fenced,
        _ => Leave::Dead,
    })
}

/// A running call that this process claimed.
#[derive(Debug, Clone, Copy)]
pub struct OwnRow {
    /// The call.
    pub call_id: CallId,
    /// The attempt it was claimed for.
    pub attempt_id: AttemptId,
    /// What running it again would mean.
    pub effect: Effect,
    /// Whether an attempt before this one may have had its effect.
    pub effect_unknown: bool,
    /// Whether it was asked to stop.
    pub cancel_requested: bool,
    /// The language of messages.
    pub language: Language,
}

/// The calls among these that run under these attempts of this worker. Read by primary key. A call that is missing was never
/// claimed, has ended, or was taken away.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn own_rows(
    executor: impl PgExecutor<'_>,
    claimed: &[(CallId, AttemptId)],
) -> Result<Vec<OwnRow>, StoreError> {
    let doing = "look after what runs here";
    let (calls, attempts): (Vec<Uuid>, Vec<Uuid>) = claimed
        .iter()
        .map(|(call, attempt)| (call.0, attempt.0))
        .unzip();
    // One at a time: a join would read the whole table for each when the statistics are those of an emptied one.
    let rows = sqlx::query(
        "SELECT o.call_id, o.attempt_id, o.effect::text AS effect, o.effect_unknown, o.cancel_requested, o.language \
         FROM unnest($1::uuid[], $2::uuid[]) AS mine (call_id, attempt_id) \
         CROSS JOIN LATERAL (SELECT * FROM toolfleet.open_calls c WHERE c.call_id = mine.call_id LIMIT 1) o \
         WHERE o.attempt_id = mine.attempt_id AND o.state = 'running'",
    )
    .bind(calls)
    .bind(attempts)
    .fetch_all(executor)
    .await;
    let rows = rows.map_err(|error| StoreError::from_sqlx(doing, error))?;
    read_all(doing, &rows, read_own)
}

fn read_own(row: &PgRow) -> Result<OwnRow, sqlx::Error> {
    Ok(OwnRow {
        call_id: CallId(row.try_get("call_id")?),
        attempt_id: AttemptId(row.try_get("attempt_id")?),
        effect: parsed(row, "effect")?,
        effect_unknown: row.try_get("effect_unknown")?,
        cancel_requested: row.try_get("cancel_requested")?,
        language: parsed(row, "language")?,
    })
}

/// The heartbeats of every worker that has not ended, for an observer that watches over one connection: when that breaks, its
/// observations are void.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn heartbeats(observer: impl PgExecutor<'_>) -> Result<Vec<(WorkerId, i64)>, StoreError> {
    let rows: Result<Vec<(Uuid, i64)>, _> =
        sqlx::query_as("SELECT worker_id, beat FROM toolfleet.worker_processes WHERE state IN ('live', 'draining')")
            .fetch_all(observer)
            .await;
    let rows = rows.map_err(|error| StoreError::from_sqlx("read heartbeats", error))?;
    Ok(rows
        .into_iter()
        .map(|(worker, beat)| (WorkerId(worker), beat))
        .collect())
}

/// Declares a worker dead whose heartbeat has not moved.
///
/// Locks its row `FOR UPDATE`, which excludes a claim in flight. A later statement moves its calls. False: it has beaten
/// meanwhile, or has ended already.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn declare_dead(
    observer: impl PgExecutor<'_>,
    worker: WorkerId,
    beat: i64,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "WITH silent AS MATERIALIZED (
             SELECT worker_id FROM toolfleet.worker_processes
             WHERE worker_id = $1 AND beat = $2 AND state IN ('live', 'draining')
             FOR UPDATE
         )
         UPDATE toolfleet.worker_processes w
         SET state = 'dead', ended_at = now(), ended_by = 'sweep: no heartbeat'
         FROM silent
         WHERE w.worker_id = silent.worker_id",
    )
    .bind(worker.0)
    .bind(beat)
    .execute(observer)
    .await;
    done.map(|done| done.rows_affected() == 1)
        .map_err(|error| StoreError::from_sqlx("declare a worker dead", error))
}

/// Declares this process's worker dead, because its supervisor saw it end. Returns whether there was one.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn report_death(
    connection: &mut PgConnection,
    host: &str,
    pid: i32,
    reporter: &str,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "WITH gone AS MATERIALIZED (
             SELECT worker_id FROM toolfleet.worker_processes
             WHERE host = $1 AND pid = $2 AND state IN ('live', 'draining')
             FOR UPDATE
         )
         UPDATE toolfleet.worker_processes w
         SET state = 'dead', ended_at = now(), ended_by = $3
         FROM gone
         WHERE w.worker_id = gone.worker_id",
    )
    .bind(host)
    .bind(pid)
    .bind(reporter)
    .execute(connection)
    .await;
    done.map(|done| done.rows_affected() > 0)
        .map_err(|error| StoreError::from_sqlx("report a worker's death", error))
}

/// The workers of this process that are not known to be gone with everything they started.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn not_fenced(
    connection: &mut PgConnection,
    host: &str,
    pid: i32,
) -> Result<Vec<WorkerId>, StoreError> {
    let rows: Result<Vec<Uuid>, _> = sqlx::query_scalar(
        "SELECT worker_id FROM toolfleet.worker_processes
         WHERE host = $1 AND pid = $2 AND state NOT IN ('left', 'fenced')",
    )
    .bind(host)
    .bind(pid)
    .fetch_all(connection)
    .await;
    let rows = rows.map_err(|error| StoreError::from_sqlx("look for a worker", error))?;
    Ok(rows.into_iter().map(WorkerId).collect())
}

/// A statement that a worker is gone, with everything it started.
#[derive(Debug, Clone, Copy)]
pub struct Fence<'a> {
    /// The worker.
    pub worker: WorkerId,
    /// The author.
    pub by: &'a str,
    /// How the author knows.
    pub note: &'a str,
    /// The evidence.
    pub evidence: Evidence,
}

/// The evidence that a worker is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// Its lock was taken, and is held until this is recorded.
    Lock,
    /// A person says so. Refused for a worker that still beats.
    Word,
}

/// The result of fencing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fenced {
    /// It is fenced now.
    Now,
    /// It had been fenced before.
    Before,
    /// It had left in order: none of its processes lives.
    Left,
    /// It has beaten within its lease: its processes are not gone.
    Alive,
    /// There is no such worker.
    NotFound,
}

/// A person's name stands before the role that Postgres knows. What the ledger refuses as a name stays as it is.
const FENCE: &str = "SELECT toolfleet.fence($1, CASE WHEN $4 OR btrim($2) = '' OR length($2) > 200 THEN $2 \
                     ELSE left($2, 130) || ' (' || session_user || ')' END, $3, $4, $5)";

/// Declares a worker gone, with everything it started. Locks its row `FOR UPDATE`, which excludes a claim in flight. The sweep
/// moves its calls by a later statement.
///
/// # Errors
///
/// Postgres does not answer, or refuses the statement.
pub async fn fence(
    connection: impl PgExecutor<'_>,
    fence: Fence<'_>,
) -> Result<Fenced, StoreError> {
    let doing = "fence a worker";
    let verdict: Result<String, _> = sqlx::query_scalar(FENCE)
        .bind(fence.worker.0)
        .bind(fence.by)
        .bind(fence.note)
        .bind(fence.evidence == Evidence::Lock)
        .bind(i64::try_from(LEASE.as_millis()).unwrap_or(i64::MAX))
        .fetch_one(connection)
        .await;
    let verdict = verdict.map_err(|error| StoreError::from_sqlx(doing, error))?;
    Ok(match verdict.as_str() {
        "fenced" => Fenced::Now,
        "already" => Fenced::Before,
        "left" => Fenced::Left,
        "alive" => Fenced::Alive,
        "not_found" => Fenced::NotFound,
        other => {
            return Err(StoreError::unreadable(
                doing,
                format!("a verdict {other:?}"),
            ));
        }
    })
}
