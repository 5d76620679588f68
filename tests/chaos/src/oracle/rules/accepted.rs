//! An accepted call is kept, a refused one is not, and a key names one call.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    effects::{Tool, tool},
    history::{Entry, Op, Phase},
    oracle::{
        case::{Case, at_large, breach, submits},
        facts::{Call, Moment, text},
        verdict::Breach,
    },
};

pub(super) const KNOWN: &str = "accepted_is_known";
pub(super) const ASKED: &str = "known_was_asked";
pub(super) const ONE: &str = "one_call_per_key";
pub(super) const REFUSED: &str = "refused_leaves_nothing";
pub(super) const MISUSED: &str = "a_key_names_one_call";
pub(super) const CROSSED: &str = "answers_belong_to_their_questions";

/// Every call of which a client was told is in the ledger.
pub(super) fn accepted_is_known(case: &Case<'_>) -> Vec<Breach> {
    let told = case.told.iter().filter_map(|told| Some((told.call?, told)));
    let lost = told.filter(|(call, _)| !case.calls.contains_key(call));
    let said = |(call, told): (&str, &crate::oracle::case::Told<'_>)| {
        let (op, n) = (told.entry.op, told.entry.n);
        breach(
            KNOWN,
            call,
            format!("{op:?} of {n} was told of it, and it is not in the ledger"),
        )
    };
    lost.map(said).collect()
}

/// Every call of the ledger was submitted by a client, under that tool; or it is a probe.
pub(super) fn known_was_asked(case: &Case<'_>) -> Vec<Breach> {
    let of_clients = case.calls.values().filter(|call| call.probe_of.is_none());
    let invented = of_clients.filter(|call| {
        let asked = call.n.and_then(|n| case.asked.get(&n));
        !asked.is_some_and(|asked| (asked.submitted || asked.misused) && asked.tool == call.tool)
    });
    let said = |call: &&Call| {
        breach(
            ASKED,
            &call.call_id,
            format!("nobody submitted {:?} of {}", call.n, call.tool),
        )
    };
    invented.map(said).collect()
}

/// A tenant's key names one call, and so does each number of the clients.
pub(super) fn one_call_per_key(case: &Case<'_>) -> Vec<Breach> {
    let mut by_key: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for call in case.calls.values() {
        if let Some(key) = &call.key_hash {
            let calls = by_key.entry((&call.tenant, key)).or_default();
            calls.insert(&call.call_id);
        }
    }
    let by_key = by_key.into_values().filter(|calls| calls.len() > 1);
    let by_key = by_key.map(|calls| at_large(ONE, format!("one key names {calls:?}")));
    let by_n = case.by_n.iter().filter(|(_, calls)| calls.len() > 1);
    let by_n = by_n.map(|(n, calls)| {
        let calls: Vec<&str> = calls.iter().map(|call| call.call_id.as_str()).collect();
        at_large(ONE, format!("number {n} is {calls:?}"))
    });
    by_key.chain(by_n).collect()
}

/// How much later than its answer the wire may have noted that a question came twice.
const NOTED_LATE: Moment = 100;

