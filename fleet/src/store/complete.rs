//! Complete: whatever ends an attempt, or ends a call that is still queued. One statement, the ending is data.

use std::collections::HashMap;

use futures_util::future::BoxFuture;
use sqlx::{AssertSqlSafe, PgConnection, postgres::PgRow};
use time::OffsetDateTime;

use super::{
    answered,
    columns::{Columns, sparse},
    lane::{Locks, Statement},
};
pub use crate::taken_back::AttemptCost;
use crate::{
    call::{CallOutcome, EffectKnown, Source, State},
    checkpoint::Checkpoint,
    ids::{AttemptId, CallId, DispatcherId, Label},
    outcome::OutcomeWord,
    wire::{
        error::ErrorBody,
        event::{Event, Happening},
    },
};

/// What is to become of a call.
#[derive(Debug, Clone)]
pub struct Ending {
    /// The call.
    pub call_id: CallId,
    /// What must still hold for it to happen.
    pub guard: Guard,
    /// What happens.
    pub kind: EndingKind,
    /// How the attempt ended, where one did.
    pub attempt: Option<EndedAttempt>,
    /// Who says so: `worker <id>`, `sweep`, …
    pub actor: String,
    /// Why, one word or a short clause.
    pub reason: String,
}

/// What must still hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// This attempt is the call's, and it is running or in doubt because of it.
    Attempt(AttemptId),
    /// The call is queued and nothing has moved it since this revision.
    Queued(i32),
}

/// What happens to the call.
#[derive(Debug, Clone)]
pub enum EndingKind {
    /// It is over.
    End {
        /// The terminal state.
        state: State,
        /// What it came to.
        outcome: CallOutcome,
        /// Where the answer comes from.
        source: Source,
        /// What is known about the world.
        effect: EffectKnown,
        /// The tool's answer, JSON text.
        result: Option<String>,
        /// The error as callers will read it, JSON text.
        error: Option<String>,
    },
    /// It waits for another attempt.
    Again {
        /// How long.
        pause_ms: i64,
        /// Who pays for the attempt that ended.
        cost: AttemptCost,
    },
    /// Nobody knows whether the effect happened.
    Doubt {
        /// The error as callers will read it, JSON text.
        error: String,
    },
}

impl EndingKind {
    /// The word for it in the statement.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::End { .. } => "end",
            Self::Again { .. } => "again",
            Self::Doubt { .. } => "doubt",
        }
    }
}

/// How an attempt ended.
#[derive(Debug, Clone)]
pub struct EndedAttempt {
    /// The executor's word.
    pub outcome: OutcomeWord,
    /// What is known about the world.
    pub effect: EffectKnown,
    /// The failure, JSON text.
    pub error: Option<String>,
    /// Whether its worker has seen it end: nothing that was started for it can act any more.
    pub over: bool,
}

/// What the ledger says of a call that moved.
#[derive(Debug, Clone)]
pub struct Ended {
    /// How often it has moved, this time included.
    pub rev: i32,
    /// When it moved.
    pub moved_at: OffsetDateTime,
    /// Where it stands now.
    pub state: State,
    /// Its tool.
    pub tool: String,
    /// The version it was accepted with.
    pub tool_version: i32,
    /// Who asked.
    pub tenant: Label,
    /// The caller's session.
    pub session: Option<Label>,
    /// Who accepted it.
    pub dispatcher: DispatcherId,
    /// How many attempts were made.
    pub attempts: i32,
    /// What was changed in the arguments, JSON text.
    pub coercions: Option<String>,
    /// From acceptance to the first attempt.
    pub queued_ms: i64,
    /// From there to now.
    pub run_ms: i64,
}

