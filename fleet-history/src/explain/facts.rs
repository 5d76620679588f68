//! What the views say of one call at one moment. It judges nothing.

use fleet::{
    call::{Awaiting, State},
    ids::CallId,
    lease::LATE,
    modes::InterceptMode,
    obstacle::{Lack, Obstacle},
    store::server_check::Finding,
};
use serde::Deserialize;
use time::OffsetDateTime;

use super::dealt::UnderWay;
use crate::marks::Mark;

/// What the views say of a call at one moment, by Postgres's clock.
#[derive(Debug, Clone, Deserialize)]
pub struct Facts {
    /// The call.
    pub call_id: CallId,
    /// Its tenant.
    pub tenant: String,
    /// Its state.
    pub state: State,
    /// Its tool.
    pub tool: String,
    pub(crate) tool_version: i32,
    pub(crate) queue: String,
    pub(crate) held: bool,
    /// Why it is held, in a word.
    #[serde(default)]
    pub(crate) held_why: Option<String>,
    /// The line in which it is held.
    #[serde(default)]
    pub(crate) line: Option<String>,
    /// The pause for whose end it waits, while that lasts.
    #[serde(default)]
    pub(crate) pause: Option<PauseFacts>,
    /// The other pauses that cover it; of one that waits for a yes, all.
    #[serde(default)]
    pub(crate) other_pauses: Vec<PauseFacts>,
    /// The breaker for which it waits.
    #[serde(default)]
    pub(crate) breaker: Option<BreakerFacts>,
    /// The call whose answer it waits for, while that is open.
    #[serde(default)]
    pub(crate) leader: Option<LeaderFacts>,
    /// The mode in which no answer is shared, where it follows another call.
    #[serde(default)]
    pub(crate) uncached: Option<UncachedFacts>,
    /// Calls of its tenant that are before it in the line, up to 10,000.
    #[serde(default)]
    pub(crate) ahead: Option<i64>,
    /// Other tenants with calls in the line.
    #[serde(default)]
    pub(crate) others: Option<i64>,
    /// Calls of its queue that are under way, where its tenant's share keeps it waiting: its own tenant's first, then those of
    /// the tenants with the most.
    #[serde(default)]
    pub(crate) under_way: Vec<TenantCalls>,
    pub(crate) cancel_requested: bool,
    /// Who has asked it to stop, while it runs.
    #[serde(default)]
    pub(crate) asked_to_stop: Option<TakenBack>,
    pub(crate) attempts: i32,
    pub(crate) error_code: Option<String>,
    /// What the last worker that put it back lacked.
    #[serde(default)]
    pub(crate) obstacle: Option<Obstacle>,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) now: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) accepted_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) not_before: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) deadline_at: OffsetDateTime,
    /// Whether this version of its tool is applied.
    pub(crate) tool_known: bool,
    /// The limit of its tool, where it has one.
    pub(crate) tool_limit: Option<ToolLimit>,
    /// How many attempts of its tool start in a time, where that is limited and operators let the limit count.
    #[serde(default)]
    pub(crate) rate: Option<RateFacts>,
    /// Of a held call that does not wait for a breaker: what the one of its tool does, with `forced ` where an operator says so.
    #[serde(default)]
    pub(crate) behind_breaker: Option<String>,
    /// The workers of its queue that count as live. A killed worker does until its lease is over.
    pub(crate) workers: Vec<Worker>,
    /// Running calls of its queue, on all workers.
    pub(crate) queue_running: i64,
    /// The attempt that runs.
    pub(crate) attempt: Option<Running>,
    /// What it waits for, where that is a yes.
    #[serde(default)]
    pub(crate) approval: Option<ApprovalFacts>,
    /// What it waits for, where that is its tool's answer, or what its tool has asked for.
    #[serde(default)]
    pub(crate) wait: Option<WaitFacts>,
    /// What is known of its doubt.
    pub(crate) doubt: Option<Doubt>,
    /// Its last move that was not a remark.
    pub(crate) last: Move,
    /// What the history has about its end; `None` while it is open.
    #[serde(default)]
    pub(crate) ended: Option<EndedFacts>,
    /// Why NATS does not answer, and what to do, where that was looked for and is so.
    #[serde(skip)]
    pub(crate) nats_away: Option<Finding>,
}

