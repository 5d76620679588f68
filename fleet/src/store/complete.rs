//! Complete: ends an attempt, or a call that is still queued. One statement; the ending is data.

use std::{collections::HashMap, sync::LazyLock};

use futures_util::future::BoxFuture;
use sqlx::{PgConnection, postgres::PgRow};

use super::{
    answered,
    columns::{Columns, sparse},
    lane::{Locks, Statement},
    statement::put_together,
};
use crate::{
    call::EffectKnown,
    checkpoint::Checkpoint,
    ids::{CallId, DispatcherId},
    wire::envelope::Timing,
};
pub use crate::{
    ending::{Decision, EndedAttempt, Ending, EndingKind, Guard, Moved},
    taken_back::AttemptCost,
};

/// The statement.
///
/// Own autocommit statement; guard: [`Guard`]. A row that does not come back did not move: read the call, for it may have moved
/// before, even by this very ending. Safe to repeat. Endings that are not plain lock their rows in the order of their ids.
#[derive(Debug)]
pub struct Complete;

/// What both statements that end calls have in common.
const PARTS: [(&str, &str); 4] = [
    ("finish", include_str!("sql/finish.sql")),
    ("moved", include_str!("sql/moved.sql")),
    (
        "queued ms",
        "(date_part('epoch', coalesce(first_started_at, now()) - accepted_at) * 1000)::bigint",
    ),
    (
        "run ms",
        "(date_part('epoch', now() - coalesce(first_started_at, now())) * 1000)::bigint",
    ),
];

/// Only the row says in which line a call waited to its end, and it is gone then.
const HELD_DETAILS: &str = "CASE WHEN o.held THEN json_build_object('line', o.line) END";

static END_RUNNING: LazyLock<String> = LazyLock::new(|| {
    let own = [("preview", "NULL::text"), ("details", HELD_DETAILS)];
    with_parts(include_str!("sql/end_running.sql"), own)
});
static WAITING: LazyLock<String> = LazyLock::new(|| moving(""));
static SKIPPING: LazyLock<String> = LazyLock::new(|| moving("SKIP LOCKED"));

fn moving(locks: &str) -> String {
    let statement = put_together(include_str!("sql/complete.sql"), &[("locks", locks)]);
    with_parts(
        &statement,
        [("preview", "m.preview"), ("details", HELD_DETAILS)],
    )
}

fn with_parts(statement: &str, own: [(&str, &str); 2]) -> String {
    put_together(&put_together(statement, &PARTS), &own)
}

/// The columns that only some kinds of ending have.
#[derive(Default)]
struct Sent<'a> {
    /// How the call ended.
    end: Option<&'a Decision>,
    error: Option<&'a str>,
    pause_ms: Option<i64>,
    lost: i32,
    unspent: i32,
}

impl<'a> Sent<'a> {
    fn of(ending: &'a Ending) -> Self {
        match &ending.kind {
            EndingKind::End(end) => Sent {
                end: Some(end),
                error: end.error.as_deref(),
                ..Sent::default()
            },
            EndingKind::Again { pause_ms, cost } => Sent {
                pause_ms: Some(*pause_ms),
                lost: i32::from(*cost == AttemptCost::Lost),
                unspent: i32::from(*cost != AttemptCost::Spent),
                error: ending
                    .attempt
                    .as_ref()
                    .and_then(|attempt| attempt.error.as_deref()),
                ..Sent::default()
            },
            EndingKind::Doubt(doubt) => Sent {
                error: doubt.error.as_deref(),
                ..Sent::default()
            },
        }
    }

    fn result(&self) -> Option<&'a str> {
        self.end?.result.as_deref()
    }

    fn preview(&self) -> Option<&'a str> {
        self.end?.preview.as_deref()
    }

    fn degraded(&self) -> Option<&'a str> {
        self.end?.degraded.as_deref()
    }
}

/// One word of how each call ended.
fn words(sent: &[Sent<'_>], word: impl Fn(&Decision) -> &'static str) -> Vec<Option<&'static str>> {
    sent.iter().map(|sent| sent.end.map(&word)).collect()
}

impl Statement for Complete {
    type Row = Ending;
    type Answer = Moved;
    type Key = CallId;

    const NAME: &'static str = "complete";
    const SENT: Option<Checkpoint> = Some(Checkpoint::CompleteSent);

    fn key(row: &Ending) -> CallId {
        row.call_id
    }

    fn weight(row: &Ending) -> usize {
        let sent = Sent::of(row);
        256 + [sent.result(), sent.preview(), sent.error, sent.degraded()]
            .into_iter()
            .flatten()
            .map(str::len)
            .sum::<usize>()
    }

    fn run<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        rows: &'a [Ending],
        locks: Locks,
    ) -> BoxFuture<'a, Result<Vec<Option<Moved>>, sqlx::Error>> {
        Box::pin(async move {
            let mut ended = HashMap::with_capacity(rows.len());
            if locks == Locks::Wait && rows.iter().all(ends_running) {
                end_running(connection, rows, &mut ended).await?;
            }
            // All other endings, and endings of calls that do not run any more, for the same evidence may settle a doubt.
            let left = rows.iter().filter(|row| !ended.contains_key(&row.call_id));
            let left: Vec<&Ending> = left.collect();
            if !left.is_empty() {
                let moving = move_any(connection, &left, locks, &mut ended).await;
                match moving {
                    Err(error) if answered(&error) && left.len() < rows.len() => {
                        tracing::debug!(%error, "what was left of a batch is looked at again");
                    }
                    moved => moved?,
                }
            }
            Ok(rows.iter().map(|row| ended.remove(&row.call_id)).collect())
        })
    }
}

type AllMoved = HashMap<CallId, Moved>;

