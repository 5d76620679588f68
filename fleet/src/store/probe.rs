//! Probe: what the sweep reads and writes about calls in doubt that have a probe. It decides nothing here.

use std::time::Duration;

use sqlx::{PgPool, Row as _};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{
    StoreError, accept,
    answer::listen,
    columns::{parsed, parsed_if_any},
    read_all,
    sweep::{DUE, Publishable},
};
use crate::{
    arguments::Coercion,
    call::{CallOutcome, Priority, State, words},
    ids::{CallId, DispatcherId, Label, QueueName, ToolName},
    rate_key::RateKey,
    wire::{pointer::Pointer, trace::TraceContext},
};

/// A call in doubt whose probe is due.
#[derive(Debug, Clone)]
pub struct Doubted {
    /// The call.
    pub call_id: CallId,
    /// How often it has moved.
    pub rev: i32,
    /// Who asked.
    pub tenant: Label,
    /// Its tool.
    pub tool: ToolName,
    /// The version it was accepted with.
    pub tool_version: i32,
    /// Its arguments.
    pub args: String,
    /// How often it was asked about.
    pub probes: u32,
    /// The probe that is under way.
    pub probe: Option<CallId>,
    /// Whether everything that was started for it is proven gone, and since when.
    pub fenced_since: Option<OffsetDateTime>,
    /// What is recorded of the last probe.
    pub state: Option<ProbeState>,
}

words! {
    /// The result of probing so far.
    ProbeState {
        /// Its tool has no probe.
        None = "none",
        /// A probe is under way.
        Asking = "asking",
        /// The last probe proved nothing.
        Inconclusive = "inconclusive",
        /// The last probe did not see the effect, and that is too early to count.
        NotYetApplied = "not_yet_applied",
        /// The answer contradicts the call; it is not asked again.
        Conflict = "conflict",
        /// It was asked as often as it may be.
        GivenUp = "given_up",
    }
}

/// The most calls in one step of the pass, and the most probes under way: thousands of doubts at once must not flood the tool
/// that is asked.
pub const STEP_CALLS: i64 = 100;

/// Takes calls in doubt whose probe is due, and makes them due again a little later, in case this process dies. Own statement;
/// rows that another dispatcher is taking are skipped.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn take(pool: &PgPool) -> Result<Vec<Doubted>, StoreError> {
    let doing = "take calls in doubt";
    let sql = format!(
        "WITH due AS MATERIALIZED ( \
             SELECT ctid AS place FROM toolfleet.open_calls \
             WHERE {DUE} AND state = 'in_doubt' \
               AND (probe_id IS NOT NULL OR $1 > ( \
                   SELECT count(*) FROM toolfleet.open_calls probes WHERE probes.probe_of IS NOT NULL)) \
             ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED) \
         UPDATE toolfleet.open_calls o \
         SET due_at = now() + CASE WHEN probe_id IS NULL THEN interval '15 seconds' ELSE interval '500 ms' END \
         WHERE o.ctid = ANY(ARRAY(SELECT place FROM due)) AND o.state = 'in_doubt' \
         RETURNING o.call_id, rev, tenant, tool, tool_version, args::text AS args, probes, probe_id, probe_state, \
             CASE WHEN toolfleet.is_fenced(o.call_id) THEN coalesce(toolfleet.fenced_since(o.call_id), doubt_since) END \
                 AS fenced_since"
    );
    // Made of constants of this folder.
    let rows = listen(
        sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(STEP_CALLS)
            .fetch_all(pool),
    )
    .await
    .map_err(|error| StoreError::from_sqlx(doing, error))?;
    read_all(doing, &rows, |row| {
        Ok(Doubted {
            call_id: CallId(row.try_get("call_id")?),
            rev: row.try_get("rev")?,
            tenant: parsed(row, "tenant")?,
            tool: parsed(row, "tool")?,
            tool_version: row.try_get("tool_version")?,
            args: row.try_get("args")?,
            probes: u32::try_from(row.try_get::<i32, _>("probes")?).unwrap_or(u32::MAX),
            probe: row.try_get::<Option<Uuid>, _>("probe_id")?.map(CallId),
            fenced_since: row.try_get("fenced_since")?,
            state: parsed_if_any(row, "probe_state")?,
        })
    })
}

