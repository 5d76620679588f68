//! The walk over open calls in the order of their ids: which have expired, and whose pointer may be lost.

use std::{ops::Range, time::Duration};

use sqlx::{PgPool, Row as _, postgres::PgRow};
use uuid::Uuid;

pub use super::expiry::Expired;
use super::{
    StoreError,
    answer::listen,
    columns::parse,
    look::{CallsPart, STEP_ROWS},
    statement::{LEFT_MS, WAITED_TOO_LONG, left},
    sweep::{POINTER, Publishable, publishable},
};
use crate::{
    ids::{CallId, QueueName},
    wire::pointer::Pointer,
};

/// A queued call that has waited for this many milliseconds may have lost its pointer.
pub const LOST_AFTER_MS: i64 = 3_000;
/// A queued call that expires within this many milliseconds expires soon.
pub const SOON_MS: i64 = 60_000;

/// One step of the walk over open calls in the order of their ids.
#[derive(Debug, Default)]
pub struct WalkStep {
    /// Queued calls whose pointer is worth publishing again.
    pub waiting: Vec<WaitingCall>,
    /// The queues with calls that have waited longer than a pointer takes, due for another publication or not.
    pub queues: Vec<QueueName>,
    /// Queued calls whose deadline has passed.
    pub expired: Vec<Expired>,
    /// Queued calls that expire soon, and after how long.
    pub soon: Vec<(CallId, Duration)>,
    /// All of them, whatever there is to do about them.
    pub seen: Vec<CallId>,
    /// Where the next step starts; `None` at the end of the table.
    pub cursor: Option<CallId>,
}

/// A queued call whose pointer is worth publishing again.
#[derive(Debug, Clone)]
pub struct WaitingCall {
    /// The call.
    pub call: Publishable,
    /// How long it has waited.
    pub waited: Duration,
}

/// Which waiting pointers are worth publishing again.
#[derive(Debug, Default)]
pub struct Worth {
    /// Calls that have waited for a time in these ranges.
    pub ages: Vec<Range<Duration>>,
    /// All calls of these queues that have waited longer than the given time: that long ago the stream held nothing of the
    /// queue.
    pub empty: Vec<(QueueName, Duration)>,
}

impl Worth {
    /// All of them.
    pub fn all() -> Self {
        Self {
            ages: vec![Duration::ZERO..Duration::MAX],
            empty: Vec::new(),
        }
    }
}

/// [`step_over`] the calls behind the cursor.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn step(
    pool: &PgPool,
    cursor: Option<CallId>,
    worth: &Worth,
) -> Result<WalkStep, StoreError> {
    step_over(pool, CallsPart::Behind(cursor), worth).await
}

