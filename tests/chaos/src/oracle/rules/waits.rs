//! Breakers and lines: nobody waits without a cause, and an open breaker ends no call that may have had its effect.

use crate::oracle::{
    case::{Case, breach},
    facts::{Call, Moment},
    verdict::Breach,
};

pub(super) const NOBODY: &str = "nothing_waits_for_nobody";
pub(super) const AGAIN: &str = "an_open_breaker_tries_again";
pub(super) const UNKNOWN: &str = "an_open_breaker_ends_nothing_unknown";

/// When everything has healed, and every pause and forced breaker is taken back, no call stands in a line that waits for nothing.
pub(super) fn nothing_waits_for_nobody(case: &Case<'_>) -> Vec<Breach> {
    let held = case.facts.ledger.held.iter();
    let without = held.filter(|held| !held.has_cause);
    without
        .map(|held| {
            let what = format!(
                "it is held in the line {}, which waits for nothing",
                held.line
            );
            breach(NOBODY, &held.call_id, what)
        })
        .collect()
}

/// A call that an open breaker has ended had no attempt that may have had its effect.
pub(super) fn an_open_breaker_ends_nothing_unknown(case: &Case<'_>) -> Vec<Breach> {
    let ended = case.calls.values().filter(|call| is_ended_by_breaker(call));
    let unknown = ended.filter(|call| {
        let mut attempts = case.attempts(&call.call_id).iter();
        call.effect.may_doubt() && attempts.any(|one| one.outcome.as_deref() == Some("unknown"))
    });
    unknown
        .map(|call| {
            let what = format!(
                "{} ended as circuit_open after an attempt that is unknown",
                call.tool
            );
            breach(UNKNOWN, &call.call_id, what)
        })
        .collect()
}

/// A breaker of the run is open for 4 s at most; a permit that is lost lapses after 12 s, and two of them may be lost in turn.
const TRIED_WITHIN_MS: Moment = 30_000;
/// So much counts of a time in which no attempt of any tool began: while all workers are stopped, or kept from the ledger, no
/// target is tried, and a permit that one of them has lapses.
const QUIET_MAX_MS: Moment = 2_000;

/// An open breaker ends a call only where its tool was tried not long before, or an operator had forced it open: a breaker that is
/// never tried again would refuse every call for ever.
pub(super) fn an_open_breaker_tries_again(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let attempts = case.facts.ledger.attempts.iter();
    let mut starts: Vec<Moment> = attempts.map(|attempt| attempt.started_at).collect();
    starts.sort_unstable();
    for call in case.calls.values().filter(|call| is_ended_by_breaker(call)) {
        let Some(ended) = call.finished_at else {
            continue;
        };
        let since = busy_before(&starts, ended);
        let of_tool = case.calls.values().filter(|other| other.tool == call.tool);
        let mut attempts = of_tool.flat_map(|other| case.attempts(&other.call_id));
        let was_tried = attempts.any(|attempt| {
            attempt.started_at <= ended
                && attempt.finished_at.unwrap_or(attempt.started_at) >= since
        });
        let mut forced = case.facts.ledger.forced.iter();
        let was_forced = forced.any(|one| {
            one.is_open && one.tool == call.tool && one.set_at <= ended && one.ended_at >= since
        });
        if !was_tried && !was_forced {
            let what = format!(
                "{} ended as circuit_open, and was not tried for {TRIED_WITHIN_MS} ms before",
                call.tool
            );
            breaches.push(breach(AGAIN, &call.call_id, what));
        }
    }
    breaches
}

/// When [`TRIED_WITHIN_MS`] of time in which attempts began lay before this moment.
fn busy_before(starts: &[Moment], ended: Moment) -> Moment {
    let (mut at, mut left) = (ended, TRIED_WITHIN_MS);
    let before = starts.partition_point(|start| *start <= ended);
    for start in starts[..before].iter().rev() {
        let counted = (at - start).min(QUIET_MAX_MS);
        if counted >= left {
            break;
        }
        (at, left) = (*start, left - counted);
    }
    at - left
}

pub(crate) fn is_ended_by_breaker(call: &Call) -> bool {
    call.code.as_deref() == Some("circuit_open")
}
