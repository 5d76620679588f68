//! Breakers and lines: nobody waits without a cause, and an open breaker ends no call that may have had its effect.

use crate::oracle::{
    case::{Case, breach},
    facts::Call,
    verdict::Breach,
};

pub(super) const NOBODY: &str = "nothing_waits_for_nobody";
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

pub(crate) fn is_ended_by_breaker(call: &Call) -> bool {
    call.code.as_deref() == Some("circuit_open")
}
