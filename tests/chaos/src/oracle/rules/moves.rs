//! The story of each call: only moves that there are, none left out, and an end.

use fleet::{
    call::{Effect, State},
    state,
};

use crate::oracle::{
    case::{Case, breach},
    verdict::Breach,
};

pub(super) const LEGAL: &str = "moves_are_legal";
pub(super) const CLASS: &str = "states_fit_the_effect_class";
pub(super) const STUCK: &str = "nothing_is_stuck";

/// Revisions have no gaps, each move begins where the one before led, is legal, and the last one leads to the call's state.
pub(super) fn moves_are_legal(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for call in case.calls.values() {
        let mut before: Option<State> = None;
        let mut wrong = None;
        for (revision, event) in (0_i64..).zip(case.events(&call.call_id)) {
            let legal = match event.from {
                None => {
                    let waits = case.is_handed(call) || case.yeses_needed(call).is_some();
                    let first = if waits {
                        State::AwaitingClient
                    } else {
                        State::Queued
                    };
                    revision == 0 && event.to == first
                }
                // A remark; nothing is remarked about what is over.
                Some(from) if from == event.to => !from.is_terminal(),
                Some(from) => state::is_legal(from, event.to),
            };
            if !legal || event.revision != revision || event.from != before {
                let from = event.from.map_or("nothing", State::as_str);
                wrong = wrong.or(Some(format!(
                    "revision {} ({}) leads from {from} to {}, in place {revision} after {before:?}",
                    event.revision, event.reason, event.to
                )));
            }
            before = Some(event.to);
        }
        if before != Some(call.state) {
            wrong = wrong.or(Some(format!(
                "it is {} and its moves led to {before:?}",
                call.state
            )));
        }
        breaches.extend(wrong.map(|what| breach(LEGAL, &call.call_id, what)));
    }
    breaches
}

/// A transaction and a read are never in doubt, and what is done once is not cancelled once it runs.
pub(super) fn states_fit_the_effect_class(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for call in case.calls.values() {
        for event in case.events(&call.call_id) {
            let doubted = event.to == State::InDoubt && !call.effect.may_doubt();
            let cancelled = (event.from, event.to) == (Some(State::Running), State::Cancelled)
                && call.effect == Effect::Once;
            if doubted || cancelled {
                let what = format!(
                    "a call of class {} became {} ({})",
                    call.effect, event.to, event.reason
                );
                breaches.push(breach(CLASS, &call.call_id, what));
            }
        }
    }
    breaches
}

/// Everything has come to an end, or is in doubt.
pub(super) fn nothing_is_stuck(case: &Case<'_>) -> Vec<Breach> {
    let open = case
        .calls
        .values()
        .filter(|call| !call.state.is_terminal() && call.state != State::InDoubt);
    let said = open.map(|call| {
        let last = case
            .events(&call.call_id)
            .last()
            .map_or("", |event| event.reason.as_str());
        breach(
            STUCK,
            &call.call_id,
            format!(
                "{} is {} since {last}, attempt {}",
                call.tool, call.state, call.attempts
            ),
        )
    });
    said.collect()
}