impl Ended {
    /// The event that tells of it, if the call is decided by it.
    pub fn finished(&self, call: CallId, kind: &EndingKind) -> Option<Event> {
        let (outcome, error) = match kind {
            EndingKind::End { outcome, error, .. } => (*outcome, error.as_deref()),
            EndingKind::Doubt { error } => (CallOutcome::Unknown, Some(error.as_str())),
            EndingKind::Again { .. } => return None,
        };
        let error: Option<ErrorBody> = error.and_then(|error| serde_json::from_str(error).ok());
        Some(Event {
            call_id: call,
            sequence: Event::sequence(self.rev, 0),
            at: self.moved_at,
            what: Happening::Finished {
                state: self.state,
                outcome,
                attempts: self.attempts,
                code: error.map(|error| error.code),
            },
        })
    }
}

/// The statement.
///
/// Own autocommit statement; guard: [`Guard`]; a row that does not come back did not move (look again: it
/// may have moved before, even by this very ending); safe to repeat; locks its rows in the order of their ids.
#[derive(Debug)]
pub struct Complete {
    waiting: String,
    skipping: String,
}

impl Default for Complete {
    fn default() -> Self {
        let sql = include_str!("sql/complete.sql");
        Self {
            waiting: sql.replace("/* locks */", ""),
            skipping: sql.replace("/* locks */", "SKIP LOCKED"),
        }
    }
}

/// The columns that only some kinds of ending have.
#[derive(Default)]
struct Sent<'a> {
    state: Option<&'a str>,
    outcome: Option<&'a str>,
    source: Option<&'a str>,
    effect: Option<&'a str>,
    result: Option<&'a str>,
    error: Option<&'a str>,
    pause_ms: Option<i64>,
    lost: i32,
    unspent: i32,
}

fn columns(ending: &Ending) -> Sent<'_> {
    match &ending.kind {
        EndingKind::End {
            state,
            outcome,
            source,
            effect,
            result,
            error,
        } => Sent {
            state: Some(state.as_str()),
            outcome: Some(outcome.as_str()),
            source: Some(source.as_str()),
            effect: Some(effect.as_str()),
            result: result.as_deref(),
            error: error.as_deref(),
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
        EndingKind::Doubt { error } => Sent {
            error: Some(error),
            ..Sent::default()
        },
    }
}

impl Statement for Complete {
    type Row = Ending;
    type Answer = Ended;
    type Key = CallId;

    const NAME: &'static str = "complete";
    const SENT: Option<Checkpoint> = Some(Checkpoint::CompleteSent);

    fn key(row: &Ending) -> CallId {
        row.call_id
    }

    fn weight(row: &Ending) -> usize {
        let columns = columns(row);
        256 + columns.result.map_or(0, str::len) + columns.error.map_or(0, str::len)
    }

