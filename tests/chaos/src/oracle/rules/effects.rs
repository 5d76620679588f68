//! The effects in the ledger against the effects that happened.
//!
//! A remote may have the effect after every worker stopped waiting for it, and after a person has found out that it was not
//! there (`docs/errors/in_doubt.md`: a "no" is about the moment of the look). That is the only way in which a call that ended
//! as not applied may have its effect, so here it must be exactly that: settled, by a person or a probe; the tool is one
//! that lives elsewhere and was told to be late; and the effect came after the settlement and after the attempt's time.

use std::collections::BTreeMap;

use fleet::call::{Effect, State};

use crate::{
    effects::{Did, Mode},
    oracle::{
        case::{Case, at_large, breach},
        facts::Call,
        verdict::Breach,
    },
};

pub(super) const TWICE: &str = "done_once_at_most";
pub(super) const STATE: &str = "state_agrees_with_effect";
pub(super) const OUTCOME: &str = "outcome_agrees_with_effect";
pub(super) const MONEY: &str = "no_money_is_made_or_lost";
pub(super) const ALARM: &str = "alarms_have_a_reason";

/// No write has its effect twice, whether it is counted by the call or by the clients' number.
///
/// Of an `idempotent` tool, what the tool recognised is not an effect.
pub(super) fn done_once_at_most(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for call in case
        .calls
        .values()
        .filter(|call| call.effect != Effect::Read)
    {
        let times = case.applied(call);
        if times > 1 {
            let what = format!("{} ({}) took place {times} times", call.tool, call.effect);
            breaches.push(breach(TWICE, &call.call_id, what));
        }
    }
    // One submission, whatever became of its call: not twice under two names either.
    let mut by_n: BTreeMap<(&str, u64), BTreeMap<&str, u64>> = BTreeMap::new();
    for mark in case
        .facts
        .marks
        .iter()
        .filter(|mark| mark.did == Did::Applied)
    {
        let calls = by_n.entry((&mark.tool, mark.n)).or_default();
        *calls.entry(&mark.call).or_default() += 1;
    }
    for ((tool, n), calls) in by_n {
        let write = case
            .tools
            .get(tool)
            .is_some_and(|tool| tool.effect != Effect::Read);
        if write && calls.len() > 1 {
            breaches.push(at_large(
                TWICE,
                format!("number {n} of {tool} took place in {calls:?}"),
            ));
        }
    }
    breaches
}

/// Succeeded means done, and everything else that is over means not done.
pub(super) fn state_agrees_with_effect(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for call in case
        .calls
        .values()
        .filter(|call| call.effect != Effect::Read)
    {
        let times = case.applied(call);
        let wrong = match call.state {
            State::Succeeded => times == 0,
            State::Failed => {
                times > 0
                    && !came_after_settlement(case, call)
                    && !is_abandoned(case, call)
                    && !is_left_open(call)
            }
            State::Cancelled | State::Expired => times > 0,
            State::InDoubt | State::Queued | State::Running | State::AwaitingClient => false,
        };
        if wrong {
            let what = format!(
                "{} ({}, {:?}) is {} and took place {times} times",
                call.tool,
                call.effect,
                case.mode(call),
                call.state
            );
            breaches.push(breach(STATE, &call.call_id, what));
        }
    }
    breaches
}

/// Whether a person has said that nobody will ever know what became of it: then it may have happened. No probe may say so.
pub(crate) fn is_abandoned(case: &Case<'_>, call: &Call) -> bool {
    let last = case.events(&call.call_id).last();
    last.is_some_and(|last| last.reason == "settled_abandoned" && !last.actor.starts_with("probe "))
}

/// Whether the program of its caller said that it failed, and nothing of whether it was done.
fn is_left_open(call: &Call) -> bool {
    call.source.as_deref() == Some("client") && call.effect_known.as_deref() == Some("unknown")
}

/// Whether a call had its effect only after it had been settled, in a way that no process could prevent.
pub(crate) fn came_after_settlement(case: &Case<'_>, call: &Call) -> bool {
    let elsewhere = case
        .tools
        .get(call.tool.as_str())
        .is_some_and(|tool| matches!(tool.executor.as_str(), "http" | "nats"));
    let late = elsewhere && case.mode(call) == Some(Mode::Late);
    // Who hears late that it was handed something may run it late.
    let is_nobodys = late || case.is_handed(call);
    let settled = call.source.as_deref() == Some("settled");
    let (true, true, Some(settled_at)) = (is_nobodys, settled, call.finished_at) else {
        return false;
    };
    let mut applied = case
        .marks(&call.call_id)
        .iter()
        .filter(|mark| mark.did == Did::Applied);
    applied.all(|mark| {
        let at = i64::try_from(mark.at / 1_000_000).unwrap_or(i64::MAX);
        let over = case
            .attempts(&call.call_id)
            .iter()
            .find(|attempt| attempt.number == mark.attempt && !attempt.late);
        let over = over.map(|attempt| attempt.started_at + attempt.timeout_ms);
        at >= settled_at && over.is_some_and(|over| at >= over)
    })
}

/// The recorded outcome of an attempt is the real one: its effect happened if it was applied, and did not happen if that is proven.
pub(super) fn outcome_agrees_with_effect(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for call in case.calls.values() {
        if call.effect == Effect::Read || case.is_sql(&call.tool) {
            continue;
        }
        for attempt in case.attempts(&call.call_id) {
            let marks = case
                .marks(&call.call_id)
                .iter()
                .filter(|mark| mark.attempt == attempt.number);
            let did = |what| marks.clone().any(|mark| mark.did == what);
            let wrong = match attempt.outcome.as_deref() {
                Some("applied") => !did(Did::Applied) && !did(Did::Recognised),
                Some("not_started" | "definite_failure") => did(Did::Applied),
                _ => false,
            };
            if wrong {
                let what = format!(
                    "attempt {} of {} ({:?}) is said to be {}, and that is not what it did",
                    attempt.number,
                    call.tool,
                    case.mode(call),
                    attempt.outcome.as_deref().unwrap_or_default()
                );
                breaches.push(breach(OUTCOME, &call.call_id, what));
            }
        }
    }
    breaches
}

/// The product's own alarm, that a call had its effect although it ended as one that had not, has a reason.
pub(super) fn alarms_have_a_reason(case: &Case<'_>) -> Vec<Breach> {
    let alarms = case.metric("toolfleet_integrity_alarms_total", &[]);
    let failed = case
        .calls
        .values()
        .filter(|call| call.state == State::Failed);
    let reasons = failed
        .filter(|call| came_after_settlement(case, call) && case.applied(call) > 0)
        .count() as u64;
    if alarms > reasons {
        return vec![at_large(
            ALARM,
            format!("{alarms} alarms and {reasons} effects after a settlement"),
        )];
    }
    Vec::new()
}

/// Transfers move money, and that is all they do to it.
pub(super) fn no_money_is_made_or_lost(case: &Case<'_>) -> Vec<Breach> {
    let totals = case
        .facts
        .totals
        .into_iter()
        .filter(|(at_first, at_last)| at_first != at_last);
    let said = totals.map(|(at_first, at_last)| {
        at_large(
            MONEY,
            format!("all accounts had {at_first} together and have {at_last}"),
        )
    });
    said.collect()
}
