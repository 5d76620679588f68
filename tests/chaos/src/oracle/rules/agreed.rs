//! Calls that need a yes: nothing of them runs before it, and a no is the end.

use std::collections::{BTreeMap, BTreeSet};

use fleet::call::State;

use crate::{
    history::Op,
    oracle::{
        case::{Case, breach},
        facts::{Call, Moment, text},
        verdict::Breach,
    },
};

pub(super) const YES: &str = "nothing_runs_without_its_yes";
pub(super) const NO: &str = "a_no_is_the_end";
pub(super) const RECORDED: &str = "what_was_decided_is_recorded";

/// How far two moments of one clock may be apart that was moved between them.
const CLOCK_MS: Moment = 100;

/// No call that needs a yes has an attempt before as many people as have to have said it, whether a worker or its caller runs it.
pub(super) fn nothing_runs_without_its_yes(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for call in case.calls.values() {
        let Some(needed) = case.yeses_needed(call) else {
            continue;
        };
        for attempt in case.attempts(&call.call_id) {
            let yeses = case
                .decisions(&call.call_id)
                .iter()
                .filter(|decision| decision.is_yes && decision.at <= attempt.started_at + CLOCK_MS);
            let people: BTreeSet<&str> = yeses.map(|yes| yes.actor.as_str()).collect();
            if people.len() < needed {
                let what = format!(
                    "attempt {} of {} began when {people:?} had said yes, of {needed} who have to",
                    attempt.number, call.tool
                );
                breaches.push(breach(YES, &call.call_id, what));
            }
        }
    }
    breaches
}

/// A call to which somebody has said no never ran, and has failed as denied; and no other call has.
pub(super) fn a_no_is_the_end(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for call in case.calls.values() {
        let mut decisions = case.decisions(&call.call_id).iter();
        let denied = decisions.any(|decision| !decision.is_yes);
        let ended = (call.state, call.code.as_deref()) == (State::Failed, Some("denied"));
        let ran = !case.attempts(&call.call_id).is_empty();
        if denied != ended || (denied && ran) {
            let code = call.code.as_deref().unwrap_or("no code");
            let what = format!(
                "{} is {}, {code}; denied: {denied}, ran: {ran}",
                call.tool, call.state
            );
            breaches.push(breach(NO, &call.call_id, what));
        }
    }
    breaches
}

/// Who was told that a decision counts has made it, and nothing was decided but about the arguments that were shown.
pub(super) fn what_was_decided_is_recorded(case: &Case<'_>) -> Vec<Breach> {
    let mut shown: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for told in &case.told {
        if let (Some(call), Some(hash)) = (told.call, text(told.answer, "/awaiting/args_hash")) {
            shown.entry(call).or_default().insert(hash);
        }
    }
    let mut breaches = Vec::new();
    for decision in &case.facts.ledger.decisions {
        let hashes = shown.get(decision.call_id.as_str());
        if !hashes.is_some_and(|hashes| hashes.contains(decision.args_hash.as_str())) {
            let what = format!(
                "{} decided about arguments that nobody was shown",
                decision.actor
            );
            breaches.push(breach(RECORDED, &decision.call_id, what));
        }
    }
    for told in &case.told {
        let is_yes = match told.entry.op {
            Op::Approve => true,
            Op::Deny => false,
            _ => continue,
        };
        let Some(call) = told.call.filter(|_| told.state != "refused") else {
            continue;
        };
        let mut decisions = case.decisions(call).iter();
        if !decisions.any(|decision| decision.is_yes == is_yes) {
            let what = format!(
                "{:?} was told that it counts, and is not there",
                told.entry.op
            );
            breaches.push(breach(RECORDED, call, what));
        }
    }
    breaches
}

/// Whether somebody has to say yes to a call, and not enough have or somebody said no.
pub(crate) fn is_not_agreed(case: &Case<'_>, call: &Call) -> bool {
    let decisions = case.decisions(&call.call_id);
    let yeses = decisions.iter().filter(|decision| decision.is_yes).count();
    case.yeses_needed(call)
        .is_some_and(|needed| yeses < needed || yeses < decisions.len())
}
