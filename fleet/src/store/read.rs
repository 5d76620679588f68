//! Read: the state of a call, for callers, for waiters, and after a statement that moved nothing.

use std::{collections::HashMap, time::Duration};

use sqlx::{PgPool, Row as _, postgres::PgRow};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{
    StoreError, language,
    over::{LEFT_MS, left},
    session::within,
};
use crate::{
    call::{EffectKnown, Language, State},
    ending::Happened,
    ids::{AttemptId, CallId, Label},
    wire::{
        envelope::{Accepted, DecidedCall, Envelope},
        event::{Event, Happening},
    },
};

/// A call as it stands, with what its envelope needs.
#[derive(Debug, Clone)]
pub struct CallRow {
    /// The call.
    pub call_id: CallId,
    /// Who asked.
    pub tenant: Label,
    /// The caller's session.
    pub session: Option<Label>,
    /// Its tool.
    pub tool: String,
    /// The version it was accepted with.
    pub tool_version: i32,
    /// Where it stands.
    pub state: State,
    /// Whether it waits for its turn in the ledger: no pointer may claim it.
    pub held: bool,
    /// How often it has moved.
    pub rev: i32,
    /// The attempt that decided it, or that it is in.
    pub attempt_id: Option<AttemptId>,
    /// When it was accepted.
    pub accepted_at: OffsetDateTime,
    /// How many attempts were made.
    pub attempts: i32,
    /// The language of messages.
    pub language: Language,
    /// Whether it is still open although its deadline has passed.
    pub overdue: bool,
    /// How long until it is over, if it is still queued then; zero for what is over or decided.
    pub left: Duration,
    /// Whether it runs and was asked to stop.
    pub cancel_requested: bool,
    /// Whether an attempt before may have had its effect.
    pub effect_unknown: bool,
    /// Whether an attempt of it has said, too late to decide, that it did it.
    pub applied_late: bool,
    /// Whether it is in doubt because Postgres lost writes.
    pub quarantined: bool,
    /// Who ended it, if it is over.
    pub ended_by: Option<String>,
    /// Since when it is decided or in doubt.
    pub decided_at: Option<OffsetDateTime>,
    outcome: Option<String>,
    source: Option<String>,
    effect_known: Option<String>,
    result: Option<String>,
    error: Option<String>,
    degraded: Option<String>,
    coercions: Option<String>,
    queued_ms: i64,
    run_ms: i64,
}

const OPEN: &str = "SELECT call_id, tenant, session, tool, tool_version, state::text AS state, held, rev, attempt_id, accepted_at, attempts, language, \
    {left_ms} AS left_ms, cancel_requested, effect_unknown, \
    toolfleet.applied_late(o.call_id) AS applied_late, \
    quarantined, NULL AS ended_by, doubt_since AS decided_at, NULL AS outcome, NULL AS source, NULL AS effect_known, NULL AS result, last_error::text AS error, NULL AS degraded, \
    coercions::text AS coercions, \
    (extract(epoch FROM coalesce(first_started_at, now()) - accepted_at) * 1000)::bigint AS queued_ms, \
    (extract(epoch FROM coalesce(doubt_since, now()) - coalesce(first_started_at, now())) * 1000)::bigint AS run_ms \
    FROM toolfleet.open_calls o";
const FINISHED: &str = "SELECT call_id, tenant, session, tool, tool_version, state::text, false, rev, attempt_id, accepted_at, attempts, language, \
    NULL, false, false, false, false, actor, finished_at, outcome::text, source::text, effect_known::text, result::text, error::text, degraded::text, \
    coercions::text, queued_ms, run_ms \
    FROM toolfleet.finished_calls";

/// The state of a call. One statement, so the call is found in exactly one place.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn find(pool: &PgPool, call: CallId) -> Result<Option<CallRow>, StoreError> {
    let mut rows = find_many(pool, &[call], false).await?;
    Ok(rows.pop())
}

/// The calls among these for which waiters get an answer: terminal or in doubt.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn decided(pool: &PgPool, calls: &[CallId]) -> Result<Vec<CallRow>, StoreError> {
    find_many(pool, calls, true).await
}

async fn find_many(
    pool: &PgPool,
    calls: &[CallId],
    decided: bool,
) -> Result<Vec<CallRow>, StoreError> {
    let ids: Vec<Uuid> = calls.iter().map(|id| id.0).collect();
    let only = if decided {
        "AND state = 'in_doubt'"
    } else {
        ""
    };
    let open = OPEN.replace("{left_ms}", LEFT_MS);
    let sql = format!(
        // Bounded by the smallest and largest id: days of history without any of these are not read.
        "{open} WHERE call_id = ANY($1) {only} \
         UNION ALL {FINISHED} WHERE call_id = ANY($1) AND call_id BETWEEN $2 AND $3"
    );
    // Made of constants of this file.
    let reading = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(&ids)
        .bind(ids.iter().min().copied())
        .bind(ids.iter().max().copied())
        .fetch_all(pool);
    let rows = answer("read calls", reading).await?;
    rows.iter().map(read_row).collect()
}

