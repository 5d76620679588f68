//! **Why is this call not running, or not finished, and how did it end?** One reason, the first that holds, from what the
//! views say of it. `waiting` has those of a call that no worker runs yet, `ended` those of one that is over.

mod ended;
mod waiting;

use fleet::{
    call::State,
    lease::{LATE, LEASE},
    obstacle::Obstacle,
};
use serde::Deserialize;
use time::OffsetDateTime;

use crate::commands::output::instant;

/// What the views say of a call at one moment, by Postgres's clock.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Facts {
    pub(super) state: State,
    pub(super) tool: String,
    pub(super) tool_version: i32,
    pub(super) queue: String,
    pub(super) held: bool,
    /// What it is held for, in a word.
    #[serde(default)]
    pub(super) held_why: Option<String>,
    /// Where it waits while it is held.
    #[serde(default)]
    pub(super) line: Option<String>,
    /// Calls of its tenant that are before it there, up to 10,000.
    #[serde(default)]
    pub(super) ahead: Option<i64>,
    /// Other tenants that have calls there.
    #[serde(default)]
    pub(super) others: Option<i64>,
    pub(super) cancel_requested: bool,
    pub(super) attempts: i32,
    pub(super) error_code: Option<String>,
    /// What a worker lacked that put it back last.
    #[serde(default)]
    pub(super) obstacle: Option<Obstacle>,
    #[serde(with = "time::serde::rfc3339")]
    pub(super) now: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub(super) accepted_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339::option")]
    pub(super) not_before: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339")]
    pub(super) deadline_at: OffsetDateTime,
    /// Whether this version of its tool is applied.
    pub(super) tool_known: bool,
    /// How often its tool runs at a time, where it has a limit.
    pub(super) tool_limit: Option<ToolLimit>,
    /// The workers of its queue that count as live: who was killed does so until its lease is over.
    pub(super) workers: Vec<Worker>,
    /// Calls of its queue that run, wherever.
    pub(super) queue_running: i64,
    /// The attempt that runs.
    pub(super) attempt: Option<Running>,
    /// What is known of its doubt.
    pub(super) doubt: Option<Doubt>,
    /// Its last move that was no remark.
    pub(super) last: Move,
    /// What history holds of how it ended; none while it is open.
    #[serde(default)]
    ended: Option<ended::History>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct ToolLimit {
    at_a_time: i64,
    running: i64,
}

