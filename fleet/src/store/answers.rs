//! Kept answers: whether a call at the gate is answered by an equal one, follows it, or fetches the answer itself.
//!
//! `toolfleet.answer_calls` ends the calls for which an answer counts, those that come together by one statement. What is left
//! `toolfleet.look` decides, under the lock of the answer's row. No answer stands there: the row names the finished call that has it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use serde::Serialize;
use sqlx::{PgConnection, Row as _, postgres::PgRow};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::{
    StoreError,
    columns::Columns,
    complete::{Moved, read_moved},
    decision::{DecisionError, decide},
    lane::{Lane, Locks, Reply, Statement},
    session::Postgres,
};
use crate::{
    checkpoint::Checkpoint,
    ids::{CallId, Label},
    wire::proof::DoneSecret,
};

/// A call at the gate whose tool has a cache.
#[derive(Debug, Clone, Copy)]
pub struct LookRow {
    /// The call.
    pub call: CallId,
    /// How long answers of its tool count.
    pub ttl: Duration,
    /// Whether it goes on whatever is found.
    pub observes: bool,
    /// How old an answer may be that stands in where the tool fails; zero: none does.
    pub keep: Duration,
}

/// What was found.
#[derive(Debug)]
pub enum Looked {
    /// It takes no part: it is a probe, its caller wants none of it, it has begun, or equal calls are runs of their own for now.
    Alone,
    /// It fetches the answer, and equal calls wait for it.
    Leads,
    /// It has ended with the answer of an equal call.
    Answered(Box<Answered>),
    /// An equal call has an answer that counts, and this one only observes.
    Hit,
    /// This call fetches the answer. It is held in that one's line now, unless it only observes.
    Follows(CallId),
}

/// A call that has ended with the answer of an equal one.
#[derive(Debug)]
pub struct Answered {
    /// How it has moved.
    pub moved: Moved,
    /// With what that is proven to the dispatcher that accepted it.
    pub secret: Option<DoneSecret>,
    /// What its caller gets of the answer, JSON text; `None` for much: the row has it.
    pub shown: Option<String>,
}

/// Own autocommit statement; safe to repeat, but that an ending is told once. A row that does not come back has no answer that
/// counts, is not queued, is held, has begun, or is locked: none is waited for.
#[derive(Debug)]
pub struct AnswerCalls<const BYTES_MAX: usize> {
    /// Who ends calls, in the history.
    actor: String,
}

/// Answers of this size are given many at a time; larger ones in a lane of their own, where few fit into a statement.
const SMALL: usize = 16 * 1024;
/// The largest answer that is kept, as `toolfleet.look` has it.
const LARGE: usize = 256 * 1024;

impl<const BYTES_MAX: usize> Statement for AnswerCalls<BYTES_MAX> {
    type Row = LookRow;
    type Answer = Answered;
    type Key = CallId;

    const NAME: &'static str = "answer";
    const SENT: Option<Checkpoint> = None;

    fn key(row: &LookRow) -> CallId {
        row.call
    }

    /// Nobody knows before how large the answers are. Of small ones a statement copies 8 MiB at most, of large ones 1 MiB.
    fn weight(_row: &LookRow) -> usize {
        if BYTES_MAX > SMALL { BYTES_MAX } else { 2_048 }
    }

    fn run<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        rows: &'a [LookRow],
        _locks: Locks,
    ) -> BoxFuture<'a, Result<Vec<Option<Answered>>, sqlx::Error>> {
        Box::pin(async move {
            let found = sqlx::query("SELECT * FROM toolfleet.answer_calls($1, $2, $3, $4, $5)")
                .bind(ids(rows))
                .bind(ttls(rows))
                .bind(keeps(rows))
                .bind(i32::try_from(BYTES_MAX).unwrap_or(i32::MAX))
                .bind(&self.actor)
                .fetch_all(connection)
                .await?;
            let mut answered = HashMap::with_capacity(found.len());
            for row in &found {
                let mut columns = Columns::of(row);
                let call = CallId(columns.next()?);
                let ended = Answered {
                    moved: read_moved(columns)?,
                    secret: row.try_get::<Option<_>, _>("done_secret")?.map(DoneSecret),
                    shown: row.try_get("shown")?,
                };
                answered.insert(call, ended);
            }
            Ok(rows.iter().map(|row| answered.remove(&row.call)).collect())
        })
    }
}