/// Walks over at most [`STEP_ROWS`] open calls. Held calls are passed over: no pointer of theirs is missing.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn step_over(
    pool: &PgPool,
    part: CallsPart<'_>,
    worth: &Worth,
) -> Result<WalkStep, StoreError> {
    let doing = "walk over open calls";
    // The last row of the step says where the next one starts. Other rows leave Postgres only if there is something to do about
    // them, and only then are their arguments read. They are joined by ctid: a join by id would read the whole table in each
    // step when the statistics are those of an emptied one.
    let predicate = part.predicate();
    let sql = format!(
        "WITH step AS MATERIALIZED ( \
             SELECT ctid AS place, call_id AS id, queue AS of_queue, state = 'queued' AS queued, deadline_at <= now() AS expired, \
                    {WAITED_TOO_LONG} AS waited_too_long, {LEFT_MS} AS left_ms, \
                    CASE WHEN state = 'queued' AND NOT held AND due_at IS NULL \
                         THEN date_part('epoch', now() - greatest(accepted_at, not_before)) * 1000 END AS age \
             FROM toolfleet.open_calls WHERE call_id {predicate} ORDER BY call_id LIMIT {STEP_ROWS}), \
         told AS MATERIALIZED ( \
             SELECT *, queued AND (expired OR waited_too_long) AS over, \
                    NOT expired AND NOT waited_too_long AND coalesce(age > {LOST_AFTER_MS}, false) AS waiting, \
                    queued AND left_ms > 0 AND left_ms <= {SOON_MS} AS soon FROM step), \
         judged AS MATERIALIZED ( \
             SELECT *, waiting AND ( \
                 EXISTS (SELECT FROM unnest($3::float8[], $4::float8[]) AS worth (since, until) \
                         WHERE age >= worth.since AND age < worth.until) \
                 OR EXISTS (SELECT FROM unnest($5::text[], $6::float8[]) AS empty (queue, since) \
                            WHERE empty.queue = of_queue AND age > empty.since)) AS again \
             FROM told), \
         whole AS MATERIALIZED ( \
             SELECT count(*) AS rows, (SELECT id FROM step ORDER BY id DESC LIMIT 1) AS last, \
                    array_agg(id) AS seen, array_agg(DISTINCT of_queue) FILTER (WHERE waiting) AS queues, \
                    array_agg(id) FILTER (WHERE soon) AS soon, array_agg(left_ms) FILTER (WHERE soon) AS soon_ms FROM told) \
         SELECT {POINTER}, effect::text AS effect, effect_unknown, \
                CASE WHEN j.over THEN obstacle::text END AS obstacle, j.over, j.waited_too_long, j.again, j.age, \
                j.id = w.last AS last, w.rows, CASE WHEN j.id = w.last THEN w.queues END AS queues, \
                CASE WHEN j.id = w.last THEN w.soon END AS soon, CASE WHEN j.id = w.last THEN w.soon_ms END AS soon_ms, \
                CASE WHEN j.id = w.last THEN w.seen END AS seen \
         FROM judged j CROSS JOIN whole w \
         CROSS JOIN LATERAL (SELECT * FROM toolfleet.open_calls o WHERE o.ctid = j.place LIMIT 1) o \
         WHERE j.over OR j.again OR j.id = w.last ORDER BY j.id"
    );
    let millis = |duration: Duration| duration.as_secs_f64() * 1_000.0;
    let (queues, since): (Vec<&str>, Vec<f64>) = worth
        .empty
        .iter()
        .map(|(queue, since)| (queue.as_str(), millis(*since)))
        .unzip();
    // Made of constants of this folder.
    let query = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(i32::try_from(Pointer::ARGS_INLINE_MAX).unwrap_or(i32::MAX));
    let rows = listen(
        part.bind(query)
            .bind(
                worth
                    .ages
                    .iter()
                    .map(|ages| millis(ages.start))
                    .collect::<Vec<_>>(),
            )
            .bind(
                worth
                    .ages
                    .iter()
                    .map(|ages| millis(ages.end))
                    .collect::<Vec<_>>(),
            )
            .bind(queues)
            .bind(since)
            .fetch_all(pool),
    )
    .await
    .map_err(|error| StoreError::from_sqlx(doing, error))?;
    let mut step = WalkStep::default();
    let read = |row: &PgRow, step: &mut WalkStep| -> Result<(), sqlx::Error> {
        let call = CallId(row.try_get("call_id")?);
        if row.try_get("last")? && row.try_get::<i64, _>("rows")? >= STEP_ROWS {
            step.cursor = Some(call).filter(|_| matches!(part, CallsPart::Behind(_)));
        }
        let seen: Option<Vec<Uuid>> = row.try_get("seen")?;
        step.seen.extend(seen.into_iter().flatten().map(CallId));
        let queues: Option<Vec<String>> = row.try_get("queues")?;
        for queue in queues.into_iter().flatten() {
            step.queues.push(parse(&queue)?);
        }
        let (soon, soon_ms): (Option<Vec<Uuid>>, Option<Vec<f64>>) =
            (row.try_get("soon")?, row.try_get("soon_ms")?);
        let soon = soon.into_iter().flatten().map(CallId);
        let soon = soon.zip(soon_ms.into_iter().flatten().map(left));
        step.soon.extend(soon);
        if row.try_get("over")? {
            step.expired.push(Expired::read(row)?);
        } else if row.try_get("again")? {
            let waited = left(row.try_get::<Option<f64>, _>("age")?.unwrap_or(0.0));
            let call = publishable(row)?;
            step.waiting.push(WaitingCall { call, waited });
        }
        Ok(())
    };
    for row in &rows {
        read(row, &mut step).map_err(|error| StoreError::unreadable(doing, error))?;
    }
    Ok(step)
}

/// Calls that may run now, whatever their age, among at most [`STEP_ROWS`] open ones after the cursor; and where the next step
/// starts, `None` at the end of the table. For publishing everything again.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn runnable(
    pool: &PgPool,
    cursor: Option<CallId>,
) -> Result<(Vec<Publishable>, Option<CallId>), StoreError> {
    let doing = "read what may run";
    let sql = format!(
        "SELECT {POINTER}, state = 'queued' AND NOT held AND due_at IS NULL AS runnable \
         FROM (SELECT * FROM toolfleet.open_calls WHERE call_id > $2 ORDER BY call_id LIMIT {STEP_ROWS}) step \
         ORDER BY call_id"
    );
    // Made of constants of this folder.
    let rows = listen(
        sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(i32::try_from(Pointer::ARGS_INLINE_MAX).unwrap_or(i32::MAX))
            .bind(cursor.map_or(Uuid::nil(), |id| id.0))
            .fetch_all(pool),
    )
    .await
    .map_err(|error| StoreError::from_sqlx(doing, error))?;
    let whole = i64::try_from(rows.len()).unwrap_or(i64::MAX) >= STEP_ROWS;
    let read = || -> Result<_, sqlx::Error> {
        let mut runnable = Vec::new();
        for row in &rows {
            if row.try_get("runnable")? {
                runnable.push(publishable(row)?);
            }
        }
        let last = rows.last().filter(|_| whole);
        let last = last.map(|row| row.try_get("call_id").map(CallId));
        Ok((runnable, last.transpose()?))
    };
    read().map_err(|error| StoreError::unreadable(doing, error))
}