    fn run<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        rows: &'a [Ending],
        locks: Locks,
    ) -> BoxFuture<'a, Result<Vec<Option<Ended>>, sqlx::Error>> {
        Box::pin(async move {
            let mut ended = HashMap::with_capacity(rows.len());
            if locks == Locks::Wait && rows.iter().all(ends_running) {
                end_running(connection, rows, &mut ended).await?;
            }
            // Everything else; and what does not run any more, for the same evidence settles a doubt.
            let left = rows.iter().filter(|row| !ended.contains_key(&row.call_id));
            let left: Vec<&Ending> = left.collect();
            if !left.is_empty() {
                let moving = self.move_any(connection, &left, locks, &mut ended).await;
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

type Moved = HashMap<CallId, Ended>;

/// Whether it is what most endings are: of an attempt that ran, and that does not say that nothing happened.
const fn ends_running(row: &Ending) -> bool {
    let nothing_happened = matches!(
        row.kind,
        EndingKind::End {
            effect: EffectKnown::NotApplied,
            ..
        }
    );
    matches!(row.kind, EndingKind::End { .. })
        && !nothing_happened
        && matches!(row.guard, Guard::Attempt(_))
        && row.attempt.is_some()
}

/// Ends those of them that still run, in less than half the time of the statement that can do everything.
async fn end_running(
    connection: &mut PgConnection,
    rows: &[Ending],
    ended: &mut Moved,
) -> Result<(), sqlx::Error> {
    let columns: Vec<Sent<'_>> = rows.iter().map(columns).collect();
    let attempts = rows.iter().map(|row| match row.guard {
        Guard::Attempt(attempt) => Some(attempt.0),
        Guard::Queued(_) => None,
    });
    let outcomes = rows.iter().map(|row| row.attempt.as_ref());
    let outcomes = outcomes.map(|attempt| attempt.map(|attempt| attempt.outcome.as_str()));
    let moved = sqlx::query(include_str!("sql/end_running.sql"))
        .bind(rows.iter().map(|r| r.call_id.0).collect::<Vec<_>>())
        .bind(attempts.collect::<Vec<_>>())
        .bind(columns.iter().map(|c| c.state).collect::<Vec<_>>())
        .bind(columns.iter().map(|c| c.outcome).collect::<Vec<_>>())
        .bind(columns.iter().map(|c| c.source).collect::<Vec<_>>())
        .bind(columns.iter().map(|c| c.effect).collect::<Vec<_>>())
        .bind(sparse(columns.iter().map(|c| c.result)))
        .bind(sparse(columns.iter().map(|c| c.error)))
        .bind(outcomes.collect::<Vec<_>>())
        .bind(rows.iter().map(|r| r.actor.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|r| r.reason.as_str()).collect::<Vec<_>>())
        .fetch_all(connection)
        .await?;
    read_moved(&moved, ended)
}

impl Complete {
    /// Moves any of them, however it stands.
    async fn move_any(
        &self,
        connection: &mut PgConnection,
        rows: &[&Ending],
        locks: Locks,
        ended: &mut Moved,
    ) -> Result<(), sqlx::Error> {
        let sql = match locks {
            Locks::Wait => &self.waiting,
            Locks::Skip => &self.skipping,
        };
        let columns: Vec<Sent<'_>> = rows.iter().copied().map(columns).collect();
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
        let over = rows.iter().map(|row| row.attempt.as_ref());
        let over = over.map(|attempt| attempt.map(|attempt| attempt.over));
        // The text is one of two constants made from a file of this crate.
        let moved = sqlx::query(AssertSqlSafe(sql.as_str()))
            .bind(rows.iter().map(|r| r.call_id.0).collect::<Vec<_>>())
            .bind(attempts)
            .bind(revs)
            .bind(rows.iter().map(|r| r.kind.word()).collect::<Vec<_>>())
            .bind(columns.iter().map(|c| c.state).collect::<Vec<_>>())
            .bind(columns.iter().map(|c| c.outcome).collect::<Vec<_>>())
            .bind(columns.iter().map(|c| c.source).collect::<Vec<_>>())
            .bind(columns.iter().map(|c| c.effect).collect::<Vec<_>>())
            .bind(columns.iter().map(|c| c.result).collect::<Vec<_>>())
            .bind(columns.iter().map(|c| c.error).collect::<Vec<_>>())
            .bind(columns.iter().map(|c| c.pause_ms).collect::<Vec<_>>())
            .bind(columns.iter().map(|c| c.lost).collect::<Vec<_>>())
            .bind(attempt(|a| Some(a.outcome.as_str())))
            .bind(attempt(|a| Some(a.effect.as_str())))
            .bind(attempt(|a| a.error.as_deref()))
            .bind(rows.iter().map(|r| r.actor.as_str()).collect::<Vec<_>>())
            .bind(rows.iter().map(|r| r.reason.as_str()).collect::<Vec<_>>())
            .bind(columns.iter().map(|c| c.unspent).collect::<Vec<_>>())
            .bind(over.collect::<Vec<_>>())
            .fetch_all(connection)
            .await?;
        read_moved(&moved, ended)
    }
}

fn read_moved(rows: &[PgRow], ended: &mut Moved) -> Result<(), sqlx::Error> {
    for row in rows {
        let mut columns = Columns::of(row);
        ended.insert(CallId(columns.next()?), read_ended(columns)?);
    }
    Ok(())
}

/// In the order of `sql/complete.sql`, after the call.
pub(super) fn read_ended(mut columns: Columns<'_>) -> Result<Ended, sqlx::Error> {
    Ok(Ended {
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
        queued_ms: columns.next()?,
        run_ms: columns.next()?,
    })
}