/// A worker of the call's queue, as far as the ledger knows.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Worker {
    name: String,
    /// Its share of slots for this queue.
    slots: i64,
    /// Calls that it runs, of all its queues.
    running: i64,
    /// How long ago it last said that it lives, in seconds.
    silent_s: f64,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Running {
    number: i32,
    worker: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    started_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    until: OffsetDateTime,
    /// Its worker's state; none when the worker's row is gone.
    worker_state: Option<String>,
    /// How long ago its worker last said that it lives, in seconds.
    #[serde(default)]
    worker_silent_s: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Doubt {
    #[serde(with = "time::serde::rfc3339")]
    since: OffsetDateTime,
    why: String,
    worker_fenced: bool,
    quarantined: bool,
    #[serde(with = "time::serde::rfc3339::option")]
    attempt_until: Option<OffsetDateTime>,
    probes: i32,
    probe_state: Option<String>,
    #[serde(with = "time::serde::rfc3339::option")]
    next_probe_at: Option<OffsetDateTime>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Move {
    #[serde(with = "time::serde::rfc3339")]
    at: OffsetDateTime,
    from_state: Option<String>,
    actor: String,
    reason: String,
    note: Option<String>,
    by_time_only: bool,
}

/// The reason, as a word, as a sentence, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Explanation {
    pub(super) reason: &'static str,
    pub(super) because: String,
    pub(super) next: String,
}

/// So many of them.
fn counted(number: i64, one: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {one}{s}")
}

/// The one reason.
pub(super) fn explain(facts: &Facts) -> Explanation {
    match facts.state {
        State::Queued => waiting::queued(facts),
        State::Running => running(facts),
        State::InDoubt => in_doubt(facts),
        State::AwaitingClient => because("awaiting_client", "it waits for its caller", "wait"),
        State::Succeeded | State::Failed | State::Cancelled | State::Expired => ended::ended(facts),
    }
}

fn because(
    reason: &'static str,
    because: impl Into<String>,
    next: impl Into<String>,
) -> Explanation {
    Explanation {
        reason,
        because: because.into(),
        next: next.into(),
    }
}

/// Whether a worker has been silent for longer than one that lives is: nobody counts on it.
fn is_late(silent_s: &f64) -> bool {
    *silent_s > LATE.as_secs_f64()
}

fn running(facts: &Facts) -> Explanation {
    let Some(attempt) = &facts.attempt else {
        return because("running", "a worker runs it", "wait");
    };
    let worker = attempt.worker.as_deref().unwrap_or("unknown");
    let (number, since) = (attempt.number, instant(attempt.started_at));
    let alive = matches!(attempt.worker_state.as_deref(), Some("live" | "draining"));
    if !alive {
        let state = attempt.worker_state.as_deref().unwrap_or("gone");
        return because(
            "worker_lost",
            format!("its worker {worker} is {state} since attempt {number} began at {since}"),
            "the sweep of a dispatcher decides about it within seconds: another attempt, or in doubt; if it stays so, no dispatcher runs",
        );
    }
    if let Some(silent_s) = attempt.worker_silent_s.filter(is_late) {
        let (seconds, lease) = (silent_s.round(), LEASE.as_secs());
        return because(
            "silent_worker",
            format!(
                "attempt {number} began on worker {worker} at {since}, and that worker has been silent for {seconds} s: it may be dead"
            ),
            format!(
                "see whether it runs; when it has been silent for {lease} s a dispatcher decides about the call: another attempt, or in doubt. If \
                 it stays so, no dispatcher runs"
            ),
        );
    }
    if facts.cancel_requested {
        return because(
            "cancel_requested",
            format!("attempt {number} runs on worker {worker} since {since} and was asked to stop"),
            "wait: how it ends is up to the attempt",
        );
    }
    let until = instant(attempt.until);
    if attempt.until <= facts.now {
        return because(
            "overdue_attempt",
            format!("attempt {number} on worker {worker} should have ended at {until}"),
            "wait: its worker reports within seconds, or the sweep of a dispatcher takes it as lost; if it stays so, no dispatcher runs",
        );
    }
    because(
        "running",
        format!("attempt {number} runs on worker {worker} since {since}, until {until} at most"),
        "wait",
    )
}

fn in_doubt(facts: &Facts) -> Explanation {
    let Some(doubt) = &facts.doubt else {
        return because("in_doubt", "it may or may not have had its effect", "wait");
    };
    let mut what = format!(
        "it may or may not have had its effect, since {}: {}",
        instant(doubt.since),
        doubt.why
    );
    if doubt.probes > 0 {
        let found = doubt.probe_state.as_deref().unwrap_or("no answer yet");
        what = format!(
            "{what}; its probe has asked {} times: {found}",
            doubt.probes
        );
    }
    let acts = doubt.attempt_until.filter(|until| *until > facts.now);
    let look = "look the effect up in the remote system, then record it: toolfleet calls settle";
    if let Some(until) = acts {
        return because(
            "in_doubt_early",
            what,
            format!(
                "wait until {}: its attempt may still act; then {look}",
                instant(until)
            ),
        );
    }
    if doubt.quarantined {
        return because(
            "in_doubt_quarantined",
            format!("{what}; Postgres lost writes, so which attempts there were cannot be known"),
            format!("{look}; that it was not applied you can only decide --by-time-only"),
        );
    }
    if !doubt.worker_fenced {
        return because(
            "in_doubt_not_fenced",
            format!("{what}; its worker is not proven gone"),
            format!(
                "{look}; that it was not applied can be recorded once the worker is proven gone, by itself or with toolfleet workers fence"
            ),
        );
    }
    match doubt.next_probe_at.filter(|_| doubt.probes > 0) {
        Some(at) => {
            let when = match at > facts.now {
                true => format!("its probe asks again at {}", instant(at)),
                false => format!(
                    "its probe is due since {}, and a dispatcher asks it: if it stays so, none runs",
                    instant(at)
                ),
            };
            because("in_doubt_probing", what, format!("{when}; or {look}"))
        }
        None => because("in_doubt", what, look),
    }
}

#[cfg(test)]
mod tests;
