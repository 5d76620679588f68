//! Learned timeouts: how long first attempts took is counted, looked at, and what comes of it is kept.

use std::{collections::HashMap, time::Duration};

use sqlx::{PgConnection, PgPool};

use super::{StoreError, answer::listen};
use crate::{
    ids::ToolName,
    learn::{Lesson, RunTimes},
};

/// Run times of one version of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedRunTimes {
    /// The tool.
    pub tool: ToolName,
    /// Its version.
    pub version: i32,
    /// How many attempts took how long.
    pub times: RunTimes,
}

/// The most rows of one report.
pub const REPORT_MAX: usize = 1_000;

/// Adds run times to those of this hour. Own autocommit statement; without an answer it is unknown whether they were added. At
/// most [`REPORT_MAX`], each of another tool, version, timeout or time.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn count(pool: &PgPool, counted: &[CountedRunTimes]) -> Result<(), StoreError> {
    let all = || counted.iter();
    let times = || all().map(|one| one.times);
    // In one order, so that two workers do not wait for each other's rows.
    let writing = sqlx::query(
        "INSERT INTO toolfleet.run_times AS r (tool, version, hour, limit_ms, took_ms, cut_off, count) \
         SELECT tool, version, date_trunc('hour', now()), limit_ms, took_ms, cut_off, count \
         FROM unnest($1::text[], $2::integer[], $3::bigint[], $4::bigint[], $5::boolean[], $6::bigint[]) \
             AS input (tool, version, limit_ms, took_ms, cut_off, count) \
         ORDER BY tool, version, limit_ms, took_ms, cut_off \
         ON CONFLICT (tool, version, hour, limit_ms, took_ms, cut_off) DO UPDATE SET count = r.count + excluded.count",
    )
    .bind(all().map(|one| one.tool.as_str()).collect::<Vec<_>>())
    .bind(all().map(|one| one.version).collect::<Vec<_>>())
    .bind(times().map(|times| signed(times.limit_ms)).collect::<Vec<_>>())
    .bind(times().map(|times| signed(times.took_ms)).collect::<Vec<_>>())
    .bind(times().map(|times| times.cut_off).collect::<Vec<_>>())
    .bind(times().map(|times| signed(times.count)).collect::<Vec<_>>())
    .execute(pool);
    listen(writing)
        .await
        .map(drop)
        .map_err(|error| StoreError::from_sqlx("count run times", error))
}

/// The timeouts that were learned, by tool and version.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn learned(
    pool: &PgPool,
) -> Result<HashMap<ToolName, HashMap<i32, Duration>>, StoreError> {
    let doing = "read learned timeouts";
    let sql = "SELECT tool, version, timeout_ms FROM toolfleet.timeout_looks WHERE timeout_ms IS NOT NULL";
    let rows: Vec<(String, i32, i64)> = listen(sqlx::query_as(sql).fetch_all(pool))
        .await
        .map_err(|error| StoreError::from_sqlx(doing, error))?;
    let mut learned = HashMap::<_, HashMap<_, _>>::new();
    for (tool, version, ms) in rows {
        let tool = tool.parse();
        let tool = tool.map_err(|error| StoreError::unreadable(doing, error))?;
        let timeouts = learned.entry(tool).or_default();
        timeouts.insert(version, Duration::from_millis(unsigned(ms)));
    }
    Ok(learned)
}

/// A version whose run times are to be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueLook {
    /// Which of those that were asked for.
    pub index: usize,
    /// The timeout that was learned last.
    pub learned: Option<Duration>,
}

/// Which of these versions nobody has looked at in the last ten minutes; the caller has from now on.
///
/// Own autocommit statement. Whoever asks at the same time is told of each version once. If the look is lost, the next one comes ten
/// minutes later.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn take_due(
    pool: &PgPool,
    versions: &[(ToolName, i32)],
) -> Result<Vec<DueLook>, StoreError> {
    let doing = "look which timeouts are to be learned";
    let taking = sqlx::query_as(
        "WITH asked AS (SELECT * FROM unnest($1::text[], $2::integer[]) WITH ORDINALITY AS input (tool, version, n)), \
         taken AS ( \
             INSERT INTO toolfleet.timeout_looks AS l (tool, version, looked_at) \
             SELECT tool, version, now() FROM asked ORDER BY tool, version \
             ON CONFLICT (tool, version) DO UPDATE SET looked_at = excluded.looked_at \
             WHERE l.looked_at < excluded.looked_at - interval '10 minutes' \
             RETURNING tool, version, timeout_ms) \
         SELECT n, timeout_ms FROM taken JOIN asked USING (tool, version)",
    )
    .bind(versions.iter().map(|(tool, _)| tool.as_str()).collect::<Vec<_>>())
    .bind(versions.iter().map(|(_, version)| *version).collect::<Vec<_>>())
    .fetch_all(pool);
    let rows: Vec<(i64, Option<i64>)> = listen(taking)
        .await
        .map_err(|error| StoreError::from_sqlx(doing, error))?;
    let due = rows.into_iter().map(|(n, learned)| DueLook {
        index: usize::try_from(n - 1).unwrap_or(usize::MAX),
        learned: learned.map(|ms| Duration::from_millis(unsigned(ms))),
    });
    Ok(due.collect())
}

