//! Start times of tools with a rate limit, beside the claim that hands them out: how many are free, and buckets that a remote
//! has closed or that nobody uses any more.

use std::{collections::HashMap, time::Duration};

use sqlx::{PgConnection, PgExecutor, PgPool};
use time::OffsetDateTime;

use super::{StoreError, answer::listen, columns::sparse, statement::left};
use crate::{
    hold::Line,
    ids::{CallId, InvalidName, Label, ToolName},
    rate_key::RateKey,
};

/// How far ahead start times are handed out: a call that gets one waits for it with its message, on no slot.
pub(super) const AHEAD_MS: i32 = 500;

/// How many more calls of a tool may be released to get a start time in the next half second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FreeStarts {
    /// The tool has no rate limit any more.
    Unlimited,
    /// So many, of whichever tenants.
    Shared(u64),
    /// So many of each of the tenants that were asked for.
    Each(HashMap<Label, u64>),
}

/// How many more calls of this tool may be released now, of each of these tenants where each has its own start times.
///
/// They are the start times of the next half second that are free, less the calls that were released in the last two seconds and
/// have none yet. Without numbers none may: a shared limit that nobody has set. One statement, changes nothing. It reads one row for each
/// bucket, and those that were released.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn free(
    ledger: impl PgExecutor<'_>,
    tool: &ToolName,
    tenants: &[Label],
) -> Result<FreeStarts, StoreError> {
    let doing = "look for free start times";
    let tenants: Vec<&str> = tenants.iter().map(Label::as_str).collect();
    let rows: Vec<(Option<String>, i64)> = sqlx::query_as(include_str!("sql/free_starts.sql"))
        .bind(tool.as_str())
        .bind(tenants)
        .bind(AHEAD_MS)
        .fetch_all(ledger)
        .await
        .map_err(|error| StoreError::from_sqlx(doing, error))?;
    let count = |free: i64| u64::try_from(free).unwrap_or(0);
    let mut each = HashMap::with_capacity(rows.len());
    let mut is_limited = false;
    for (tenant, free) in rows {
        is_limited = true;
        let Some(tenant) = tenant else {
            return Ok(FreeStarts::Shared(count(free)));
        };
        let tenant = tenant.parse();
        let tenant = tenant.map_err(|error| StoreError::unreadable(doing, error))?;
        each.insert(tenant, count(free));
    }
    Ok(if is_limited {
        FreeStarts::Each(each)
    } else {
        FreeStarts::Unlimited
    })
}

/// A line of calls with one key, where each value of an argument has start times of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyLine {
    /// The key.
    pub key: RateKey,
    /// Whose calls they are, all of them.
    pub tenant: Label,
    /// When the first of them was accepted, of those with the highest priority.
    pub since: OffsetDateTime,
    /// How many more may be released now; `None`: the tool has no such limit any more.
    pub free: Option<u64>,
}

/// The lines of a tool whose calls wait by their key, and how many of each may be released, as [`free`] counts them.
///
/// At most `limit`, in the order of their keys from the first after `after`; fewer: there are no more behind them. One statement,
/// changes nothing. It reads an index entry and a bucket for each line, and the calls that were released.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn free_by_key(
    ledger: impl PgExecutor<'_>,
    tool: &ToolName,
    after: Option<RateKey>,
    limit: usize,
) -> Result<Vec<KeyLine>, StoreError> {
    let doing = "look for free start times of values";
    let first = Line::first_of_keys(tool);
    let after = after.map_or_else(
        || first.clone(),
        |key| Line::Key(tool.clone(), key).to_string(),
    );
    let rows: Vec<(String, String, OffsetDateTime, Option<i64>)> =
        sqlx::query_as(include_str!("sql/key_starts.sql"))
            .bind(tool.as_str())
            .bind(after)
            .bind(first)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .bind(AHEAD_MS)
            .fetch_all(ledger)
            .await
            .map_err(|error| StoreError::from_sqlx(doing, error))?;
    let line = |(key, tenant, since, free): (String, String, OffsetDateTime, Option<i64>)| {
        Ok(KeyLine {
            key: key.parse()?,
            tenant: tenant.parse()?,
            since,
            free: free.map(|free| u64::try_from(free).unwrap_or(0)),
        })
    };
    let lines: Result<_, InvalidName> = rows.into_iter().map(line).collect();
    lines.map_err(|error| StoreError::unreadable(doing, error))
}

/// So many new calls of a tool want to start now.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// Their tool.
    pub tool: &'a ToolName,
    /// Their key, where each value of an argument has start times of its own.
    pub key: Option<RateKey>,
    /// How many.
    pub calls: u32,
}

/// What new calls of a tool got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Started {
    /// How many may start now.
    pub calls: u32,
    /// When the next start is free, for the others.
    pub next: Duration,
}

/// When a caller asks again whose tool shares a limit that nobody has set.
const NEVER: Duration = Duration::from_secs(60);