/// The call that a key names.
#[derive(Debug, Clone)]
pub struct KeyRow {
    /// The call.
    pub call_id: CallId,
    /// The tool it was used with.
    pub tool: String,
    /// The version that took the call.
    pub tool_version: i32,
    /// Hash of the canonical arguments.
    pub args_hash: Vec<u8>,
    /// Hash of the arguments as they were sent.
    pub original_hash: Vec<u8>,
    /// Whether its call has been terminal for longer than the key lives.
    pub lapsed: bool,
}

/// The call that a tenant's key names. The key of a call in doubt never lapses, nor the key of a call that cannot be found.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn find_key(
    pool: &PgPool,
    tenant: &Label,
    key_hash: &[u8; 32],
) -> Result<Option<KeyRow>, StoreError> {
    let mut found = find_keys(pool, tenant, &[*key_hash]).await?;
    Ok(found.remove(key_hash))
}

/// The same for many keys at once; keys without a call are left out.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn find_keys(
    pool: &PgPool,
    tenant: &Label,
    key_hashes: &[[u8; 32]],
) -> Result<HashMap<[u8; 32], KeyRow>, StoreError> {
    let doing = "look keys up";
    let hashes: Vec<&[u8]> = key_hashes.iter().map(|hash| &hash[..]).collect();
    let reading = sqlx::query(
        "SELECT k.key_hash, k.call_id, k.tool, k.tool_version, k.args_hash, k.original_hash, \
                toolfleet.key_lapsed(k.call_id) AS lapsed \
         FROM toolfleet.idempotency_keys k \
         WHERE k.tenant = $1 AND k.key_hash = ANY($2)",
    )
    .bind(tenant.as_str())
    .bind(hashes)
    .fetch_all(pool);
    let rows = answer(doing, reading).await?;
    let read = |row: &PgRow| -> Result<([u8; 32], KeyRow), sqlx::Error> {
        let hash: Vec<u8> = row.try_get("key_hash")?;
        let hash = hash
            .try_into()
            .map_err(|_other_length| sqlx::Error::Decode("a key's hash has 32 bytes".into()))?;
        let key = KeyRow {
            call_id: CallId(row.try_get("call_id")?),
            tool: row.try_get("tool")?,
            tool_version: row.try_get("tool_version")?,
            args_hash: row.try_get("args_hash")?,
            original_hash: row.try_get("original_hash")?,
            lapsed: row.try_get("lapsed")?,
        };
        Ok((hash, key))
    };
    rows.iter()
        .map(read)
        .collect::<Result<_, _>>()
        .map_err(|error| StoreError::unreadable(doing, error))
}

/// The states of a tenant's calls, as accepted envelopes marked as replayed. Without their results, which may be large.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn standing(
    pool: &PgPool,
    tenant: &Label,
    calls: &[CallId],
) -> Result<HashMap<CallId, Accepted>, StoreError> {
    let doing = "read where calls stand";
    let ids: Vec<Uuid> = calls.iter().map(|id| id.0).collect();
    let reading = sqlx::query(
        "SELECT call_id, tool, state::text AS state, accepted_at FROM toolfleet.open_calls \
         WHERE call_id = ANY($1) AND tenant = $2 \
         UNION ALL SELECT call_id, tool, state::text, accepted_at FROM toolfleet.finished_calls \
         WHERE call_id = ANY($1) AND tenant = $2",
    )
    .bind(ids)
    .bind(tenant.as_str())
    .fetch_all(pool);
    let rows = answer(doing, reading).await?;
    let read = |row: &PgRow| -> Result<(CallId, Accepted), sqlx::Error> {
        let call_id = CallId(row.try_get("call_id")?);
        let accepted = Accepted {
            call_id,
            tool: row.try_get("tool")?,
            state: row
                .try_get::<String, _>("state")?
                .parse()
                .map_err(|e| sqlx::Error::Decode(Box::new(e)))?,
            replayed: true,
            accepted_at: row.try_get("accepted_at")?,
        };
        Ok((call_id, accepted))
    };
    rows.iter()
        .map(read)
        .collect::<Result<_, _>>()
        .map_err(|error| StoreError::unreadable(doing, error))
}

/// The arguments of a call that is still queued.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn arguments(pool: &PgPool, call: CallId) -> Result<Option<String>, StoreError> {
    let reading =
        sqlx::query_scalar("SELECT args::text FROM toolfleet.open_calls WHERE call_id = $1")
            .bind(call.0)
            .fetch_optional(pool);
    answer("read arguments", reading).await
}

/// How long a read waits, for a connection and for its answer.
const READ_MAX: Duration = Duration::from_secs(10);