/// A probe to be made: an ordinary call of a `read` tool.
#[derive(Debug, Clone)]
pub struct NewProbe {
    /// Made by the dispatcher.
    pub call_id: CallId,
    /// The tool that is asked.
    pub tool: ToolName,
    /// Its version.
    pub tool_version: i32,
    /// Which workers run it.
    pub queue: QueueName,
    /// Its arguments in canonical form.
    pub args: String,
    /// What is left of them once it is over, where its tool does not let them be kept.
    pub kept_args: Option<String>,
    /// What the template made, where something was changed in it.
    pub original_args: Option<String>,
    /// What was changed.
    pub coercions: Vec<Coercion>,
    /// SHA-256 of the arguments.
    pub args_hash: [u8; 32],
    /// Which calls of its tool it shares start times with, where each value of an argument has its own.
    pub rate_key: Option<RateKey>,
    /// How long it may take.
    pub deadline: Duration,
    /// Who makes it.
    pub dispatcher: DispatcherId,
}

/// Accepts a probe as a call of its own, and remembers it in the row of the call in doubt.
///
/// One statement; guard: in doubt, not moved since `rev`, no probe under way. `None`: it has moved. Publish the call that is
/// returned; if that is lost, the walk finds it.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn start(
    pool: &PgPool,
    call: CallId,
    rev: i32,
    probe: NewProbe,
) -> Result<Option<Publishable>, StoreError> {
    let doing = "start a probe";
    let row: Option<(String, String, Option<String>, Option<String>)> = listen(
        sqlx::query_as(include_str!("sql/probe_start.sql"))
            .bind(call.0)
            .bind(rev)
            .bind(probe.call_id.0)
            .bind(probe.tool.as_str())
            .bind(probe.tool_version)
            .bind(probe.queue.as_str())
            .bind(&probe.args)
            .bind(&probe.args_hash[..])
            .bind(probe.dispatcher.0)
            .bind(i64::try_from(probe.deadline.as_millis()).unwrap_or(i64::MAX))
            .bind(&probe.kept_args)
            .bind(&probe.original_args)
            .bind(accept::changes(&probe.coercions))
            .bind(probe.rate_key.map(|key| key.to_string()))
            .fetch_optional(pool),
    )
    .await
    .map_err(|error| StoreError::from_sqlx(doing, error))?;
    let Some((tenant, language, traceparent, tracestate)) = row else {
        return Ok(None);
    };
    let tenant = tenant
        .parse()
        .map_err(|error| StoreError::unreadable(doing, error))?;
    Ok(Some(Publishable {
        queue: probe.queue,
        n: 1,
        pointer: Pointer {
            call_id: probe.call_id,
            tool: probe.tool,
            tool_version: probe.tool_version,
            args_hash: hex::encode(probe.args_hash),
            // The gate reads them; a probe is rare.
            args: None,
            tenant: Some(tenant),
            language: language.parse().ok(),
            priority: Some(Priority::High),
            rev: Some(0),
            is_probe: true,
            trace: TraceContext {
                traceparent,
                tracestate,
                baggage: None,
            },
            attempts: 0,
        },
    }))
}

/// The state of a probe.
#[derive(Debug, Clone)]
pub enum ProbeAnswer {
    /// It is not over.
    Open,
    /// The ledger does not have it: Postgres lost it.
    Lost,
    /// It is over.
    Ended {
        /// How.
        state: State,
        /// What it came to.
        outcome: CallOutcome,
        /// The tool's answer.
        result: Option<String>,
        /// The error.
        error: Option<String>,
        /// When the attempt that answered it started: the answer is not older.
        seen_at: Option<OffsetDateTime>,
    },
}

