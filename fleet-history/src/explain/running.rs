//! Why a call with an attempt is not over: it runs, its worker is silent, or it is in doubt.

use fleet::{lease::LEASE, wire::code::Code};

use super::{
    awaiting::whose,
    explanation::{Explanation, because},
    facts::{Cause, Doubt, Facts, is_late},
};
use crate::instant::instant;

pub(super) fn running(facts: &Facts) -> Explanation {
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
            "the sweep of a dispatcher decides about it within seconds: another attempt, or in doubt; if it stays so, toolfleet doctor says what keeps it from that",
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
                 it stays so, toolfleet doctor says what keeps it from that"
            ),
        );
    }
    if facts.cancel_requested {
        let by = facts.asked_to_stop.as_ref();
        let by = by.map_or_else(String::new, |asked| {
            let note = asked.note.as_ref();
            let note = note.map_or_else(String::new, |note| format!(": {note}"));
            format!(" at {} by {}{note}", instant(asked.at), asked.actor)
        });
        return because(
            "cancel_requested",
            format!(
                "attempt {number} runs on worker {worker} since {since} and was asked to stop{by}"
            ),
            "wait: how it ends is up to the attempt",
        );
    }
    let until = instant(attempt.until);
    if attempt.until <= facts.now {
        return because(
            "overdue_attempt",
            format!("attempt {number} on worker {worker} should have ended at {until}"),
            "wait: its worker reports within seconds, or the sweep of a dispatcher takes it as lost; if it stays so, toolfleet doctor says what keeps them from it",
        );
    }
    because(
        "running",
        format!("attempt {number} runs on worker {worker} since {since}, until {until} at most"),
        "wait",
    )
}

/// How much of what a program wrote is told.
const STDERR_MAX: usize = 300;

/// What its attempt came to, and the last that its program wrote.
fn said(cause: &Cause) -> String {
    let message = cause.message.as_ref();
    let mut said = message.map_or_else(String::new, |message| format!(" ({message})"));
    if let Some(stderr) = cause
        .stderr
        .as_deref()
        .map(str::trim)
        .filter(|text| !text.is_empty())
    {
        let skipped = stderr.chars().count().saturating_sub(STDERR_MAX);
        let end: String = stderr.chars().skip(skipped).collect();
        said = format!("{said}, and its program wrote last: {end}");
    }
    said
}

/// Whether it had its effect is unknown.
pub(super) fn in_doubt(facts: &Facts) -> Explanation {
    let Some(doubt) = &facts.doubt else {
        return because("in_doubt", "it may or may not have had its effect", "wait");
    };
    let mut what = format!(
        "it may or may not have had its effect, since {}: {}{}",
        instant(doubt.since),
        doubt.why,
        cancelled_by(facts)
    );
    if let Some(cause) = &doubt.cause {
        what.push_str(&said(cause));
    }
    if doubt.probes > 0 {
        let found = doubt.probe_state.as_deref().unwrap_or("no answer yet");
        what = format!(
            "{what}; its probe has asked {} times: {found}",
            doubt.probes
        );
    }
    kind(facts, doubt, what).with_commands(settling(facts, doubt))
}

/// Who cancelled it, and why, where that made it a doubt.
fn cancelled_by(facts: &Facts) -> String {
    let last = &facts.last;
    if last.reason != Code::Cancelled.as_str() {
        return String::new();
    }
    let note = last.note.as_ref();
    let note = note.map_or_else(String::new, |note| format!(": {note}"));
    format!(" by {}{note}", last.actor)
}

/// The commands that record what was found.
fn settling(facts: &Facts, doubt: &Doubt) -> [String; 2] {
    let (call, whose) = (facts.call_id, whose(facts));
    let anyway = match doubt.quarantined || doubt.by_client {
        true => " --by-time-only",
        false => "",
    };
    let settle = format!("toolfleet calls settle {call}{whose} --outcome");
    [
        format!("{settle} applied --note \"HOW YOU KNOW\""),
        format!("{settle} not_applied{anyway} --note \"HOW YOU KNOW\""),
    ]
}

/// What may still settle it besides a person.
fn late_answer(doubt: &Doubt) -> &'static str {
    if doubt.by_client {
        "; what that program still hands in settles it, too (docs/client-tools.md)"
    } else if doubt.by_tool {
        "; what that tool still hands in settles it, too (docs/completion.md)"
    } else {
        ""
    }
}

/// Which doubt it is: what keeps it, and what ends it.
fn kind(facts: &Facts, doubt: &Doubt, what: String) -> Explanation {
    let look = "look the effect up in the remote system, then record it as applied, as not_applied, or for ever as abandoned where nobody will ever know";
    let late = late_answer(doubt);
    if let Some(until) = doubt.attempt_until.filter(|until| *until > facts.now) {
        let by_time = match doubt.by_client {
            true => {
                ", and a person can only decide that --by-time-only, for nobody can prove that the program of its caller does not act any more"
            }
            false => "",
        };
        return because(
            "in_doubt_early",
            what,
            format!(
                "{look}; that it was applied can be recorded at once, that it was not only after {}, for its attempt may still act until \
                 then{by_time}{late}",
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
    if doubt.by_client {
        return because(
            "in_doubt_client",
            format!(
                "{what}; the program of its caller had it, and nobody can prove that it does not act any more"
            ),
            format!(
                "{look}{late}; that it was not applied a person can only decide --by-time-only"
            ),
        );
    }
    if doubt.by_tool && doubt.probes == 0 {
        return because(
            "in_doubt_completion",
            format!("{what}; its tool had taken it, and had said that it would answer later"),
            format!("{look}{late}"),
        );
    }
    if !doubt.worker_fenced {
        return because(
            "in_doubt_not_fenced",
            format!("{what}; its worker is not proven gone"),
            format!(
                "{look}; that it was applied can be recorded at once, that it was not only once the worker is proven gone, by itself or with \
                 toolfleet workers fence"
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
            because("in_doubt_probing", what, format!("{when}; or {look}{late}"))
        }
        None => because("in_doubt", what, look),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_says_what_its_attempt_came_to_and_the_end_of_what_its_program_wrote() {
        let cause = |stderr: Option<String>| Cause {
            message: Some("The tool ended with exit code 3.".to_owned()),
            stderr,
        };
        let silent = " (The tool ended with exit code 3.)";
        assert_eq!(said(&cause(None)), silent);
        assert_eq!(said(&cause(Some("\n".to_owned()))), silent);
        let told = said(&cause(Some("x".repeat(400) + " no route\n")));
        let begin = "(The tool ended with exit code 3.), and its program wrote last: xxx";
        assert!(
            told.contains(begin) && told.ends_with("xxx no route"),
            "{told}"
        );
        assert!(told.len() < 400, "{told}");
    }
}
