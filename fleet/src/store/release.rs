//! Release: held calls are released for publication, tenant by tenant, when there is room for them.
//!
//! [`crate::hold`] decides how much room there is, and how it is shared. Every statement is cheap however many calls are held:
//! it reads from the index only the calls that it releases, and one entry for each tenant that it looks at.

use std::sync::LazyLock;

use sqlx::{PgConnection, PgPool, Row as _};

use super::{
    StoreError,
    answer::listen,
    read_all,
    session::Postgres,
    statement::{EXPIRES_AT, put_together},
    sweep::{POINTER, Publishable, publishable},
};
use crate::{
    breaker::BreakerId,
    call::Priority,
    controls::ControlId,
    hold::{Line, penalty},
    ids::{Label, QueueName, ToolName},
    wire::pointer::Pointer,
};

/// A held call that was released.
#[derive(Debug, Clone)]
pub struct Released {
    /// What to publish.
    pub call: Publishable,
    /// How long it was held, in milliseconds.
    pub held_ms: u64,
}

static RELEASE: LazyLock<String> = LazyLock::new(|| {
    let parts = [("expires at", EXPIRES_AT), ("pointer", POINTER)];
    put_together(include_str!("sql/release.sql"), &parts)
});

/// A connection for releasing: released rows are joined with their old versions by hashes.
///
/// # Errors
///
/// Postgres cannot be reached within five seconds, or is not safe to write to.
pub async fn connect(postgres: &Postgres) -> Result<PgConnection, StoreError> {
    postgres.connect_lane().await
}

/// The lines that hold calls.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// The lines from which this program releases calls.
    pub lines: Vec<Line>,
    /// The pauses for whose end calls wait.
    pub pauses: Vec<ControlId>,
    /// The breakers for which calls wait.
    pub breakers: Vec<BreakerId>,
    /// The tools whose calls wait in lines of their keys.
    pub keyed: Vec<ToolName>,
    /// One of the lines that it does not know, if there are any: a newer dispatcher has written it, and releases its calls.
    pub unknown: Option<String>,
}

/// The pattern of a line that parses, other than those of pauses, breakers and followers; see [`Line`]. Lines of other forms are skipped.
const KNOWN: &str = "^(tool/|slots/)?[^/]+$";
/// The pattern of the line of a pause or a breaker. There are not many more than the ledger takes controls, and one for each tool
/// and target with a breaker.
const SHUT: &str = "^(pause|breaker)/[0-9]+$";
/// The pattern of the line of a key. There may be many: of each tool one is found, where texts are compared byte by byte.
const KEYED: &str = "^tool/[^/]+/[0-9a-f]{32}$";
/// The most lines of other forms that one look skips.
const UNKNOWN_MAX: i64 = 10_000;

/// The lines with held calls, at most `limit` of those that this program knows. Lines of a newer release are skipped.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn lines(connection: &mut PgConnection, limit: u32) -> Result<Holding, StoreError> {
    let doing = "look which lines hold calls";
    // One index entry for each line; `known` counts the known lines before this one, `others` the unknown. Those of followers and of
    // keys, of which there may be many, are passed over at once where texts are compared byte by byte, else one by one.
    let found: Result<Vec<String>, _> = sqlx::query_scalar(
        "WITH RECURSIVE holding AS ( \
             (SELECT line, 0::bigint AS known, 0::bigint AS others \
              FROM toolfleet.open_calls WHERE held ORDER BY line LIMIT 1) \
             UNION ALL \
             SELECT (SELECT o.line FROM toolfleet.open_calls o \
                     WHERE o.held AND o.line > CASE \
                         WHEN h.line LIKE 'after/%' THEN greatest(h.line, 'after/~') \
                         WHEN h.line ~ $5 THEN greatest(h.line, 'tool/' || split_part(h.line, '/', 2) || '/~') ELSE h.line END \
                     ORDER BY o.line LIMIT 1), \
                    h.known + (h.line ~ $2)::int, h.others + (h.line !~ $2 AND h.line !~ $4 AND h.line NOT LIKE 'after/%' AND h.line !~ $5)::int \
             FROM holding h WHERE h.line IS NOT NULL AND h.known < $1 AND h.others < $3) \
         SELECT line FROM holding \
         WHERE line ~ $2 AND known < $1 OR line ~ $4 OR line ~ $5 \
            OR line !~ $2 AND line !~ $4 AND line !~ $5 AND line NOT LIKE 'after/%' AND others = 0",
    )
    .bind(i64::from(limit))
    .bind(KNOWN)
    .bind(UNKNOWN_MAX)
    .bind(SHUT)
    .bind(KEYED)
    .fetch_all(connection)
    .await;
    let found = found.map_err(|error| StoreError::from_sqlx(doing, error))?;
    let mut holding = Holding::default();
    for line in found {
        match line.parse() {
            Ok(Line::Pause(pause)) => holding.pauses.push(pause),
            Ok(Line::Breaker(breaker)) => holding.breakers.push(breaker),
            Ok(Line::Key(tool, _)) => {
                if holding.keyed.last() != Some(&tool) {
                    holding.keyed.push(tool);
                }
            }
            // The query leaves them out.
            Ok(Line::After(_)) => {}
            Ok(line) => holding.lines.push(line),
            Err(_of_a_newer_release) => holding.unknown = Some(line),
        }
    }
    Ok(holding)
}

