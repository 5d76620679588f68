//! Claim a call for its next attempt: the start mark. After it is committed, and not before, the tool may run.

use futures_util::future::BoxFuture;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use time::OffsetDateTime;
use uuid::Uuid;

use super::lane::{Locks, Statement};
use crate::{
    call::{Effect, Language},
    checkpoint::Checkpoint,
    ids::{AttemptId, CallId, DispatcherId, Label, WorkerId},
    wire::trace::TraceContext,
};

/// One claim to make.
#[derive(Debug, Clone)]
pub struct ClaimRow {
    /// The call.
    pub call_id: CallId,
    /// Made and remembered before the claim is sent.
    pub attempt_id: AttemptId,
    /// How long the attempt may take; the call's own deadline may cut it.
    pub timeout_ms: i64,
}

/// What a claim returns: everything an attempt needs beside its tool and its arguments.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The call.
    pub call_id: CallId,
    /// Which revision of the call the claim is.
    pub rev: i32,
    /// The attempt's number, from 1.
    pub attempt: u32,
    /// How many attempts before it the platform took back or lost: no tool has spent them.
    pub unspent_attempts: u32,
    /// Whether an attempt before it may have had its effect.
    pub effect_unknown: bool,
    /// Whether somebody has asked it to stop since it was claimed: known when the claim had to be read back.
    pub cancel_requested: bool,
    /// What running it again would mean.
    pub effect: Effect,
    /// Its tool.
    pub tool: String,
    /// The version it was accepted with.
    pub tool_version: i32,
    /// Hash of the arguments in the row.
    pub args_hash: Vec<u8>,
    /// How long this attempt may take, from when the claim was *sent*.
    pub timeout_ms: i64,
    /// How long the whole call has left.
    pub remaining_ms: i64,
    /// How long ago its first attempt started.
    pub since_first_start_ms: i64,
    /// When this attempt must have answered.
    pub attempt_until: OffsetDateTime,
    /// When the call was accepted, to measure how long it waited.
    pub queued_ms: i64,
    /// Who asked.
    pub tenant: Label,
    /// The caller's session.
    pub session: Option<Label>,
    /// The caller's run.
    pub run: Option<Label>,
    /// The caller's meta.
    pub meta: Option<String>,
    /// The language of messages.
    pub language: Language,
    /// Who accepted it.
    pub dispatcher: DispatcherId,
    /// The trace the call belongs to.
    pub trace: TraceContext,
}

/// The statement.
///
/// Own autocommit statement; guards: queued, due, in time, not taken back, and this worker alive (its row
/// is locked `FOR KEY SHARE`, so a fence and a claim exclude each other); a row that does not come back was not claimed
/// (look again to learn why); a missing answer must be read back with a row lock before anything runs.
#[derive(Debug)]
pub struct Claim {
    worker: WorkerId,
    waiting: String,
    skipping: String,
}

impl Claim {
    /// Claims for this worker.
    pub fn new(worker: WorkerId) -> Self {
        let sql = include_str!("sql/claim.sql");
        Self {
            worker,
            waiting: sql.replace("/* locks */", ""),
            skipping: sql.replace("/* locks */", "SKIP LOCKED"),
        }
    }
}

impl Statement for Claim {
    type Row = ClaimRow;
    type Answer = Claimed;
    type Key = CallId;

    const NAME: &'static str = "claim";
    const SENT: Option<Checkpoint> = Some(Checkpoint::ClaimSent);

    fn key(row: &ClaimRow) -> CallId {
        row.call_id
    }

    fn weight(_row: &ClaimRow) -> usize {
        64
    }

    fn run<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        rows: &'a [ClaimRow],
        locks: Locks,
    ) -> BoxFuture<'a, Result<Vec<Option<Claimed>>, sqlx::Error>> {
        Box::pin(async move {
            // The text is one of two constants made from a file of this crate.
            let sql = match locks {
                Locks::Wait => &self.waiting,
                Locks::Skip => &self.skipping,
            };
            let decided = sqlx::query(AssertSqlSafe(sql.as_str()))
                .bind(self.worker.0)
                .bind(rows.iter().map(|r| r.call_id.0).collect::<Vec<_>>())
                .bind(rows.iter().map(|r| r.attempt_id.0).collect::<Vec<_>>())
                .bind(rows.iter().map(|r| r.timeout_ms).collect::<Vec<_>>())
                .fetch_all(connection)
                .await?;
            let mut claimed = std::collections::HashMap::with_capacity(decided.len());
            for row in &decided {
                let call = read_claim(row)?;
                claimed.insert(call.call_id, call);
            }
            Ok(rows
                .iter()
                .map(|row| claimed.remove(&row.call_id))
                .collect())
        })
    }
}

/// What a claim returns, from a row with its columns.
pub(super) fn read_claim(row: &sqlx::postgres::PgRow) -> Result<Claimed, sqlx::Error> {
    let label = |name: &str| -> Result<Option<Label>, sqlx::Error> {
        let text: Option<String> = row.try_get(name)?;
        text.map(|text| text.parse())
            .transpose()
            .map_err(|e| sqlx::Error::Decode(Box::new(e)))
    };
    let word = |name: &str| row.try_get::<String, _>(name);
    Ok(Claimed {
        call_id: CallId(row.try_get::<Uuid, _>("call_id")?),
        rev: row.try_get("rev")?,
        attempt: u32::try_from(row.try_get::<i32, _>("attempts")?).unwrap_or(u32::MAX),
        unspent_attempts: u32::try_from(row.try_get::<i32, _>("unspent_attempts")?).unwrap_or(0),
        effect_unknown: row.try_get("effect_unknown")?,
        cancel_requested: row.try_get("cancel_requested")?,
        tool: row.try_get("tool")?,
        effect: word("effect")?
            .parse()
            .map_err(|e| sqlx::Error::Decode(Box::new(e)))?,
        tool_version: row.try_get("tool_version")?,
        args_hash: row.try_get("args_hash")?,
        timeout_ms: row.try_get("attempt_timeout_ms")?,
        remaining_ms: row.try_get("remaining_ms")?,
        since_first_start_ms: row.try_get("since_first_start_ms")?,
        attempt_until: row.try_get("attempt_until")?,
        queued_ms: row.try_get("queued_ms")?,
        tenant: label("tenant")?.ok_or(sqlx::Error::RowNotFound)?,
        session: label("session")?,
        run: label("run")?,
        meta: row.try_get("meta")?,
        language: word("language")?
            .parse()
            .map_err(|e| sqlx::Error::Decode(Box::new(e)))?,
        dispatcher: DispatcherId(row.try_get("dispatcher_id")?),
        trace: TraceContext {
            traceparent: row.try_get("traceparent")?,
            tracestate: row.try_get("tracestate")?,
            baggage: row.try_get("baggage")?,
        },
    })
}

/// Reads back a claim whose answer never came, waiting for whoever still holds the row. `None`: it is not ours.
///
/// Own autocommit statement on a connection that is not the lane's; guard: our attempt id; locks the row until it ends.
///
/// # Errors
///
/// The server's own.
pub async fn read_back(
    connection: &mut PgConnection,
    call: CallId,
    attempt: AttemptId,
) -> Result<Option<Claimed>, sqlx::Error> {
    let row = sqlx::query(include_str!("sql/claim_read_back.sql"))
        .bind(call.0)
        .bind(attempt.0)
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(read_claim).transpose()
}
