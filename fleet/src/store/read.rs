//! Read: the state of a call, for callers, for waiters, and after a statement that moved nothing.

use std::{collections::HashMap, sync::LazyLock, time::Duration};

use sqlx::{PgPool, Row as _, postgres::PgRow};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{
    StoreError,
    answer::answer_within,
    columns::{parsed, parsed_if_any},
    read_all,
    statement::{LEFT_MS, left, put_together},
};
use crate::{
    approval::ApprovalWanted,
    call::{Awaiting, Language, SettledBy, State},
    ending::Decision,
    ids::{AttemptId, CallId, Label},
    telemetry::metrics,
    wire::{
        envelope::{Accepted, DecidedCall, Envelope, Timing},
        event::{Event, Happening, SessionCall},
        proof::DoneSecret,
        token::{Handed, HandedAs},
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
    /// How often it has moved.
    pub rev: i32,
    /// When it was accepted.
    pub accepted_at: OffsetDateTime,
    /// How many attempts were made.
    pub attempts: i32,
    /// The language of messages.
    pub language: Language,
    /// Where it stands.
    pub state: CallState,
    /// With what its worker proves its end; only of an open call.
    pub done_secret: Option<DoneSecret>,
    /// What its tool was told last, JSON text; only of an open call.
    pub told: Option<String>,
    coercions: Option<String>,
}

/// Where a call stands, and what it has there.
#[derive(Debug, Clone)]
pub enum CallState {
    /// It waits for its first or next attempt.
    Queued {
        /// Whether it waits for its turn in the ledger: no pointer may claim it.
        held: bool,
        /// How long until it expires; zero when it has.
        left: Duration,
        /// Whether an attempt before may have had its effect.
        effect_unknown: bool,
        /// Whether it is the probe of a call in doubt.
        is_probe: bool,
    },
    /// A worker has claimed it.
    Running {
        /// For this attempt.
        attempt: AttemptId,
        /// How long until its deadline; zero when it has passed.
        left: Duration,
        /// Whether it was asked to stop.
        cancel_requested: bool,
        /// Whether an attempt before may have had its effect.
        effect_unknown: bool,
        /// Whether an attempt before has said, too late to decide, that it did it.
        applied_late: bool,
    },
    /// Its effect may have happened.
    InDoubt(DoubtfulCall),
    /// It waits for somebody outside the fleet.
    Awaiting(AwaitingCall),
    /// It has ended.
    Ended(EndedCall),
}

/// What there is of a call that waits for somebody outside the fleet.
#[derive(Debug, Clone)]
pub struct AwaitingCall {
    /// For whom, and as what it was handed out.
    pub handed: Handed,
    /// Until when.
    pub until: OffsetDateTime,
    /// The time until its deadline, which the end of its wait is never behind.
    pub left: Duration,
    /// Its arguments, JSON text, where they are not those that were sent, or where its caller's program decides about them.
    pub shown_args: Option<String>,
    /// What is to be decided about it, where it waits for a yes.
    pub approval: Option<ToApprove>,
    /// What its tool wants to know, JSON text.
    pub requests: Option<String>,
    /// Who made it, by the `principal` of its meta.
    pub principal: Option<String>,
}

/// What is to be decided about a call.
#[derive(Debug, Clone)]
pub struct ToApprove {
    /// Who decides.
    pub wanted: ApprovalWanted,
    /// What a decision names: [`ApprovalWanted::shown_hash`] of its arguments.
    pub args_hash: String,
}

/// What there is of a call in doubt.
#[derive(Debug, Clone)]
pub struct DoubtfulCall {
    /// The attempt that it is in doubt about, if it is about one.
    pub attempt: Option<AttemptId>,
    /// Since when.
    pub since: OffsetDateTime,
    /// Whether an attempt of it has said, too late to decide, that it did it.
    pub applied_late: bool,
    /// Whether it is in doubt because Postgres lost writes.
    pub quarantined: bool,
    decision: Decision,
    timing: Timing,
}

/// What there is of a call that has ended.
#[derive(Debug, Clone)]
pub struct EndedCall {
    /// The attempt that decided it, if one did.
    pub attempt: Option<AttemptId>,
    /// Who ended it.
    pub by: String,
    /// When.
    pub at: OffsetDateTime,
    /// Who settled it, where it was in doubt.
    pub settled_by: Option<SettledBy>,
    decision: Decision,
    timing: Timing,
}

static FIND: LazyLock<String> = LazyLock::new(|| finding(""));
static FIND_DECIDED: LazyLock<String> =
    LazyLock::new(|| finding("AND (state = 'in_doubt' OR awaiting = 'input')"));

fn finding(open: &str) -> String {
    let parts = [("left ms", LEFT_MS), ("which", open)];
    put_together(include_str!("sql/find.sql"), &parts)
}

/// The state of a call, for a process that has met the call itself. One statement, so the call is found in exactly one place.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn find(pool: &PgPool, call: CallId) -> Result<Option<CallRow>, StoreError> {
    let mut rows = find_many(pool, &[call], None, &FIND).await?;
    Ok(rows.pop())
}