/// Dropping a read is safe: it changes nothing, and the pool tests the connection before it hands it out again.
async fn answer<T>(
    doing: &'static str,
    reading: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    let reading = async {
        reading
            .await
            .map_err(|error| StoreError::from_sqlx(doing, error))
    };
    within(doing, READ_MAX, reading).await
}

fn read_row(row: &PgRow) -> Result<CallRow, StoreError> {
    let doing = "read a call";
    let fields = || -> Result<CallRow, sqlx::Error> {
        let left_ms: Option<f64> = row.try_get("left_ms")?;
        Ok(CallRow {
            call_id: CallId(row.try_get("call_id")?),
            tenant: row
                .try_get::<String, _>("tenant")?
                .parse()
                .map_err(|e| sqlx::Error::Decode(Box::new(e)))?,
            session: row
                .try_get::<Option<String>, _>("session")?
                .map(|session| session.parse())
                .transpose()
                .map_err(|e| sqlx::Error::Decode(Box::new(e)))?,
            tool: row.try_get("tool")?,
            tool_version: row.try_get("tool_version")?,
            state: row
                .try_get::<String, _>("state")?
                .parse()
                .map_err(|e| sqlx::Error::Decode(Box::new(e)))?,
            rev: row.try_get("rev")?,
            attempt_id: row.try_get::<Option<Uuid>, _>("attempt_id")?.map(AttemptId),
            accepted_at: row.try_get("accepted_at")?,
            attempts: row.try_get("attempts")?,
            language: language(row)?,
            held: row.try_get("held")?,
            overdue: left_ms.is_some_and(|ms| ms <= 0.0),
            left: left_ms.map(left).unwrap_or_default(),
            cancel_requested: row.try_get("cancel_requested")?,
            effect_unknown: row.try_get("effect_unknown")?,
            applied_late: row.try_get("applied_late")?,
            quarantined: row.try_get("quarantined")?,
            ended_by: row.try_get("ended_by")?,
            decided_at: row.try_get("decided_at")?,
            outcome: row.try_get("outcome")?,
            source: row.try_get("source")?,
            effect_known: row.try_get("effect_known")?,
            result: row.try_get("result")?,
            error: row.try_get("error")?,
            degraded: row.try_get("degraded")?,
            coercions: row.try_get("coercions")?,
            queued_ms: row.try_get("queued_ms")?,
            run_ms: row.try_get("run_ms")?,
        })
    };
    fields().map_err(|error| StoreError::unreadable(doing, error))
}

impl CallRow {
    /// The accepted envelope.
    pub fn accepted(&self, replayed: bool) -> Accepted {
        Accepted {
            call_id: self.call_id,
            tool: self.tool.clone(),
            state: self.state,
            replayed,
            accepted_at: self.accepted_at,
        }
    }

    /// The event for a decided call; `None` for one that is not.
    pub fn finished(&self) -> Option<Event> {
        let envelope = self.envelope(false).ok()??;
        Some(Event {
            call_id: self.call_id,
            sequence: Event::sequence(self.rev, 0),
            at: self.decided_at?,
            what: Happening::Finished {
                state: self.state,
                outcome: envelope.outcome,
                attempts: self.attempts,
                code: envelope.error.map(|error| error.code),
            },
        })
    }

    /// The result envelope of a decided call; `None` for one that is not.
    ///
    /// # Errors
    ///
    /// The row contains something that this version does not know.
    pub fn envelope(&self, replayed: bool) -> Result<Option<Envelope>, StoreError> {
        let doing = "read a finished call";
        if !self.state.answers_waiters() {
            return Ok(None);
        }
        let doubt = Happened::InDoubt.words();
        let decided = DecidedCall {
            call_id: self.call_id,
            tool: self.tool.clone(),
            tool_version: self.tool_version,
            state: self.state,
            outcome: word(self.outcome.as_deref(), doubt.outcome)?,
            source: word(self.source.as_deref(), doubt.source)?,
            effect: word(self.effect_known.as_deref(), EffectKnown::Unknown)?,
            result: self.result.clone(),
            error: self.error.clone(),
            degraded: self.degraded.clone(),
            coercions: self.coercions.clone(),
            attempts: self.attempts,
            queued_ms: self.queued_ms,
            run_ms: self.run_ms,
        };
        let envelope = decided.envelope();
        let envelope = envelope.map_err(|error| StoreError::unreadable(doing, error))?;
        Ok(Some(Envelope {
            replayed,
            ..envelope
        }))
    }
}

/// A word in the row, or the default for a call in doubt, whose row has none.
fn word<W: std::str::FromStr<Err = crate::call::UnknownWord>>(
    text: Option<&str>,
    in_doubt: W,
) -> Result<W, StoreError> {
    text.map_or(Ok(in_doubt), |text| {
        text.parse()
            .map_err(|e| StoreError::unreadable("read a finished call", e))
    })
}