/// Reads the state of a probe. One statement, so the probe is found in exactly one place.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn answer(pool: &PgPool, probe: CallId) -> Result<ProbeAnswer, StoreError> {
    let doing = "read a probe";
    let row = listen(sqlx::query(
        "SELECT state::text AS state, outcome::text AS outcome, result::text AS result, error::text AS error, attempt_started_at \
         FROM toolfleet.finished_calls WHERE call_id = $1 \
         UNION ALL \
         SELECT state::text, NULL, NULL, NULL, NULL FROM toolfleet.open_calls WHERE call_id = $1",
    )
    .bind(probe.0)
    .fetch_optional(pool)).await
    .map_err(|error| StoreError::from_sqlx(doing, error))?;
    let Some(row) = row else {
        return Ok(ProbeAnswer::Lost);
    };
    let read = || -> Result<ProbeAnswer, sqlx::Error> {
        let Some(outcome) = parsed_if_any(&row, "outcome")? else {
            return Ok(ProbeAnswer::Open);
        };
        Ok(ProbeAnswer::Ended {
            state: parsed(&row, "state")?,
            outcome,
            result: row.try_get("result")?,
            error: row.try_get("error")?,
            seen_at: row.try_get("attempt_started_at")?,
        })
    };
    read().map_err(|error| StoreError::unreadable(doing, error))
}

/// The record of a probe that did not settle its call.
#[derive(Debug, Clone)]
pub struct Remark {
    /// What came of asking.
    pub state: ProbeState,
    /// The author: the pass, or the probe.
    pub actor: String,
    /// A clause for people.
    pub why: String,
    /// The pause until the next probe; `None`: there is none.
    pub again_after: Option<Duration>,
}

/// Records the result of a probe and when the next one is due.
///
/// A probe that could not be made counts too. One statement; guard: in doubt, not moved since `rev`, and still with this probe;
/// false: it has moved. It writes a note only when the state changes.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn remark(pool: &PgPool, doubted: &Doubted, remark: &Remark) -> Result<bool, StoreError> {
    let news = doubted.state != Some(ProbeState::Asking) && doubted.state != Some(remark.state)
        || doubted.probes <= 1
        || remark.again_after.is_none();
    let done = listen(sqlx::query(
        "WITH remarked AS ( \
             UPDATE toolfleet.open_calls \
             SET probe_id = NULL, probe_state = $3, probes = probes + ($8::uuid IS NULL)::integer, due_at = now() + make_interval(secs => $4), rev = rev + $5::boolean::integer \
             WHERE call_id = $1 AND rev = $2 AND state = 'in_doubt' AND probe_id IS NOT DISTINCT FROM $8 \
             RETURNING call_id, rev, attempt_id, probes), \
         noted AS ( \
             INSERT INTO toolfleet.call_notes (call_id, rev, from_state, to_state, actor, reason, attempt_id, details) \
             SELECT call_id, rev, 'in_doubt', 'in_doubt', $6, 'probe_' || $3, attempt_id, \
                 json_build_object('why', $7::text, 'probes', probes) \
             FROM remarked WHERE $5) \
         SELECT FROM remarked",
    )
    .bind(doubted.call_id.0)
    .bind(doubted.rev)
    .bind(remark.state.as_str())
    .bind(remark.again_after.map(|pause| pause.as_secs_f64()))
    .bind(news)
    .bind(&remark.actor)
    .bind(&remark.why)
    .bind(doubted.probe.map(|probe| probe.0))
    .fetch_optional(pool)).await
    .map_err(|error| StoreError::from_sqlx("remark on a probe", error))?;
    Ok(done.is_some())
}

/// Records that a call's tool has no probe, so nothing is due any more. One statement; guard: in doubt.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn leave(pool: &PgPool, call: CallId) -> Result<(), StoreError> {
    listen(sqlx::query(
        "UPDATE toolfleet.open_calls SET due_at = NULL, probe_state = 'none' WHERE call_id = $1 AND state = 'in_doubt'",
    )
    .bind(call.0)
    .execute(pool)).await
    .map(drop)
    .map_err(|error| StoreError::from_sqlx("leave a call in doubt", error))
}