/// The run times of a version in the last 24 hours, added up. Some hundreds of rows for each timeout that it had.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn of_a_day(
    pool: &PgPool,
    tool: &ToolName,
    version: i32,
) -> Result<Vec<RunTimes>, StoreError> {
    // Beyond the limit there are timeouts that were changed more often in a day than they can be.
    let reading = sqlx::query_as(
        "SELECT limit_ms, took_ms, cut_off, sum(count)::bigint FROM toolfleet.run_times \
         WHERE tool = $1 AND version = $2 AND hour > now() - interval '24 hours' \
         GROUP BY limit_ms, took_ms, cut_off ORDER BY limit_ms DESC LIMIT 100000",
    )
    .bind(tool.as_str())
    .bind(version)
    .fetch_all(pool);
    let rows: Vec<(i64, i64, bool, i64)> = listen(reading)
        .await
        .map_err(|error| StoreError::from_sqlx("read run times", error))?;
    let times = rows
        .into_iter()
        .map(|(limit_ms, took_ms, cut_off, count)| RunTimes {
            limit_ms: unsigned(limit_ms),
            took_ms: unsigned(took_ms),
            cut_off,
            count: unsigned(count),
        });
    Ok(times.collect())
}

/// Keeps what a look came to; a changed timeout holds from then on, and has its row in the history. Whether it was changed.
///
/// Own autocommit statement; guard: the timeout is still the one that was looked at. Locks the fleet's row where it changes one.
///
/// # Errors
///
/// Postgres does not answer: it may have been kept.
pub async fn keep(
    pool: &PgPool,
    tool: &ToolName,
    version: i32,
    learned: Option<Duration>,
    now: Duration,
    lesson: &Lesson,
) -> Result<bool, StoreError> {
    let keeping = sqlx::query_scalar(
        "WITH looked AS ( \
             UPDATE toolfleet.timeout_looks SET samples = $5, longer = $6, p95_ms = $7, p99_ms = $8, \
                 timeout_ms = coalesce($9, timeout_ms) \
             WHERE tool = $1 AND version = $2 AND timeout_ms IS NOT DISTINCT FROM $3 \
             RETURNING tool, version), \
         changed AS ( \
             INSERT INTO toolfleet.timeout_changes (tool, version, timeout_ms, before_ms, why, samples, longer, p95_ms, p99_ms) \
             SELECT tool, version, $9, $4, $10, $5, $6, $7, $8 FROM looked WHERE $9 IS NOT NULL \
             RETURNING tool), \
         told AS (UPDATE toolfleet.fleet SET timeout_rev = timeout_rev + 1 WHERE EXISTS (SELECT FROM changed)) \
         SELECT EXISTS (SELECT FROM changed)",
    )
    .bind(tool.as_str())
    .bind(version)
    .bind(learned.map(millis))
    .bind(millis(now))
    .bind(signed(lesson.samples))
    .bind(signed(lesson.longer))
    .bind(signed(lesson.p95_ms))
    .bind(signed(lesson.p99_ms))
    .bind(lesson.next.map(|(timeout, _)| millis(timeout)))
    .bind(lesson.next.map(|(_, why)| why.as_str()))
    .fetch_one(pool);
    listen(keeping)
        .await
        .map_err(|error| StoreError::from_sqlx("keep a learned timeout", error))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

/// The most run times that one statement deletes.
const DROPPED_AT_ONCE: u64 = 50_000;

/// Drops run times that are older than any look, and changes of more than 90 days ago, but the last one of each version. Own
/// autocommit statements, in steps that lock little.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn drop_old(connection: &mut PgConnection) -> Result<(), StoreError> {
    let failed = |error| StoreError::from_sqlx("drop old run times", error);
    loop {
        let dropping = sqlx::query(
            "DELETE FROM toolfleet.run_times WHERE ctid = ANY (ARRAY( \
                 SELECT ctid FROM toolfleet.run_times WHERE hour < now() - interval '25 hours' LIMIT $1))",
        );
        let dropping = dropping.bind(signed(DROPPED_AT_ONCE));
        let dropped = dropping.execute(&mut *connection).await.map_err(failed)?;
        if dropped.rows_affected() < DROPPED_AT_ONCE {
            break;
        }
    }
    let dropping = sqlx::query(
        "DELETE FROM toolfleet.timeout_changes c WHERE at < now() - interval '90 days' AND EXISTS ( \
             SELECT FROM toolfleet.timeout_changes n WHERE n.tool = c.tool AND n.version = c.version AND n.at > c.at)",
    );
    dropping
        .execute(&mut *connection)
        .await
        .map(drop)
        .map_err(failed)
}
