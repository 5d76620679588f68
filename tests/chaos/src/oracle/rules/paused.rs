//! Pauses and breakers that are forced open: what one of them covers does not start while it holds.

use crate::{
    effects::Mode,
    oracle::{
        case::{Case, breach},
        facts::{Call, How, Moment, Pause},
        verdict::Breach,
    },
};

pub(super) const PAUSED: &str = "nothing_starts_while_paused";
pub(super) const FORCED: &str = "nothing_starts_while_forced_open";

/// Every process knows of a control so many milliseconds after it was set, with the bell or without.
const KNOWN_AFTER_MS: i64 = 2_000;
/// What struck a process or the ledger so many milliseconds before a control was set may still keep the process from hearing of it.
const STRUCK_BEFORE_MS: i64 = 5_000;

/// From two seconds after a pause was set until its end no call that it covers is claimed, but by a worker that was stopped or
/// kept from its ledger meanwhile.
pub(super) fn nothing_starts_while_paused(case: &Case<'_>) -> Vec<Breach> {
    let pauses = case.facts.ledger.pauses.iter();
    let started = pauses.flat_map(|pause| {
        let covered = |call: &Call| covers(case, pause, call);
        let (id, set_at, ended_at) = (pause.control_id, pause.set_at, pause.ended_at);
        started_within(case, PAUSED, (id, set_at, ended_at), covered)
    });
    started.collect()
}

/// The same for breakers that are forced open.
pub(super) fn nothing_starts_while_forced_open(case: &Case<'_>) -> Vec<Breach> {
    let forced = case
        .facts
        .ledger
        .forced
        .iter()
        .filter(|forced| forced.is_open);
    let started = forced.flat_map(|forced| {
        let covered = |call: &Call| call.tool == forced.tool;
        let (id, set_at, ended_at) = (forced.control_id, forced.set_at, forced.ended_at);
        started_within(case, FORCED, (id, set_at, ended_at), covered)
    });
    started.collect()
}

fn started_within(
    case: &Case<'_>,
    rule: &'static str,
    (control, set_at, ended_at): (i64, Moment, Moment),
    covers: impl Fn(&Call) -> bool,
) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let holds = set_at + KNOWN_AFTER_MS..ended_at;
    let covered = case.calls.values().filter(|call| covers(call));
    for attempt in covered.flat_map(|call| case.attempts(&call.call_id)) {
        let mut excuses = case.struck(
            attempt.worker_id.as_deref(),
            &[How::Paused, How::Ledger, How::Postgres],
            set_at - STRUCK_BEFORE_MS,
            attempt.started_at,
        );
        // What its caller runs no worker starts.
        let by_worker = !attempt.late && attempt.worker_id.is_some();
        if by_worker && holds.contains(&attempt.started_at) && excuses.next().is_none() {
            let what = format!(
                "attempt {} was claimed {} ms after control {control} was set and {} ms before its end",
                attempt.number,
                attempt.started_at - set_at,
                ended_at - attempt.started_at,
            );
            breaches.push(breach(rule, &attempt.call_id, what));
        }
    }
    breaches
}

/// Whether a pause covers a call. The value that the operator pauses by is that of a tool that behaves.
fn covers(case: &Case<'_>, pause: &Pause, call: &Call) -> bool {
    let of_tool = pause.tool.as_ref().is_none_or(|tool| *tool == call.tool);
    of_tool && (!pause.has_value || case.mode(call) == Some(Mode::Ok))
}