/// Own autocommit statement; safe to repeat. A row that does not come back is not queued, is held, or is locked: read the call. Its
/// locks are those of `toolfleet.look`.
#[derive(Debug)]
pub struct AnswerLook;

impl Statement for AnswerLook {
    type Row = LookRow;
    type Answer = Looked;
    type Key = CallId;

    const NAME: &'static str = "look";
    const SENT: Option<Checkpoint> = None;

    fn key(row: &LookRow) -> CallId {
        row.call
    }

    fn weight(_row: &LookRow) -> usize {
        64
    }

    fn run<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        rows: &'a [LookRow],
        // It waits for no row but one that another look is about to leave.
        _locks: Locks,
    ) -> BoxFuture<'a, Result<Vec<Option<Looked>>, sqlx::Error>> {
        Box::pin(async move {
            let found = sqlx::query("SELECT * FROM toolfleet.look($1, $2, $3, $4)")
                .bind(ids(rows))
                .bind(ttls(rows))
                .bind(rows.iter().map(|row| row.observes).collect::<Vec<_>>())
                .bind(keeps(rows))
                .fetch_all(connection)
                .await?;
            let mut looked = HashMap::with_capacity(found.len());
            for row in &found {
                looked.insert(CallId(row.try_get("call_id")?), verdict(row)?);
            }
            Ok(rows.iter().map(|row| looked.remove(&row.call)).collect())
        })
    }
}

fn ids(rows: &[LookRow]) -> Vec<Uuid> {
    rows.iter().map(|row| row.call.0).collect()
}

fn ttls(rows: &[LookRow]) -> Vec<i64> {
    rows.iter().map(|row| millis(row.ttl)).collect()
}

fn keeps(rows: &[LookRow]) -> Vec<i64> {
    rows.iter().map(|row| millis(row.keep)).collect()
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn verdict(row: &PgRow) -> Result<Looked, sqlx::Error> {
    let other = || row.try_get::<Uuid, _>("other").map(CallId);
    Ok(match row.try_get("verdict")? {
        "alone" => Looked::Alone,
        "lead" => Looked::Leads,
        "hit" => Looked::Hit,
        "follow" => Looked::Follows(other()?),
        unknown => {
            let error = format!("{unknown:?} is not a known verdict");
            return Err(sqlx::Error::Decode(error.into()));
        }
    })
}

/// Looks for calls at the gate. Used by workers.
#[derive(Debug, Clone)]
pub struct Looking {
    /// For calls that are answered: they do not wait for the looks that decide who fetches an answer.
    small: Lane<AnswerCalls<SMALL>>,
    large: Lane<AnswerCalls<LARGE>>,
    lane: Lane<AnswerLook>,
}

impl Looking {
    /// Starts its lanes on `tasks`; `actor` ends calls. They have no connection before their first call.
    pub fn start(actor: String, postgres: &Postgres, tasks: &mut JoinSet<()>) -> Self {
        let for_small = AnswerCalls {
            actor: actor.clone(),
        };
        let (small, run_small) = Lane::new(Arc::new(for_small), postgres.clone());
        let (large, run_large) = Lane::new(Arc::new(AnswerCalls { actor }), postgres.clone());
        let (lane, run) = Lane::new(Arc::new(AnswerLook), postgres.clone());
        tasks.spawn(run_small);
        tasks.spawn(run_large);
        tasks.spawn(run);
        Self { small, large, lane }
    }

    /// What becomes of a call. `None`: its row says it.
    ///
    /// # Errors
    ///
    /// The ledger refused, was not asked or did not answer. Then the call may have ended, be held, or be the one that fetches the answer;
    /// asking again tells.
    pub async fn look(&self, row: LookRow) -> Result<Option<Looked>, StoreError> {
        if !row.observes
            && let Some(answered) = told(self.small.send(row).await)?
        {
            return Ok(Some(Looked::Answered(Box::new(answered))));
        }
        match told(self.lane.send(row).await)? {
            // A large one, or its leader has ended between the two.
            Some(Looked::Hit) if !row.observes => {
                let answered = told(self.large.send(row).await)?;
                Ok(answered.map(|answered| Looked::Answered(Box::new(answered))))
            }
            looked => Ok(looked),
        }
    }
}

fn told<T>(reply: Reply<T>) -> Result<Option<T>, StoreError> {
    let doing = "look for a kept answer";
    match reply {
        Reply::Done(answer) => Ok(Some(answer)),
        Reply::Undecided => Ok(None),
        Reply::Refused(source) => Err(StoreError::Refused { doing, source }),
        Reply::NotSent => Err(StoreError::NotSent { doing }),
        Reply::Unknown => Err(StoreError::no_answer(doing)),
    }
}

/// The answers that an operator takes away.
#[derive(Debug, Clone, Copy)]
pub struct Purge<'a> {
    /// Of this tool.
    pub tool: &'a str,
    /// Of this tenant alone.
    pub tenant: Option<&'a str>,
    /// Who says so.
    pub actor: &'a str,
    /// Why.
    pub note: &'a str,
    /// On whose subject it is said; `None`: by an operator of the fleet.
    pub in_tenant: Option<&'a Label>,
}

