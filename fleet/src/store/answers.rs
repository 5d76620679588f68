//! Kept answers: whether a call at the gate is answered by an equal one, follows it, or fetches the answer itself.
//!
//! `toolfleet.look` decides, under the lock of the answer's row. No answer stands there: the row names the finished call that has it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use sqlx::{PgConnection, Row as _, postgres::PgRow};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::{
    StoreError,
    decision::{DecisionError, decide},
    lane::{Lane, Locks, Reply, Statement},
    session::Postgres,
};
use crate::{
    checkpoint::Checkpoint,
    ending::Copied,
    ids::{CallId, Label},
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looked {
    /// It takes no part: it is a probe, its caller wants none of it, it has begun, or equal calls are runs of their own for now.
    Alone,
    /// It fetches the answer, and equal calls wait for it.
    Leads,
    /// An equal call has an answer that counts.
    Hit(Copied),
    /// This call fetches the answer. It is held in that one's line now, unless it only observes.
    Follows(CallId),
}

/// The statement.
///
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
            let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
            let found = sqlx::query("SELECT * FROM toolfleet.look($1, $2, $3, $4)")
                .bind(rows.iter().map(|row| row.call.0).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| ms(row.ttl)).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.observes).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| ms(row.keep)).collect::<Vec<_>>())
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

fn verdict(row: &PgRow) -> Result<Looked, sqlx::Error> {
    let other = || row.try_get::<Uuid, _>("other").map(CallId);
    Ok(match row.try_get("verdict")? {
        "alone" => Looked::Alone,
        "lead" => Looked::Leads,
        "hit" => Looked::Hit(Copied {
            from: other()?,
            bytes: usize::try_from(row.try_get::<i32, _>("bytes")?).unwrap_or(0),
        }),
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
    lane: Lane<AnswerLook>,
}

impl Looking {
    /// Starts its lane on `tasks`. It has no connection before its first call.
    pub fn start(postgres: &Postgres, tasks: &mut JoinSet<()>) -> Self {
        let (lane, run) = Lane::new(Arc::new(AnswerLook), postgres.clone());
        tasks.spawn(run);
        Self { lane }
    }

    /// What becomes of a call. `None`: its row says it.
    ///
    /// # Errors
    ///
    /// The ledger refused, was not asked or did not answer. Then the call may be held, or be the one that fetches the answer; asking
    /// again tells.
    pub async fn look(&self, row: LookRow) -> Result<Option<Looked>, StoreError> {
        let doing = "look for a kept answer";
        match self.lane.send(row).await {
            Reply::Done(looked) => Ok(Some(looked)),
            Reply::Undecided => Ok(None),
            Reply::Refused(source) => Err(StoreError::Refused { doing, source }),
            Reply::NotSent => Err(StoreError::NotSent { doing }),
            Reply::Unknown => Err(StoreError::Unavailable {
                doing,
                source: sqlx::Error::WorkerCrashed,
            }),
        }
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

/// How many rows one step deletes at most, as the function says.
const PURGE_STEP: u64 = 5_000;
/// The most steps of one purge: twenty million rows.
const PURGE_STEPS_MAX: usize = 4_000;

/// Takes answers away, in steps; returns how many there were, with those that were being fetched. The first step writes the line of
/// the log.
///
/// # Errors
///
/// The ledger refuses, with a sentence that says why, or does not answer: then a part of them may be gone.
pub async fn purge(connection: &mut PgConnection, purge: &Purge<'_>) -> Result<u64, DecisionError> {
    let mut all = 0;
    for step in 0..PURGE_STEPS_MAX {
        let asking = sqlx::query(
            "SELECT toolfleet.purge_answers($1, $2, $3, tenant => $4, in_tenant => $5, goes_on => $6) AS purged",
        )
        .bind(purge.tool)
        .bind(purge.actor)
        .bind(purge.note)
        .bind(purge.tenant)
        .bind(purge.in_tenant.map(Label::as_str))
        .bind(step > 0);
        let purged = decide("purge answers", &mut *connection, asking, |row| {
            Ok(row.try_get::<i64, _>("purged")?.unsigned_abs())
        })
        .await?;
        all += purged;
        if purged < PURGE_STEP {
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