/// The tenants with calls in this line, at most `limit`, in the order of their names: from the first after `after` to the end,
/// then from the beginning.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn tenants(
    connection: &mut PgConnection,
    line: &Line,
    after: Option<&Label>,
    limit: usize,
) -> Result<Vec<Label>, StoreError> {
    let doing = "look who waits in a line";
    // The same walk twice: behind the name, and from the beginning up to it.
    let found: Result<Vec<String>, _> = sqlx::query_scalar(
        "WITH RECURSIVE behind AS ( \
             (SELECT tenant, 1 AS place FROM toolfleet.open_calls \
              WHERE held AND line = $1 AND tenant > $2 ORDER BY tenant LIMIT 1) \
             UNION ALL \
             SELECT (SELECT o.tenant FROM toolfleet.open_calls o \
                     WHERE o.held AND o.line = $1 AND o.tenant > b.tenant ORDER BY o.tenant LIMIT 1), b.place + 1 \
             FROM behind b WHERE b.tenant IS NOT NULL AND b.place < $3), \
         before AS ( \
             (SELECT tenant, 1 AS place FROM toolfleet.open_calls \
              WHERE held AND line = $1 AND tenant <= $2 ORDER BY tenant LIMIT 1) \
             UNION ALL \
             SELECT (SELECT o.tenant FROM toolfleet.open_calls o \
                     WHERE o.held AND o.line = $1 AND o.tenant > b.tenant AND o.tenant <= $2 ORDER BY o.tenant LIMIT 1), \
                    b.place + 1 \
             FROM before b WHERE b.tenant IS NOT NULL AND b.place < $3) \
         SELECT tenant FROM ( \
             SELECT 0 AS round, place, tenant FROM behind UNION ALL SELECT 1, place, tenant FROM before) waiting \
         WHERE tenant IS NOT NULL ORDER BY round, place LIMIT $3",
    )
    .bind(line.to_string())
    .bind(after.map_or("", Label::as_str))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX))
    .fetch_all(connection)
    .await;
    let found = found.map_err(|error| StoreError::from_sqlx(doing, error))?;
    let tenants = found.iter().map(|tenant| tenant.parse());
    tenants
        .collect::<Result<_, _>>()
        .map_err(|error| StoreError::unreadable(doing, error))
}

/// Releases as many calls of each tenant in the line as its share.
///
/// Own autocommit statement; guards: held and queued; rows that another dispatcher is releasing are skipped; safe to repeat. It
/// is no move, so the revision stays.
///
/// If this process dies before it publishes them, [`super::walk::step`] finds them by their age, which counts from the release.
///
/// # Errors
///
/// Postgres does not answer: they may have been released.
pub async fn release(
    connection: &mut PgConnection,
    line: &Line,
    turn: &[(Label, usize)],
) -> Result<Vec<Released>, StoreError> {
    let of_line = |(tenant, share): &(Label, usize)| (line.clone(), tenant.clone(), *share);
    let turn: Vec<_> = turn.iter().map(of_line).collect();
    release_of_lines(connection, &turn).await
}

/// The same of several lines: so many of each tenant in each of them.
///
/// # Errors
///
/// As [`release`].
pub async fn release_of_lines(
    connection: &mut PgConnection,
    turn: &[(Line, Label, usize)],
) -> Result<Vec<Released>, StoreError> {
    let doing = "release held calls";
    let lines: Vec<String> = turn.iter().map(|(line, _, _)| line.to_string()).collect();
    let tenants: Vec<&str> = turn.iter().map(|(_, tenant, _)| tenant.as_str()).collect();
    let share = |(_, _, share): &(Line, Label, usize)| i64::try_from(*share).unwrap_or(i64::MAX);
    let behind = |priority| penalty(priority).as_secs_f64();
    let rows = sqlx::query(RELEASE.as_str())
        .bind(i32::try_from(Pointer::ARGS_INLINE_MAX).unwrap_or(i32::MAX))
        .bind(lines)
        .bind(tenants)
        .bind(turn.iter().map(share).collect::<Vec<_>>())
        .bind(behind(Priority::High))
        .bind(behind(Priority::Normal))
        .bind(behind(Priority::Low))
        .fetch_all(connection)
        .await
        .map_err(|error| StoreError::from_sqlx(doing, error))?;
    read_all(doing, &rows, |row| {
        Ok(Released {
            call: publishable(row)?,
            held_ms: u64::try_from(row.try_get::<i64, _>("held_ms")?).unwrap_or(0),
        })
    })
}

/// The slots of each queue's live workers, divided as the workers divide them.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn slots(pool: &PgPool) -> Result<Vec<(QueueName, u64)>, StoreError> {
    let doing = "count the slots of live workers";
    let rows: Result<Vec<(String, i64)>, _> = listen(sqlx::query_as(
        "SELECT queue, sum(ceil(w.concurrency::float8 / greatest(cardinality(w.queues), 1)))::bigint \
         FROM toolfleet.worker_processes w CROSS JOIN LATERAL unnest(w.queues) AS queue \
         WHERE w.state = 'live' GROUP BY queue",
    )
    .fetch_all(pool)).await;
    let rows = rows.map_err(|error| StoreError::from_sqlx(doing, error))?;
    let read = |(queue, slots): (String, i64)| {
        let queue = queue.parse();
        queue.map(|queue| (queue, u64::try_from(slots).unwrap_or(0)))
    };
    rows.into_iter()
        .map(read)
        .collect::<Result<_, _>>()
        .map_err(|error| StoreError::unreadable(doing, error))
}
