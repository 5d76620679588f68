//! Attempts: claimed before anything starts, counted, bounded, and of what is done once, one.

use std::collections::{BTreeMap, BTreeSet};

use fleet::call::{Effect, State};

use crate::{
    effects::{Did, Mark},
    oracle::{
        case::{Case, breach},
        verdict::Breach,
    },
};

pub(super) const AGAIN: &str = "once_is_not_started_again";
pub(super) const CLAIMED: &str = "what_started_was_claimed";
pub(super) const KEY: &str = "tools_are_told_one_key";
pub(super) const GAPS: &str = "attempts_are_numbered_without_gaps";
pub(super) const POLICY: &str = "attempts_keep_the_policy";
pub(super) const DEADLINE: &str = "nothing_is_claimed_too_late";

/// A tool of class `once` is asked once, or again only where the ledger holds proof that nothing had started before; and
/// the tool has seen no effect of it either.
pub(super) fn once_is_not_started_again(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for call in case
        .calls
        .values()
        .filter(|call| call.effect == Effect::Once)
    {
        let mut starts: BTreeMap<u32, usize> = BTreeMap::new();
        for mark in case
            .marks(&call.call_id)
            .iter()
            .filter(|mark| mark.did == Did::Started)
        {
            *starts.entry(mark.attempt).or_default() += 1;
        }
        let twice = starts.values().any(|times| *times > 1);
        let last = starts.keys().next_back().copied().unwrap_or(0);
        let unproven = starts
            .keys()
            .filter(|number| **number < last)
            .any(|number| {
                let mut ended = case.attempts(&call.call_id).iter();
                !ended.any(|a| {
                    a.number == *number && !a.late && a.outcome.as_deref() == Some("not_started")
                })
            });
        if twice || unproven {
            let what = format!(
                "{} was asked by attempt (number: times) {starts:?}",
                call.tool
            );
            breaches.push(breach(AGAIN, &call.call_id, what));
        }
    }
    breaches
}

/// No tool is asked for a call, or by an attempt, that the ledger does not know, nor before its claim.
pub(super) fn what_started_was_claimed(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for mark in case
        .facts
        .marks
        .iter()
        .filter(|mark| mark.did == Did::Started)
    {
        let at = i64::try_from(mark.at / 1_000_000).unwrap_or(i64::MAX);
        let claim = case
            .attempts(&mark.call)
            .iter()
            .find(|attempt| attempt.number == mark.attempt);
        let what = match claim {
            None => "and the ledger has no such attempt",
            Some(attempt) if at + CLOCKS_MS < attempt.started_at => "before it was claimed",
            Some(_) => continue,
        };
        let text = format!(
            "{} was asked by attempt {}, {what}",
            mark.tool, mark.attempt
        );
        breaches.push(breach(CLAIMED, &mark.call, text));
    }
    breaches
}

/// How far two clocks of one machine may be apart once they are put together.
const CLOCKS_MS: i64 = 100;

/// Over all attempts a tool is told one key for a call, and no two calls have the same.
pub(super) fn tools_are_told_one_key(case: &Case<'_>) -> Vec<Breach> {
    let mut calls: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut keys: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let told = |mark: &&Mark| !mark.key.is_empty();
    for mark in case.facts.marks.iter().filter(told) {
        calls.entry(&mark.key).or_default().insert(&mark.call);
        keys.entry(&mark.call).or_default().insert(&mark.key);
    }
    let shared = calls.values().filter(|calls| calls.len() > 1);
    let shared = shared.map(|calls| {
        let call = calls.first().copied().unwrap_or_default();
        breach(KEY, call, format!("one key was told for {calls:?}"))
    });
    let changed = keys.iter().filter(|(_, keys)| keys.len() > 1);
    let changed = changed
        .map(|(call, keys)| breach(KEY, call, format!("its tool was told {} keys", keys.len())));
    shared.chain(changed).collect()
}

/// Attempts are numbered from 1 without gaps, up to the count of the call.
pub(super) fn attempts_are_numbered_without_gaps(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for call in case.calls.values() {
        let attempts = case.attempts(&call.call_id);
        let numbers: Vec<u32> = attempts
            .iter()
            .filter(|a| !a.late)
            .map(|a| a.number)
            .collect();
        let late = attempts
            .iter()
            .filter(|a| a.late)
            .any(|a| a.number == 0 || a.number > call.attempts);
        if late || !numbers.iter().copied().eq(1..=call.attempts) {
            let what = format!("it counts {} attempts and has {numbers:?}", call.attempts);
            breaches.push(breach(GAPS, &call.call_id, what));
        }
    }
    breaches
}

/// A tool is tried no more often than it says; what the platform took back or lost does not count.
pub(super) fn attempts_keep_the_policy(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for call in case.calls.values() {
        let Some(tool) = case.tools.get(call.tool.as_str()) else {
            breaches.push(breach(
                POLICY,
                &call.call_id,
                format!("there is no tool {}", call.tool),
            ));
            continue;
        };
        let events = case.events(&call.call_id).iter();
        let free = events.filter(|event| event.spent == Some(false)).count();
        let most = tool.attempts_max as usize + free;
        if call.attempts as usize > most {
            let what = format!(
                "{} attempts, {free} of them free, of {} allowed",
                call.attempts, tool.attempts_max
            );
            breaches.push(breach(POLICY, &call.call_id, what));
        }
    }
    breaches
}

/// Nothing is claimed after its call's deadline, by Postgres's clock.
pub(super) fn nothing_is_claimed_too_late(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for call in case.calls.values() {
        let mut events = case.events(&call.call_id).iter();
        if events.any(|event| {
            event.to == State::Running
                && event.from == Some(State::Queued)
                && event.at > call.deadline_at
        }) {
            breaches.push(breach(
                DEADLINE,
                &call.call_id,
                "it was claimed after its deadline",
            ));
        }
    }
    breaches
}
