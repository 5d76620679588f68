//! Pauses: what one of them covers does not start while it holds.

use crate::{
    effects::Mode,
    oracle::{
        case::{Case, breach},
        facts::{Call, How, Pause},
        verdict::Breach,
    },
};

pub(super) const PAUSED: &str = "nothing_starts_while_paused";

/// Every process knows of a control so many milliseconds after it was set, with the bell or without.
const KNOWN_AFTER_MS: i64 = 2_000;
/// What struck a process or the ledger so many milliseconds before a control was set may still keep the process from hearing of it.
const STRUCK_BEFORE_MS: i64 = 5_000;

/// From two seconds after a pause was set until its end no call that it covers is claimed, but by a worker that was stopped or
/// kept from its ledger meanwhile.
pub(super) fn nothing_starts_while_paused(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for pause in &case.facts.ledger.pauses {
        let holds = pause.set_at + KNOWN_AFTER_MS..pause.ended_at;
        let covered = case.calls.values().filter(|call| covers(case, pause, call));
        for attempt in covered.flat_map(|call| case.attempts(&call.call_id)) {
            let mut excuses = case.struck(
                Some(&attempt.worker_id),
                &[How::Paused, How::Ledger, How::Postgres],
                pause.set_at - STRUCK_BEFORE_MS,
                attempt.started_at,
            );
            if !attempt.late && holds.contains(&attempt.started_at) && excuses.next().is_none() {
                let what = format!(
                    "attempt {} was claimed {} ms after control {} was set and {} ms before its end",
                    attempt.number,
                    attempt.started_at - pause.set_at,
                    pause.control_id,
                    pause.ended_at - attempt.started_at,
                );
                breaches.push(breach(PAUSED, &attempt.call_id, what));
            }
        }
    }
    breaches
}

/// Whether a pause covers a call. The value that the operator pauses by is that of a tool that behaves.
fn covers(case: &Case<'_>, pause: &Pause, call: &Call) -> bool {
    let of_tool = pause.tool.as_ref().is_none_or(|tool| *tool == call.tool);
    of_tool && (!pause.has_value || case.mode(call) == Some(Mode::Ok))
}