/// Takes start times for new calls of this tenant that are refused otherwise: those that are free now.
///
/// Own autocommit statement; waits for a claim that has the bucket. The claim of such a call takes no other one for a second. A
/// call that is not committed after all, or comes twice, has taken one in vain: there are never too many.
///
/// # Errors
///
/// Postgres does not answer: some may have been taken.
pub async fn take(
    pool: &PgPool,
    tenant: &Label,
    wanted: &[Wanted<'_>],
) -> Result<Vec<Started>, StoreError> {
    let doing = "take start times";
    let tools: Vec<&str> = wanted.iter().map(|of| of.tool.as_str()).collect();
    let calls: Vec<i64> = wanted.iter().map(|of| i64::from(of.calls)).collect();
    let taking = sqlx::query_as(include_str!("sql/take_starts.sql"))
        .bind(tenant.as_str())
        .bind(tools)
        .bind(calls)
        .bind(sparse(wanted.iter().map(|of| Some(of.key?.to_string()))))
        .fetch_all(pool);
    let rows: Result<Vec<(i64, i64, Option<f64>)>, _> = listen(taking).await;
    let rows = rows.map_err(|error| StoreError::from_sqlx(doing, error))?;
    let mut started: Vec<Started> = wanted
        .iter()
        .map(|of| Started {
            // A tool whose newest version has no limit.
            calls: of.calls,
            next: Duration::ZERO,
        })
        .collect();
    for (place, given, next_ms) in rows {
        if let Some(of) = usize::try_from(place)
            .ok()
            .and_then(|place| started.get_mut(place))
        {
            *of = Started {
                calls: u32::try_from(given).unwrap_or(0),
                next: next_ms.map_or(NEVER, left),
            };
        }
    }
    Ok(started)
}

/// The longest time for which a remote may close a bucket.
pub const CLOSED_MAX: Duration = Duration::from_secs(3600);

/// Closes the bucket of such a call of this tenant for so long, and for at most [`CLOSED_MAX`]: where each value of an argument has
/// its own, that of the open call's value.
///
/// A remote has asked for it. A bucket that is closed for longer stays so; a tool without a limit has none.
///
/// Own autocommit statement; safe to repeat. Waits for a claim that has the bucket. Start times that were handed out stand.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn close(
    pool: &PgPool,
    tool: &ToolName,
    tenant: &Label,
    call: CallId,
    pause: Duration,
) -> Result<(), StoreError> {
    let pause = pause.min(CLOSED_MAX).as_millis();
    let closing = sqlx::query(
        "SELECT toolfleet.close_bucket($1, $2 || coalesce( \
             '/' || (SELECT o.rate_key FROM toolfleet.open_calls o WHERE o.call_id = $4), ''), $3)",
    )
    .bind(tool.as_str())
    .bind(tenant.as_str())
    .bind(i64::try_from(pause).unwrap_or(i64::MAX))
    .bind(call.0)
    .execute(pool);
    let closed = listen(closing).await.map(drop);
    closed.map_err(|error| StoreError::from_sqlx("close a bucket of start times", error))
}

/// Deletes the buckets of single values that are as good as new and were not used for a minute; returns their number.
///
/// At most [`DROPPED_AT_ONCE`], so that not every value that ever was has a row. One that a remote has closed stays for as long as
/// others do. Own autocommit statement, as [`drop_unused`].
///
/// # Errors
///
/// Postgres does not answer.
pub async fn drop_unused_values(connection: &mut PgConnection) -> Result<u64, StoreError> {
    let dropped = sqlx::query(
        "DELETE FROM toolfleet.rate_buckets WHERE bucket IN ( \
             SELECT bucket FROM toolfleet.rate_buckets \
             WHERE shared_by = 'argument' AND closed_until IS NULL \
               AND greatest(used_at + interval '1 minute', tat) < now() LIMIT $1) \
           AND closed_until IS NULL AND greatest(used_at + interval '1 minute', tat) < now()",
    )
    .bind(i64::try_from(DROPPED_AT_ONCE).unwrap_or(i64::MAX))
    .execute(connection)
    .await;
    let dropped =
        dropped.map_err(|error| StoreError::from_sqlx("drop unused buckets of values", error))?;
    Ok(dropped.rows_affected())
}

/// The most buckets that one statement deletes.
pub const DROPPED_AT_ONCE: u64 = 10_000;

/// Deletes buckets that were not used for a day and are as good as new, so that each tenant that ever was has no row; returns
/// their number.
///
/// Own autocommit statement; one that comes into use meanwhile stays, for its condition is read again under the row's lock (no
/// `FOR UPDATE`: a dispatcher may delete these rows and not change them). Safe to repeat.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn drop_unused(connection: &mut PgConnection) -> Result<u64, StoreError> {
    let dropped = sqlx::query(
        "DELETE FROM toolfleet.rate_buckets WHERE bucket IN ( \
             SELECT bucket FROM toolfleet.rate_buckets \
             WHERE greatest(used_at + interval '1 day', tat, closed_until) < now() LIMIT 10000) \
           AND greatest(used_at + interval '1 day', tat, closed_until) < now()",
    )
    .execute(connection)
    .await;
    let dropped = dropped.map_err(|error| StoreError::from_sqlx("drop unused buckets", error))?;
    Ok(dropped.rows_affected())
}