/// Whether it is of the common kind: an attempt that ran, an outcome that does not say that nothing happened, and an answer that
/// callers get as it is.
const fn ends_running(row: &Ending) -> bool {
    let EndingKind::End(Decision {
        effect, preview, ..
    }) = &row.kind
    else {
        return false;
    };
    !matches!(effect, EffectKnown::NotApplied)
        && preview.is_none()
        && matches!(row.guard, Guard::Attempt(_))
        && row.attempt.is_some()
}

/// Ends the calls among them that still run. Takes less than half the time of the general statement.
async fn end_running(
    connection: &mut PgConnection,
    rows: &[Ending],
    ended: &mut AllMoved,
) -> Result<(), sqlx::Error> {
    let sent: Vec<Sent<'_>> = rows.iter().map(Sent::of).collect();
    let attempts = rows.iter().map(|row| match row.guard {
        Guard::Attempt(attempt) => Some(attempt.0),
        Guard::Queued(_) => None,
    });
    let outcomes = rows.iter().map(|row| row.attempt.as_ref());
    let outcomes = outcomes.map(|attempt| attempt.map(|attempt| attempt.outcome.as_str()));
    let moved = sqlx::query(END_RUNNING.as_str())
        .bind(rows.iter().map(|r| r.call_id.0).collect::<Vec<_>>())
        .bind(attempts.collect::<Vec<_>>())
        .bind(words(&sent, |end| end.state.as_str()))
        .bind(words(&sent, |end| end.outcome.as_str()))
        .bind(words(&sent, |end| end.source.as_str()))
        .bind(words(&sent, |end| end.effect.as_str()))
        .bind(sparse(sent.iter().map(Sent::result)))
        .bind(sparse(sent.iter().map(|s| s.error)))
        .bind(outcomes.collect::<Vec<_>>())
        .bind(rows.iter().map(|r| r.actor.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|r| r.reason.as_str()).collect::<Vec<_>>())
        .bind(sparse(sent.iter().map(Sent::degraded)))
        .fetch_all(connection)
        .await?;
    read_moves(&moved, ended)
}

/// Moves any of them, in whatever state.
async fn move_any(
    connection: &mut PgConnection,
    rows: &[&Ending],
    locks: Locks,
    ended: &mut AllMoved,
) -> Result<(), sqlx::Error> {
    let sql = match locks {
        Locks::Wait => WAITING.as_str(),
        Locks::Skip => SKIPPING.as_str(),
    };
    let sent: Vec<Sent<'_>> = rows.iter().copied().map(Sent::of).collect();
    let attempt = |of: fn(&EndedAttempt) -> Option<&str>| -> Vec<Option<&str>> {
        let attempts = rows.iter().map(|row| row.attempt.as_ref());
        attempts.map(|attempt| attempt.and_then(of)).collect()
    };
    let (attempts, revs): (Vec<_>, Vec<_>) = rows
        .iter()
        .map(|row| match row.guard {
            Guard::Attempt(attempt) => (Some(attempt.0), None),
            Guard::Queued(rev) => (None, Some(rev)),
        })
        .unzip();
    let stopped = rows.iter().map(|row| row.attempt.as_ref());
    let stopped = stopped.map(|attempt| attempt.map(|attempt| attempt.has_stopped));
    let moved = sqlx::query(sql)
        .bind(rows.iter().map(|r| r.call_id.0).collect::<Vec<_>>())
        .bind(attempts)
        .bind(revs)
        .bind(rows.iter().map(|r| r.kind.word()).collect::<Vec<_>>())
        .bind(words(&sent, |end| end.state.as_str()))
        .bind(words(&sent, |end| end.outcome.as_str()))
        .bind(words(&sent, |end| end.source.as_str()))
        .bind(words(&sent, |end| end.effect.as_str()))
        .bind(sent.iter().map(Sent::result).collect::<Vec<_>>())
        .bind(sent.iter().map(|s| s.error).collect::<Vec<_>>())
        .bind(sent.iter().map(|s| s.pause_ms).collect::<Vec<_>>())
        .bind(sent.iter().map(|s| s.lost).collect::<Vec<_>>())
        .bind(attempt(|a| Some(a.outcome.as_str())))
        .bind(attempt(|a| Some(a.effect.as_str())))
        .bind(attempt(|a| a.error.as_deref()))
        .bind(rows.iter().map(|r| r.actor.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|r| r.reason.as_str()).collect::<Vec<_>>())
        .bind(sent.iter().map(|s| s.unspent).collect::<Vec<_>>())
        .bind(stopped.collect::<Vec<_>>())
        .bind(sparse(sent.iter().map(Sent::degraded)))
        .bind(sparse(sent.iter().map(Sent::preview)))
        .fetch_all(connection)
        .await?;
    read_moves(&moved, ended)
}

fn read_moves(rows: &[PgRow], ended: &mut AllMoved) -> Result<(), sqlx::Error> {
    for row in rows {
        let mut columns = Columns::of(row);
        ended.insert(CallId(columns.next()?), read_moved(columns)?);
    }
    Ok(())
}

/// The columns of `sql/moved.sql` after the call, in this order.
pub(super) fn read_moved(mut columns: Columns<'_>) -> Result<Moved, sqlx::Error> {
    Ok(Moved {
        rev: columns.next()?,
        moved_at: columns.next()?,
        state: columns.parsed()?,
        tool: columns.next()?,
        tool_version: columns.next()?,
        tenant: columns.parsed()?,
        session: columns.parsed_if_any()?,
        dispatcher: DispatcherId(columns.next()?),
        attempts: columns.next()?,
        coercions: columns.next()?,
        timing: Timing {
            queued_ms: columns.next()?,
            run_ms: columns.next()?,
        },
    })
}
