//! What only Postgres knows of the whole fleet, for gauges.

use std::time::Duration;

use sqlx::PgPool;

use super::{StoreError, answer::listen, release};
use crate::{
    call::State,
    telemetry::figures::{LedgerFigures, QUEUES_MAX, QueueFigures},
};

const DOING: &str = "count open calls";

/// Numbers of the ledger for gauges.
///
/// A call whose pause before its next attempt is not over does not count as waiting; one that
/// workers put back, because they lack something, has waited since it was accepted. One that a pause, a breaker or its tool's limit
/// holds waits for no worker and has no age.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn figures(pool: &PgPool) -> Result<LedgerFigures, StoreError> {
    let counting = sqlx::query_as(
        "SELECT state::text, awaiting, queue, count(*), count(*) FILTER (WHERE held), \
                count(*) FILTER (WHERE held AND line LIKE 'pause/%'), \
                (extract(epoch FROM now() - min(CASE WHEN state = 'queued' AND obstacle IS NOT NULL THEN accepted_at \
                                                     ELSE greatest(accepted_at, not_before) END) \
                    FILTER (WHERE (not_before <= now() OR state = 'queued' AND obstacle IS NOT NULL) \
                              AND NOT (held AND (line LIKE 'pause/%' OR line LIKE 'breaker/%' OR line LIKE 'tool/%')))))::float8 \
         FROM toolfleet.open_calls GROUP BY state, awaiting, queue ORDER BY queue, state",
    );
    let rows: Vec<StateRow> = listen(counting.fetch_all(pool))
        .await
        .map_err(|error| StoreError::from_sqlx(DOING, error))?;
    let mut figures = LedgerFigures::default();
    for row in rows {
        count(&mut figures, row)?;
    }
    for (queue, slots) in release::slots(pool).await? {
        if let Some(of_queue) = of_queue(&mut figures, queue.as_str()) {
            of_queue.slots = slots;
        }
    }
    let reading = sqlx::query_as(
        "SELECT quarantines, (SELECT count(DISTINCT l.pid) \
                              FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
                              WHERE NOT l.granted AND a.datname = current_database() \
                                AND a.application_name LIKE 'toolfleet%' AND a.application_name <> 'toolfleet tool') \
         FROM toolfleet.fleet",
    );
    let row: Option<(i32, i64)> = listen(reading.fetch_optional(pool))
        .await
        .map_err(|error| StoreError::from_sqlx(DOING, error))?;
    let (quarantines, waiters) = row.unwrap_or_default();
    figures.quarantines = u64::try_from(quarantines).unwrap_or(0);
    figures.lock_waiters = u64::try_from(waiters).unwrap_or(0);
    Ok(figures)
}

/// The most dead letters that are counted, which bounds what counting costs.
pub const DEAD_LETTERS_MAX: i64 = 100_000;

/// How many dead letters there are; of more than [`DEAD_LETTERS_MAX`] that many.
///
/// It reads the errors of the whole history, so a caller rests between two readings.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn dead_letters(pool: &PgPool) -> Result<u64, StoreError> {
    let counting = sqlx::query_scalar(
        "SELECT count(*) FROM (SELECT FROM toolfleet.dead_letters LIMIT $1) letters",
    )
    .bind(DEAD_LETTERS_MAX);
    let letters: i64 = listen(counting.fetch_one(pool))
        .await
        .map_err(|error| StoreError::from_sqlx("count dead letters", error))?;
    Ok(u64::try_from(letters).unwrap_or(0))
}

/// State, for whom they wait, queue, calls, those of them that are held and that wait for a pause, and the oldest's age in seconds.
type StateRow = (String, Option<String>, String, i64, i64, i64, Option<f64>);

/// Adds the open calls of one state and one queue.
fn count(
    figures: &mut LedgerFigures,
    (state, awaiting, queue, calls, held, paused, oldest): StateRow,
) -> Result<(), StoreError> {
    let whole = |count| u64::try_from(count).unwrap_or(0);
    let state: State = state
        .parse()
        .map_err(|error| StoreError::unreadable(DOING, error))?;
    let calls = whole(calls);
    let age = oldest.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default());
    figures.held += whole(held);
    figures.paused += whole(paused);
    if state == State::InDoubt {
        figures.in_doubt += calls;
    }
    add(&mut figures.backlog, state, calls);
    // A word that this program does not know is a newer one's.
    if let Some(Ok(whom)) = awaiting.map(|whom| whom.parse()) {
        add(&mut figures.waiting, whom, calls);
        if let Some(age) = age {
            keep_oldest(&mut figures.oldest_waiting, whom, age);
        }
    }
    if let Some(age) = age {
        keep_oldest(&mut figures.oldest_age, state, age);
    }
    if let Some(of_queue) = of_queue(figures, &queue) {
        add(&mut of_queue.calls, state, calls);
        if state == State::Queued {
            of_queue.oldest_age = age;
        }
    }
    Ok(())
}

/// Keeps the oldest age of this kind.
fn keep_oldest<K: PartialEq>(ages: &mut Vec<(K, Duration)>, kind: K, age: Duration) {
    match ages.iter_mut().find(|(known, _)| *known == kind) {
        Some((_, oldest)) => *oldest = (*oldest).max(age),
        None => ages.push((kind, age)),
    }
}

/// Adds to what was counted of this kind.
fn add<K: PartialEq>(counts: &mut Vec<(K, u64)>, kind: K, calls: u64) {
    match counts.iter_mut().find(|(known, _)| *known == kind) {
        Some((_, all)) => *all += calls,
        None => counts.push((kind, calls)),
    }
}

/// A queue's own figures, unless too many have some.
fn of_queue<'a>(figures: &'a mut LedgerFigures, queue: &str) -> Option<&'a mut QueueFigures> {
    let queues = &mut figures.queues;
    let fits = queues.len() < QUEUES_MAX || queues.contains_key(queue);
    fits.then(|| queues.entry(queue.to_owned()).or_default())
}