impl Facts {
    /// Whether it can only go on through NATS, so that it matters whether NATS answers.
    pub fn waits_for_nats(&self) -> bool {
        self.state == State::Queued && self.deadline_at > self.now
    }

    /// Adds that NATS does not answer.
    pub fn nats_is_away(&mut self, finding: Finding) {
        self.nats_away = Some(finding);
    }
}

/// For whom it waits, since when and until when.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct WaitFacts {
    pub(crate) whom: Awaiting,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) since: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) until: OffsetDateTime,
}

/// Whose yes it waits for, and until when.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ApprovalFacts {
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) since: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) until: OffsetDateTime,
    pub(crate) by: String,
    pub(crate) given: i64,
    pub(crate) needed: i64,
    pub(crate) reason: Option<String>,
    /// Whether the program of its caller runs it after the yes.
    #[serde(default)]
    pub(crate) run_by_client: bool,
    /// Who has said yes.
    #[serde(default)]
    pub(crate) approved_by: Option<Vec<String>>,
}

/// How many calls a tenant has.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct TenantCalls {
    pub(crate) tenant: String,
    pub(crate) calls: i64,
}

/// Who paused it, why and until when.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PauseFacts {
    pub(crate) control_id: i64,
    pub(crate) actor: String,
    pub(crate) note: String,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) set_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) expires_at: Option<OffsetDateTime>,
}

/// What its target's breaker does, since when and until when.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct BreakerFacts {
    pub(crate) target: String,
    pub(crate) state: String,
    /// What an operator has forced it to be.
    pub(crate) forced: Option<String>,
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) opened_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) open_until: Option<OffsetDateTime>,
    pub(crate) why: Option<OpenedBy>,
}

/// A call that others follow.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct LeaderFacts {
    pub(crate) call_id: CallId,
    pub(crate) state: String,
    /// Whether it fetches the answer for them: not after a purge.
    pub(crate) fetches: bool,
}

/// The control that keeps a cache from answering.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct UncachedFacts {
    pub(crate) mode: InterceptMode,
    pub(crate) control_id: i64,
    pub(crate) actor: String,
    pub(crate) note: String,
}

/// What was counted when a breaker opened.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct OpenedBy {
    pub(crate) calls: i64,
    pub(crate) failures: i64,
    pub(crate) slow: i64,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct ToolLimit {
    pub(crate) at_a_time: i64,
    pub(crate) running: i64,
}

/// How many attempts may start in which time, and when the next one may.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RateFacts {
    /// The tool's name, or the one of a shared limit.
    pub(crate) name: String,
    /// `tool`, `tenant`, `argument` or `share`.
    pub(crate) shared_by: String,
    /// The argument whose values have start times of their own, a JSON pointer.
    #[serde(default)]
    pub(crate) pointer: Option<String>,
    /// Nothing where a shared limit is not set.
    pub(crate) calls: Option<i64>,
    pub(crate) per_ms: Option<i64>,
    /// The start time that is free next; none where one is free now.
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) next_start_at: Option<OffsetDateTime>,
    /// Until when a remote has asked to be left alone.
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) closed_until: Option<OffsetDateTime>,
}

/// A worker of the call's queue, as the ledger has it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Worker {
    pub(crate) name: String,
    /// Its share of slots for this queue.
    pub(crate) slots: i64,
    /// Calls that it runs, of all its queues.
    pub(crate) running: i64,
    /// Seconds since its last heartbeat.
    pub(crate) silent_s: f64,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Running {
    pub(crate) number: i32,
    pub(crate) worker: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) started_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) until: OffsetDateTime,
    /// Its worker's state; none when the worker's row is gone.
    pub(crate) worker_state: Option<String>,
    /// Seconds since the last heartbeat of its worker.
    #[serde(default)]
    pub(crate) worker_silent_s: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Doubt {
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) since: OffsetDateTime,
    pub(crate) why: String,
    /// What its attempt came to.
    #[serde(default)]
    pub(crate) cause: Option<Cause>,
    pub(crate) worker_fenced: bool,
    /// Whether the program of its caller has it, or had it, and no worker.
    #[serde(default)]
    pub(crate) by_client: bool,
    /// Whether its tool had said that it would answer later, and had it when it went in doubt.
    #[serde(default)]
    pub(crate) by_tool: bool,
    pub(crate) quarantined: bool,
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) attempt_until: Option<OffsetDateTime>,
    pub(crate) probes: i32,
    pub(crate) probe_state: Option<String>,
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) next_probe_at: Option<OffsetDateTime>,
}