/// What a purge has taken away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Purged {
    /// Answers that an equal call would have been given.
    pub answers: u64,
    /// Calls that fetch one, which nobody else is given now.
    pub fetching: u64,
    /// Answers whose time was over and that could have stood in where the tool fails.
    pub old: u64,
}

/// How many rows one step deletes at most, as the function says.
const PURGE_STEP: u64 = 1_000;
/// The most steps of one purge: twenty million rows.
const PURGE_STEPS_MAX: usize = 20_000;

/// Takes answers away, in steps. The first step writes the line of the log.
///
/// # Errors
///
/// The ledger refuses, with a sentence that says why, or does not answer: then a part of them may be gone.
pub async fn purge(
    connection: &mut PgConnection,
    purge: &Purge<'_>,
) -> Result<Purged, DecisionError> {
    let mut all = Purged::default();
    for step in 0..PURGE_STEPS_MAX {
        let asking = sqlx::query(
            "SELECT * FROM toolfleet.purge_answers($1, $2, $3, tenant => $4, in_tenant => $5, goes_on => $6)",
        )
        .bind(purge.tool)
        .bind(purge.actor)
        .bind(purge.note)
        .bind(purge.tenant)
        .bind(purge.in_tenant.map(Label::as_str))
        .bind(step > 0);
        let (taken, purged) = decide("purge answers", &mut *connection, asking, |row| {
            let count =
                |column| Ok::<_, sqlx::Error>(row.try_get::<i64, _>(column)?.unsigned_abs());
            let purged = Purged {
                answers: count("answers")?,
                fetching: count("fetching")?,
                old: count("old")?,
            };
            Ok((count("taken")?, purged))
        })
        .await?;
        all.answers += purged.answers;
        all.fetching += purged.fetching;
        all.old += purged.old;
        if taken < PURGE_STEP {
            break;
        }
    }
    Ok(all)
}

/// How many rows one statement drops at most, as the function says.
const DROP_STEP: i64 = 5_000;

/// Drops rows that say nothing any more; whether there may be more of them.
///
/// Own autocommit statement; safe to repeat.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn drop_old(connection: &mut PgConnection) -> Result<bool, StoreError> {
    let dropped: i64 = sqlx::query_scalar("SELECT toolfleet.drop_old_answers()")
        .fetch_one(connection)
        .await
        .map_err(|error| StoreError::from_sqlx("drop old answers", error))?;
    Ok(dropped >= DROP_STEP)
}
