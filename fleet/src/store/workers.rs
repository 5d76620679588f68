//! The worker's own row: its identity, its heartbeat, and what others conclude when the heartbeat stops.

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::{StoreError, migrate::newest_known};
use crate::ids::{AttemptId, CallId, QueueName, WorkerId};

/// What a worker says of itself.
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
    /// How many attempts at a time.
    pub concurrency: i32,
}

/// Writes the row. Own statement; repeating it is refused by the primary key.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn register(connection: &mut PgConnection, worker: &WorkerRow) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO toolfleet.worker_processes (worker_id, name, host, pid, version, queues, concurrency, newest_migration) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(worker.worker_id.0)
    .bind(&worker.name)
    .bind(&worker.host)
    .bind(worker.pid)
    .bind(env!("CARGO_PKG_VERSION"))
    .bind(worker.queues.iter().map(QueueName::as_str).collect::<Vec<_>>())
    .bind(worker.concurrency)
    .bind(newest_known())
    .execute(connection)
    .await
    .map(drop)
    .map_err(|error| StoreError::from_sqlx("register the worker", error))
}

/// Beats. Own statement; false: somebody has declared this worker gone, it must not start anything any more.
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

/// Says that it takes nothing new, or that it has left.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn set_state(
    connection: &mut PgConnection,
    worker: WorkerId,
    state: &'static str,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE toolfleet.worker_processes SET state = $2::toolfleet.worker_state, \
                ended_at = CASE WHEN $2 = 'left' THEN now() END, ended_by = CASE WHEN $2 = 'left' THEN 'itself' END \
         WHERE worker_id = $1 AND state IN ('live', 'draining')",
    )
    .bind(worker.0)
    .bind(state)
    .execute(connection)
    .await
    .map(drop)
    .map_err(|error| StoreError::from_sqlx("leave", error))
}

/// Those of these claims, given up by this process, that were committed all the same. Read by primary key.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn still_claimed(
    connection: &mut PgConnection,
    given_up: &[(CallId, AttemptId)],
) -> Result<Vec<(CallId, AttemptId)>, StoreError> {
    let (calls, attempts): (Vec<Uuid>, Vec<Uuid>) = given_up
        .iter()
        .map(|(call, attempt)| (call.0, attempt.0))
        .unzip();
    let rows: Result<Vec<(Uuid, Uuid)>, _> = sqlx::query_as(
        "SELECT o.call_id, o.attempt_id \
         FROM unnest($1::uuid[], $2::uuid[]) AS given_up (call_id, attempt_id) \
         JOIN toolfleet.open_calls o ON o.call_id = given_up.call_id AND o.attempt_id = given_up.attempt_id \
         WHERE o.state = 'running'",
    )
    .bind(calls)
    .bind(attempts)
    .fetch_all(connection)
    .await;
    let rows =
        rows.map_err(|error| StoreError::from_sqlx("look for claims that were given up", error))?;
    Ok(rows
        .into_iter()
        .map(|(call, attempt)| (CallId(call), AttemptId(attempt)))
        .collect())
}

/// The heartbeats of every worker that has not ended.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn heartbeats(pool: &PgPool) -> Result<Vec<(WorkerId, i64)>, StoreError> {
    let rows: Result<Vec<(Uuid, i64)>, _> =
        sqlx::query_as("SELECT worker_id, beat FROM toolfleet.worker_processes WHERE state IN ('live', 'draining')")
            .fetch_all(pool)
            .await;
    let rows = rows.map_err(|error| StoreError::from_sqlx("read heartbeats", error))?;
    Ok(rows
        .into_iter()
        .map(|(worker, beat)| (WorkerId(worker), beat))
        .collect())
}

/// Declares a worker dead whose heartbeat has not moved.
///
/// Takes its row `FOR UPDATE`, which a claim in flight excludes.
/// Its calls are moved by a later statement. False: it has beaten meanwhile, or has ended already.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn declare_dead(pool: &PgPool, worker: WorkerId, beat: i64) -> Result<bool, StoreError> {
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
    .execute(pool)
    .await;
    done.map(|done| done.rows_affected() == 1)
        .map_err(|error| StoreError::from_sqlx("declare a worker dead", error))
}

/// Declares the worker of this process dead: its supervisor saw it end. Returns whether there was one.
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