/// The same for a caller's id: another tenant's call is not read at all, so nothing of it, not even its size, is told by the
/// time that the answer takes.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn find_of(
    pool: &PgPool,
    tenant: &Label,
    call: CallId,
) -> Result<Option<CallRow>, StoreError> {
    let mut rows = find_many(pool, &[call], Some(tenant), &FIND).await?;
    Ok(rows.pop())
}

/// The calls among these for which waiters get an answer: terminal, in doubt, or waiting to be told what their tool has asked for.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn decided(pool: &PgPool, calls: &[CallId]) -> Result<Vec<CallRow>, StoreError> {
    find_many(pool, calls, None, &FIND_DECIDED).await
}

async fn find_many(
    pool: &PgPool,
    calls: &[CallId],
    tenant: Option<&Label>,
    sql: &'static str,
) -> Result<Vec<CallRow>, StoreError> {
    let ids: Vec<Uuid> = calls.iter().map(|id| id.0).collect();
    let reading = sqlx::query(sql)
        .bind(&ids)
        .bind(ids.iter().min().copied())
        .bind(ids.iter().max().copied())
        .bind(tenant.map(Label::as_str))
        .fetch_all(pool);
    let rows = answer("read calls", reading).await?;
    read_all("read a call", &rows, read_row)
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
    read_all(doing, &rows, |row| {
        let call_id = CallId(row.try_get("call_id")?);
        let accepted = Accepted {
            call_id,
            tool: row.try_get("tool")?,
            state: parsed(row, "state")?,
            replayed: true,
            accepted_at: row.try_get("accepted_at")?,
            awaiting: None,
        };
        Ok((call_id, accepted))
    })
}

/// How long a read waits, for a connection and for its answer.
const READ_MAX: Duration = Duration::from_secs(10);

pub(super) async fn answer<T>(
    doing: &'static str,
    reading: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    answer_within(doing, READ_MAX, reading).await
}

fn read_row(row: &PgRow) -> Result<CallRow, sqlx::Error> {
    Ok(CallRow {
        call_id: CallId(row.try_get("call_id")?),
        tenant: parsed(row, "tenant")?,
        session: parsed_if_any(row, "session")?,
        tool: row.try_get("tool")?,
        tool_version: row.try_get("tool_version")?,
        rev: row.try_get("rev")?,
        accepted_at: row.try_get("accepted_at")?,
        attempts: row.try_get("attempts")?,
        language: parsed(row, "language")?,
        state: read_state(row)?,
        done_secret: row.try_get::<Option<_>, _>("done_secret")?.map(DoneSecret),
        told: row.try_get("input")?,
        coercions: row.try_get("coercions")?,
    })
}

/// What a state has is never null in it: the tables refuse that.
fn read_state(row: &PgRow) -> Result<CallState, sqlx::Error> {
    let attempt = || -> Result<Option<AttemptId>, sqlx::Error> {
        let id: Option<Uuid> = row.try_get("attempt_id")?;
        Ok(id.map(AttemptId))
    };
    let until_over = || row.try_get("left_ms").map(left);
    let timing = || -> Result<Timing, sqlx::Error> {
        Ok(Timing {
            queued_ms: row.try_get("queued_ms")?,
            run_ms: row.try_get("run_ms")?,
        })
    };
    let state = parsed(row, "state")?;
    Ok(match state {
        State::Queued => CallState::Queued {
            held: row.try_get("held")?,
            left: until_over()?,
            effect_unknown: row.try_get("effect_unknown")?,
            is_probe: row.try_get("is_probe")?,
        },
        State::Running => CallState::Running {
            attempt: AttemptId(row.try_get("attempt_id")?),
            left: until_over()?,
            cancel_requested: row.try_get("cancel_requested")?,
            effect_unknown: row.try_get("effect_unknown")?,
            applied_late: row.try_get("applied_late")?,
        },
        State::InDoubt => CallState::InDoubt(DoubtfulCall {
            attempt: attempt()?,
            since: row.try_get("decided_at")?,
            applied_late: row.try_get("applied_late")?,
            quarantined: row.try_get("quarantined")?,
            decision: Decision::doubt(row.try_get("error")?),
            timing: timing()?,
        }),
        State::AwaitingClient => CallState::Awaiting(AwaitingCall {
            handed: handed(row)?,
            until: row.try_get("due_at")?,
            left: left(row.try_get("left_ms")?),
            shown_args: row.try_get("shown_args")?,
            approval: to_approve(row)?,
            requests: row.try_get("requests")?,
            principal: row.try_get("principal")?,
        }),
        State::Succeeded | State::Failed | State::Cancelled | State::Expired => {
            CallState::Ended(EndedCall {
                attempt: attempt()?,
                by: row.try_get("actor")?,
                at: row.try_get("decided_at")?,
                settled_by: parsed_if_any(row, "settled_by")?,
                decision: Decision {
                    state,
                    outcome: parsed(row, "outcome")?,
                    source: parsed(row, "source")?,
                    effect: parsed(row, "effect_known")?,
                    result: row.try_get("result")?,
                    // Read in the place of the answer.
                    preview: None,
                    error: row.try_get("error")?,
                    degraded: row.try_get("degraded")?,
                },
                timing: timing()?,
            })
        }
    })
}

