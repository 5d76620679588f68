//! **Why is this call not running, or not finished?** One reason, the first that holds, from what the views say of it.

use fleet::{
    call::State,
    obstacle::{Lack, Obstacle},
    secrets::Secrets,
};
use serde::Deserialize;
use time::{Duration, OffsetDateTime};

use crate::commands::output::instant;

/// What the views say of a call at one moment, by Postgres's clock.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Facts {
    pub(super) state: State,
    pub(super) tool: String,
    pub(super) tool_version: i32,
    pub(super) queue: String,
    pub(super) held: bool,
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
    /// The live workers of its queue.
    pub(super) workers: Workers,
    /// The attempt that runs.
    pub(super) attempt: Option<Running>,
    /// What is known of its doubt.
    pub(super) doubt: Option<Doubt>,
    /// Its last move that was no remark.
    pub(super) last: Move,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct ToolLimit {
    at_a_time: i64,
    running: i64,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Workers {
    live: i64,
    slots: i64,
    running: i64,
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

/// How long a pointer may take from its call to a worker with a free slot.
const PUBLISHED_JUST_NOW: Duration = Duration::seconds(5);

/// The one reason.
pub(super) fn explain(facts: &Facts) -> Explanation {
    match facts.state {
        State::Queued => queued(facts),
        State::Running => running(facts),
        State::InDoubt => in_doubt(facts),
        State::AwaitingClient => because("awaiting_client", "it waits for its caller", "wait"),
        State::Succeeded | State::Failed | State::Cancelled | State::Expired => ended(facts),
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

/// From what no worker can help to what only takes a moment.
fn queued(facts: &Facts) -> Explanation {
    let (queue, workers) = (&facts.queue, facts.workers);
    if facts.deadline_at <= facts.now {
        let passed = instant(facts.deadline_at);
        return because(
            "overdue",
            format!("its deadline passed at {passed}; it will not run"),
            "the sweep of a dispatcher ends it within seconds; if it stays, no dispatcher runs",
        );
    }
    if !facts.tool_known {
        let (tool, version) = (&facts.tool, facts.tool_version);
        return because(
            "unknown_tool_version",
            format!("version {version} of the tool {tool} is not applied in this database"),
            "apply that version, or take the call back",
        );
    }
    if facts.held {
        return held(facts);
    }
    let ready = facts.not_before.unwrap_or(facts.accepted_at);
    if ready > facts.now {
        let at = instant(ready);
        if let Some(obstacle) = &facts.obstacle {
            return put_back(obstacle, &at);
        }
        let code = facts.error_code.as_deref().unwrap_or("an error");
        return if facts.attempts > 0 && facts.last.reason != "accepted" {
            let what = format!(
                "attempt {} ended with {code}; the next one starts at {at}",
                facts.attempts
            );
            because("retry_wait", what, "wait")
        } else {
            because(
                "postponed",
                format!("a worker could not run it and put it back until {at}"),
                "look at the worker's log: it lacks the tool's version, or a secret, a handler or a database that the tool needs",
            )
        };
    }
    if workers.live == 0 {
        return because(
            "no_worker",
            format!("no live worker pulls from its queue {queue}"),
            format!("start one: toolfleet worker --queues {queue}"),
        );
    }
    if workers.running >= workers.slots {
        let (live, slots, running) = (workers.live, workers.slots, workers.running);
        return because(
            "no_free_slot",
            format!(
                "the {live} live workers of its queue {queue} run {running} calls and have {slots} slots for it"
            ),
            "wait, or start more workers",
        );
    }
    if facts.now - ready.max(facts.last.at) < PUBLISHED_JUST_NOW {
        return because(
            "published",
            format!("its pointer has just been published; a worker of its queue {queue} is free"),
            "wait a moment",
        );
    }
    because(
        "not_taken",
        format!("a worker of its queue {queue} is free and has not taken it"),
        "look whether NATS is up and at toolfleet_skipped_claims_total of the workers; \
         a dispatcher publishes its pointer again every few seconds",
    )
}

/// A worker could not run it: which one, what it lacks, and where that comes from.
fn put_back(obstacle: &Obstacle, until: &str) -> Explanation {
    let (worker, why) = (&obstacle.worker, &obstacle.why);
    let next = match (obstacle.lack, &obstacle.secret) {
        (Lack::Secret, Some(secret)) => format!(
            "put a file {secret} into the folder of the workers' --secrets, or start them with {}{secret}; \
             toolfleet doctor lists what no worker can run",
            Secrets::VARIABLE_PREFIX
        ),
        (Lack::ProgramSlot, _) => {
            "wait; more workers, or a higher --programs where the machine bears it, let more run"
                .to_owned()
        }
        (Lack::Secret | Lack::Ability | Lack::ToolVersion, _) => {
            "start a worker that has it; toolfleet doctor lists what no worker can run".to_owned()
        }
    };
    let reason = match obstacle.lack {
        Lack::Secret => "missing_secret",
        Lack::ProgramSlot => "no_program_slot",
        Lack::ToolVersion | Lack::Ability => "postponed",
    };
    because(
        reason,
        format!("worker {worker} could not run it and put it back until {until}: {why}"),
        next,
    )
}

/// It waits in the ledger for its turn: behind whom, and who works that off.
fn held(facts: &Facts) -> Explanation {
    let (queue, workers) = (&facts.queue, facts.workers);
    let ahead = match facts.ahead.unwrap_or(0) {
        AHEAD_MAX.. => format!("{AHEAD_MAX} or more calls of its tenant are"),
        0 => "no call of its tenant is".to_owned(),
        1 => "1 call of its tenant is".to_owned(),
        some => format!("{some} calls of its tenant are"),
    };
    let line = facts.line.as_deref().unwrap_or(queue);
    let mut behind = format!("{ahead} before it in the line {line}");
    if let Some(others @ 1..) = facts.others {
        let tenants = if others == 1 {
            "tenant shares"
        } else {
            "tenants share"
        };
        behind = format!("{behind}, which {others} other {tenants} in turn");
    }
    if workers.live == 0 {
        return because(
            "no_worker",
            format!(
                "no live worker pulls from its queue {queue}; it waits in the ledger, and {behind}"
            ),
            format!("start one: toolfleet worker --queues {queue}"),
        );
    }
    if let Some(ToolLimit { at_a_time, running }) = facts.tool_limit {
        let tool = &facts.tool;
        return because(
            "tool_limit",
            format!(
                "its tool {tool} runs {at_a_time} at a time over the whole fleet; {running} run now, and {behind}"
            ),
            format!(
                "wait; toolfleet.slots says what runs, and a higher `concurrency` in a new version of {tool} lets more run"
            ),
        );
    }
    let (live, slots) = (workers.live, workers.slots);
    let of_workers = if live == 1 {
        "the live worker".to_owned()
    } else {
        format!("the {live} live workers")
    };
    because(
        "held",
        format!(
            "more calls wait than the {slots} slots of {of_workers} of its queue {queue} take: {behind}"
        ),
        "wait for its turn, or start more workers (docs/fairness.md says whose turn it is)",
    )
}

/// So many are counted.
const AHEAD_MAX: i64 = 10_000;

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
            "the sweep decides about it within seconds: another attempt, or in doubt",
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
            "wait: its worker reports within seconds, or the sweep takes it as lost",
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
        Some(at) => because(
            "in_doubt_probing",
            what,
            format!("its probe asks again at {}; or {look}", instant(at)),
        ),
        None => because("in_doubt", what, look),
    }
}

fn ended(facts: &Facts) -> Explanation {
    let last = &facts.last;
    let (at, actor) = (instant(last.at), &last.actor);
    let settled = last.from_state.as_deref() == Some("in_doubt") && last.note.is_some();
    let mut what = match (settled, facts.error_code.as_deref()) {
        (true, _) => format!("it was in doubt and settled at {at} by {actor}"),
        (false, Some(code)) => format!("it ended at {at} by {actor} with {code}"),
        (false, None) => format!("it ended at {at} by {actor}"),
    };
    if last.by_time_only {
        what.push_str(", by time only: something of its attempts may have been alive");
    }
    if let Some(note) = &last.note {
        what = format!("{what}: {note}");
    }
    let next = match facts.state {
        State::Succeeded => "nothing: toolfleet calls show has its result",
        _ => {
            "toolfleet calls show has the whole story; toolfleet calls retry makes a new call of it"
        }
    };
    because(if settled { "settled" } else { "ended" }, what, next)
}

#[cfg(test)]
mod tests;