/// What went wrong in the attempt of a doubt.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Cause {
    pub(crate) message: Option<String>,
    /// The end of what its program wrote on standard error.
    #[serde(default)]
    pub(crate) stderr: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Move {
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) at: OffsetDateTime,
    pub(crate) from_state: Option<String>,
    pub(crate) actor: String,
    /// The actor's name, if it is a worker that is still known.
    #[serde(default)]
    pub(crate) worker: Option<String>,
    pub(crate) reason: String,
    pub(crate) note: Option<String>,
    pub(crate) by_time_only: bool,
    /// The call that had got the answer, where a kept one ended this.
    #[serde(default)]
    pub(crate) answer_of: Option<String>,
}

/// An answer that stood in for that of the call's tool.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct DegradedFacts {
    pub(crate) kind: String,
    pub(crate) age_ms: Option<f64>,
    pub(crate) tool: Option<String>,
}

/// What the history has about a call that is over.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct EndedFacts {
    /// The message that its caller got, in the call's language.
    pub(crate) message: Option<String>,
    /// Whether its tool's retry budget allowed no further attempt.
    #[serde(default)]
    pub(crate) suppressed: bool,
    /// Whose answer its caller got, where one stood in for its tool's.
    #[serde(default)]
    pub(crate) degraded: Option<DegradedFacts>,
    /// How many workers it has lost, the last one included.
    pub(crate) lost: i64,
    /// How many losses its tool allows.
    pub(crate) losses_allowed: i64,
    /// Workers of its queue that lived at some time while it was open.
    pub(crate) workers_meanwhile: i64,
    /// What the last worker that put it back lacked, since its last attempt began.
    pub(crate) lacked: Option<Lacked>,
    /// Where it was held when it expired.
    #[serde(default)]
    pub(crate) held: Option<HeldFacts>,
    /// Whether Postgres lost writes while it was open.
    pub(crate) quarantined: bool,
    /// When and why it went in doubt.
    pub(crate) doubt: Option<Doubted>,
    /// Who cancelled it first.
    pub(crate) taken_back: Option<TakenBack>,
    /// Its last attempt.
    pub(crate) attempt: Option<Last>,
    /// Its newest mark that says what was done about it.
    #[serde(default)]
    pub(crate) dealt: Option<Mark>,
    /// Who makes it again and has not marked it.
    #[serde(default)]
    pub(crate) under_way: Option<UnderWay>,
}

/// The line in which a call waited to its end.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct HeldFacts {
    /// As the ledger wrote it: a newer release may write others.
    pub(crate) line: String,
    /// The pause of that line.
    pub(crate) pause: Option<Brake>,
    /// The control that forced its breaker open then.
    pub(crate) forced: Option<Brake>,
}

/// A control as the log has it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Brake {
    pub(crate) control_id: i64,
    pub(crate) actor: String,
    pub(crate) note: String,
}

/// As a remark in the history has it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Lacked {
    pub(crate) lack: Lack,
    pub(crate) secret: Option<String>,
    pub(crate) why: String,
    pub(crate) worker: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Doubted {
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) at: OffsetDateTime,
    pub(crate) reason: String,
    /// Who cancelled it, where that made it a doubt.
    #[serde(default)]
    pub(crate) cancelled_by: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct TakenBack {
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) at: OffsetDateTime,
    pub(crate) actor: String,
    pub(crate) note: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Last {
    pub(crate) number: i32,
    pub(crate) worker: Option<String>,
    pub(crate) code: Option<String>,
    /// How long it was given.
    #[serde(default)]
    pub(crate) timeout_ms: Option<i64>,
    /// When that was over.
    #[serde(default, with = "time::serde::rfc3339::option")]
    pub(crate) until: Option<OffsetDateTime>,
}

/// Whether a worker has been silent for longer than a live one is: its slots are not counted.
pub(super) fn is_late(silent_s: &f64) -> bool {
    *silent_s > LATE.as_secs_f64()
}