fn handed(row: &PgRow) -> Result<Handed, sqlx::Error> {
    let awaiting = parsed(row, "awaiting")?;
    let turn = match awaiting {
        Awaiting::Client | Awaiting::Completion => {
            HandedAs::Attempt(AttemptId(row.try_get("attempt_id")?))
        }
        Awaiting::Approval | Awaiting::Input => HandedAs::Revision(row.try_get("rev")?),
    };
    let call = CallId(row.try_get("call_id")?);
    Ok(Handed {
        call,
        awaiting,
        turn,
    })
}

fn to_approve(row: &PgRow) -> Result<Option<ToApprove>, sqlx::Error> {
    let Some(wanted) = row.try_get::<Option<&str>, _>("approval")? else {
        return Ok(None);
    };
    let wanted = serde_json::from_str(wanted);
    Ok(Some(ToApprove {
        wanted: wanted.map_err(|error| sqlx::Error::Decode(error.into()))?,
        args_hash: row.try_get("args_hash")?,
    }))
}

impl CallRow {
    /// The word for where it stands.
    pub const fn state(&self) -> State {
        match &self.state {
            CallState::Queued { .. } => State::Queued,
            CallState::Running { .. } => State::Running,
            CallState::InDoubt(_) => State::InDoubt,
            CallState::Awaiting(_) => State::AwaitingClient,
            CallState::Ended(ended) => ended.decision.state,
        }
    }

    /// The attempt that it is in, or that decided it.
    pub const fn attempt_id(&self) -> Option<AttemptId> {
        match &self.state {
            CallState::Queued { .. } => None,
            CallState::Awaiting(awaiting) => match awaiting.handed.turn {
                HandedAs::Attempt(attempt) => Some(attempt),
                HandedAs::Revision(_) => None,
            },
            CallState::Running { attempt, .. } => Some(*attempt),
            CallState::InDoubt(doubtful) => doubtful.attempt,
            CallState::Ended(ended) => ended.attempt,
        }
    }

    /// How long until it expires, if it is not decided by then; zero for what is decided.
    pub const fn left(&self) -> Duration {
        match &self.state {
            CallState::Queued { left, .. } | CallState::Running { left, .. } => *left,
            CallState::Awaiting(awaiting) => awaiting.left,
            CallState::InDoubt(_) | CallState::Ended(_) => Duration::ZERO,
        }
    }

    /// The accepted envelope, without what it waits for.
    pub fn accepted(&self, replayed: bool) -> Accepted {
        Accepted {
            call_id: self.call_id,
            tool: self.tool.clone(),
            state: self.state(),
            replayed,
            accepted_at: self.accepted_at,
            awaiting: None,
        }
    }

    /// Counts the call, if it has ended.
    pub fn count(&self) {
        if let CallState::Ended(ended) = &self.state {
            let took = Duration::try_from(ended.at - self.accepted_at).unwrap_or_default();
            let decision = &ended.decision;
            metrics().finished(&self.tool, decision.outcome, decision.source, took);
        }
    }

    /// The call, as far as it says who hears of it.
    pub fn followed(&self) -> SessionCall<'_> {
        SessionCall {
            tenant: &self.tenant,
            session: self.session.as_ref(),
            tool: &self.tool,
            tool_version: self.tool_version,
        }
    }

    /// The event for a decided call; `None` for one that is not.
    pub fn finished(&self) -> Option<Event> {
        let envelope = self.envelope(false).ok()??;
        let at = match &self.state {
            CallState::InDoubt(doubtful) => doubtful.since,
            CallState::Ended(ended) => ended.at,
            CallState::Queued { .. } | CallState::Running { .. } | CallState::Awaiting(_) => {
                return None;
            }
        };
        Some(Event {
            call_id: self.call_id,
            sequence: Event::sequence(self.rev, 0),
            at,
            what: Happening::Finished {
                state: self.state(),
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
        let (decision, timing, settled_by) = match &self.state {
            CallState::Queued { .. } | CallState::Running { .. } | CallState::Awaiting(_) => {
                return Ok(None);
            }
            CallState::InDoubt(doubtful) => (&doubtful.decision, doubtful.timing, None),
            CallState::Ended(ended) => (&ended.decision, ended.timing, ended.settled_by),
        };
        let decided = DecidedCall {
            call_id: self.call_id,
            tool: self.tool.clone(),
            tool_version: self.tool_version,
            decision: decision.clone(),
            coercions: self.coercions.clone(),
            attempts: self.attempts,
            timing,
        };
        let envelope = decided.envelope();
        let envelope =
            envelope.map_err(|error| StoreError::unreadable("read a finished call", error))?;
        Ok(Some(Envelope {
            replayed,
            settled_by,
            ..envelope
        }))
    }
}
