//! Claim a call for its next attempt: the start mark. After it is committed, and not before, the tool may run.

use std::{collections::HashMap, sync::LazyLock};

use futures_util::future::BoxFuture;
use sqlx::{
    PgConnection, Postgres,
    postgres::{PgArguments, PgRow},
    query::Query,
};
use time::OffsetDateTime;

use super::{
    columns::Columns,
    lane::{Locks, Statement},
    statement::{EXPIRES_AT, put_together},
};
use crate::{
    call::{Effect, Language},
    checkpoint::Checkpoint,
    ids::{AttemptId, CallId, DispatcherId, Label, WorkerId},
    input::Asked,
    wire::{event::SessionCall, proof::DoneSecret, trace::TraceContext},
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
    /// Whether a cancellation has come since it was claimed: known when the claim had to be read back.
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
    /// How long the call waited, in milliseconds: from its acceptance to this claim.
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
    /// With what the end of this call is proven to it; `None` where a release before it accepted the call.
    pub done_secret: Option<DoneSecret>,
    /// The trace the call belongs to.
    pub trace: TraceContext,
    /// Whether it is the probe of a call in doubt.
    pub is_probe: bool,
    /// What its tool has asked for and was told.
    pub asked: Option<Box<Asked>>,
}

/// The statement.
///
/// Own autocommit statement. Guards: the call is queued, due, in time and not cancelled, and this worker is alive (its row is
/// locked `FOR KEY SHARE`, so a fence and a claim exclude each other). A row that does not come back was not claimed: read the
/// call to learn why. A claim without an answer must be read back with a row lock before anything runs.
#[derive(Debug)]
pub struct Claim {
    worker: WorkerId,
}

impl Claimed {
    /// The call, as far as it says who hears of it.
    pub fn followed(&self) -> SessionCall<'_> {
        SessionCall {
            tenant: &self.tenant,
            session: self.session.as_ref(),
            tool: &self.tool,
            tool_version: self.tool_version,
        }
    }
}

impl Claim {
    /// Claims for this worker.
    pub const fn new(worker: WorkerId) -> Self {
        Self { worker }
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
            let sql = match locks {
                Locks::Wait => WAITING.as_str(),
                Locks::Skip => SKIPPING.as_str(),
            };
            let decided = asked(sql, self.worker, rows.iter())
                .fetch_all(connection)
                .await?;
            let mut claimed = HashMap::with_capacity(decided.len());
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

/// What every statement that claims has in common.
const PARTS: [(&str, &str); 5] = [
    ("claiming worker", include_str!("sql/claiming_worker.sql")),
    ("claim set", include_str!("sql/claim_set.sql")),
    ("claimable", include_str!("sql/claimable.sql")),
    ("expires at", EXPIRES_AT),
    ("claimed", include_str!("sql/claimed.sql")),
];

/// A statement that claims, with `part` in the place of its comment `name`.
pub(super) fn claiming(statement: &str, name: &str, part: &str) -> String {
    put_together(&put_together(statement, &[(name, part)]), &PARTS)
}

static WAITING: LazyLock<String> =
    LazyLock::new(|| claiming(include_str!("sql/claim.sql"), "not locked", ""));
static SKIPPING: LazyLock<String> = LazyLock::new(|| {
    let not_locked = include_str!("sql/claim_not_locked.sql");
    claiming(include_str!("sql/claim.sql"), "not locked", not_locked)
});
static READ_BACK: LazyLock<String> = LazyLock::new(|| {
    let claimed = ("claimed", include_str!("sql/claimed.sql"));
    put_together(include_str!("sql/claim_read_back.sql"), &[claimed])
});

/// A statement that claims these for a worker.
pub(super) fn asked<'a, 'q>(
    sql: &'static str,
    worker: WorkerId,
    rows: impl Iterator<Item = &'a ClaimRow> + Clone,
) -> Query<'q, Postgres, PgArguments> {
    sqlx::query(sql)
        .bind(worker.0)
        .bind(rows.clone().map(|r| r.call_id.0).collect::<Vec<_>>())
        .bind(rows.clone().map(|r| r.attempt_id.0).collect::<Vec<_>>())
        .bind(rows.map(|r| r.timeout_ms).collect::<Vec<_>>())
}

/// The leading columns of a row, in the order of `sql/claimed.sql`.
pub(super) fn read_claim(row: &PgRow) -> Result<Claimed, sqlx::Error> {
    let mut columns = Columns::of(row);
    Ok(Claimed {
        call_id: CallId(columns.next()?),
        rev: columns.next()?,
        attempt: u32::try_from(columns.next::<i32>()?).unwrap_or(u32::MAX),
        unspent_attempts: u32::try_from(columns.next::<i32>()?).unwrap_or(0),
        effect_unknown: columns.next()?,
        cancel_requested: columns.next()?,
        effect: columns.parsed()?,
        tool: columns.next()?,
        tool_version: columns.next()?,
        args_hash: columns.next()?,
        timeout_ms: columns.next()?,
        remaining_ms: columns.next()?,
        since_first_start_ms: columns.next()?,
        attempt_until: columns.next()?,
        queued_ms: columns.next()?,
        tenant: columns.parsed()?,
        session: columns.parsed_if_any()?,
        run: columns.parsed_if_any()?,
        meta: columns.next()?,
        language: columns.parsed()?,
        dispatcher: DispatcherId(columns.next()?),
        done_secret: columns.next::<Option<_>>()?.map(DoneSecret),
        trace: TraceContext {
            traceparent: columns.next()?,
            tracestate: columns.next()?,
            baggage: columns.next()?,
        },
        is_probe: columns.next()?,
        asked: asked_of(columns.next()?)?,
    })
}

fn asked_of(text: Option<&str>) -> Result<Option<Box<Asked>>, sqlx::Error> {
    let asked = text.map(serde_json::from_str).transpose();
    asked.map_err(|error| sqlx::Error::Decode(error.into()))
}

/// Reads back a claim without an answer, and waits for a statement that still holds the row. `None`: the claim was not
/// committed.
///
/// Own autocommit statement on another connection than the lane's; guard: our attempt id; locks the row until it ends.
///
/// # Errors
///
/// The server's own.
pub async fn read_back(
    connection: &mut PgConnection,
    call: CallId,
    attempt: AttemptId,
) -> Result<Option<Claimed>, sqlx::Error> {
    let row = sqlx::query(READ_BACK.as_str())
        .bind(call.0)
        .bind(attempt.0)
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(read_claim).transpose()
}