/// A call that was refused each time it was sent is not in the ledger, and no tool has heard of it.
///
/// Of a question that came twice the client hears one answer: it may be refused at a dispatcher that is behind, and accepted at
/// the other.
pub(super) fn refused_leaves_nothing(case: &Case<'_>) -> Vec<Breach> {
    let answered: BTreeSet<(u32, u64, u64)> = case
        .told
        .iter()
        .map(|told| (told.entry.client, told.entry.op_id, told.entry.n))
        .collect();
    let mut uncertain: BTreeSet<u64> = BTreeSet::new();
    for entry in &case.facts.history {
        let place = (entry.client, entry.op_id, entry.n);
        if entry.phase == Phase::Asked && !answered.contains(&place) {
            uncertain.insert(entry.n);
        }
    }
    let at = |entry: &Entry| {
        let since = Moment::try_from(entry.at_ms).unwrap_or(Moment::MAX);
        case.facts.injected.clients_began.saturating_add(since)
    };
    let asked_at: BTreeMap<(u32, u64), Moment> = case
        .facts
        .history
        .iter()
        .filter(|entry| entry.phase == Phase::Asked)
        .map(|entry| ((entry.client, entry.op_id), at(entry)))
        .collect();
    let came_twice = |entry: &Entry| {
        let answered = at(entry).saturating_add(NOTED_LATE);
        let asked = asked_at.get(&(entry.client, entry.op_id));
        let twice = &case.facts.injected.asked_again;
        asked.is_some_and(|asked| {
            twice
                .iter()
                .any(|when| *when.start() <= answered && asked <= when.end())
        })
    };
    for told in &case.told {
        if (submits(told.entry.op) || told.entry.op == Op::Misuse)
            && (!told.is_refusal() || came_twice(told.entry))
        {
            uncertain.insert(told.entry.n);
        }
    }
    let marks = case.facts.marks.iter();
    let marked: BTreeSet<(&str, u64)> = marks.map(|mark| (mark.tool.as_str(), mark.n)).collect();
    let mut breaches = Vec::new();
    let refused = case
        .asked
        .iter()
        .filter(|(n, asked)| asked.submitted && !uncertain.contains(n));
    for (n, asked) in refused.filter(|(_, asked)| !asked.uncertain) {
        for call in case.by_n.get(n).into_iter().flatten() {
            let what = format!(
                "number {n} of {} was always refused, and is in the ledger",
                asked.tool
            );
            breaches.push(breach(REFUSED, &call.call_id, what));
        }
        // Where equal calls have equal arguments, no number says whose mark it is.
        if is_numbered(asked.tool) && marked.contains(&(asked.tool, *n)) {
            let what = format!(
                "number {n} of {} was always refused, and its tool was asked",
                asked.tool
            );
            breaches.push(at_large(REFUSED, what));
        }
    }
    breaches
}

/// A key that is sent with other arguments is refused; it never gets the call that it names.
pub(super) fn a_key_names_one_call(case: &Case<'_>) -> Vec<Breach> {
    let mut known: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
    for told in case.told.iter().filter(|told| told.entry.op != Op::Misuse) {
        known.entry(told.entry.n).or_default().extend(told.call);
    }
    let misuses = case.told.iter().filter(|told| told.entry.op == Op::Misuse);
    let given = misuses.filter_map(|told| {
        let (call, n) = (told.call?, told.entry.n);
        let its = known.get(&n).is_some_and(|calls| calls.contains(call));
        let what = format!("number {n}'s key with other arguments was answered with its call");
        its.then(|| breach(MISUSED, call, what))
    });
    given.collect()
}

/// Who asked about a call is told about that call: its tool, its number, its result.
pub(super) fn answers_belong_to_their_questions(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for told in case.told.iter().filter(|told| told.call.is_some()) {
        let (call, entry) = (told.call.unwrap_or_default(), told.entry);
        let mut wrong = |what: String| breaches.push(breach(CROSSED, call, what));
        if let Some(tool) = text(told.answer, "/tool").filter(|tool| *tool != entry.tool) {
            wrong(format!("who asked {} was answered by {tool}", entry.tool));
        }
        if let Some(asked) = entry.call_id.as_deref().filter(|id| *id != call) {
            wrong(format!("who asked about {asked} was told of this call"));
        }
        let stored = case.calls.get(call);
        // What its tool was told is its own number, or one that equal calls have.
        let told_number = stored.and_then(|call| call.told).unwrap_or(entry.n);
        for (n, expected) in [
            (stored.and_then(|call| call.n), entry.n),
            (number(told.answer.get("result")), told_number),
        ] {
            if let Some(n) = n.filter(|n| *n != expected) {
                wrong(format!(
                    "who asked number {expected} was told of number {n}"
                ));
            }
        }
    }
    breaches
}

fn is_numbered(name: &str) -> bool {
    tool(name).is_none_or(Tool::is_numbered)
}

/// The number that a tool's answer names.
fn number(result: Option<&Value>) -> Option<u64> {
    let result = result?;
    result
        .get("n")
        .or_else(|| result.get(0)?.get("n"))?
        .as_u64()
}
