//! Caches: an answer is that of the call's own tenant and arguments, and one that is given again still counts.

use serde_json::Value;

use crate::oracle::{
    case::{Case, breach},
    clock::ClockMove,
    facts::{Call, How, Moment, text},
    verdict::Breach,
};

pub(super) const TENANT: &str = "answers_are_of_their_tenant";
pub(super) const HIT: &str = "an_answer_that_is_given_again_counts";
pub(super) const DEGRADED: &str = "degraded_is_marked";

/// What a tool with a cache answered is for the tenant and the arguments of the call, in the ledger and in what clients were told.
pub(super) fn answers_are_of_their_tenant(case: &Case<'_>) -> Vec<Breach> {
    let stored = case
        .calls
        .values()
        .filter_map(|call| Some((*call, call.answer.as_ref()?)));
    let ends = case.told.iter().filter(|told| told.is_end());
    let told = ends.filter_map(|told| {
        let call = case.calls.get(told.call?)?;
        let answer = call.answer.as_ref().and(told.answer.get("result"))?;
        Some((*call, answer))
    });
    let wrong = |(call, answer): (&Call, &Value)| {
        let tenant = text(answer, "/tenant");
        let number = answer.get("n").and_then(Value::as_u64);
        let fits = tenant == Some(call.tenant.as_str()) && number == call.told;
        let what = format!(
            "a call of {} about {:?} has the answer that {} got about {number:?}",
            call.tenant,
            call.told,
            tenant.unwrap_or("nobody")
        );
        (!fits).then(|| breach(TENANT, &call.call_id, what))
    };
    let mut breaches: Vec<Breach> = stored.chain(told).filter_map(wrong).collect();
    breaches.sort();
    breaches.dedup();
    breaches
}

/// How much later than its time an answer may be given, where nothing keeps its worker: two statements on a busy machine.
const LATE_MS: Moment = 3_000;

/// A statement that was struck so long before may still keep those behind it.
const STRUCK_BEFORE_MS: Moment = 15_000;

/// A call that is answered by another one has the answer of a call that succeeded by itself, so long ago at most as its tool says;
/// longer where its worker or Postgres was struck meanwhile.
pub(super) fn an_answer_that_is_given_again_counts(case: &Case<'_>) -> Vec<Breach> {
    let hits = case
        .calls
        .values()
        .filter(|call| call.source.as_deref() == Some("cache"));
    let wrong = hits.filter_map(|call| {
        let what = what_is_wrong(case, call)?;
        Some(breach(HIT, &call.call_id, what))
    });
    wrong.collect()
}

fn what_is_wrong(case: &Case<'_>, call: &Call) -> Option<String> {
    let events = case.events(&call.call_id);
    let Some((event, from)) = events
        .last()
        .and_then(|event| Some((event, event.copied_from.as_deref()?)))
    else {
        return Some("it does not say which call has its answer".to_owned());
    };
    let Some(source) = case.calls.get(from) else {
        return Some(format!("it has the answer of {from}, which is not there"));
    };
    let is_equal = (&source.tool, source.told) == (&call.tool, call.told);
    if source.source.as_deref() != Some("live") || !is_equal {
        return Some(format!(
            "it has the answer of {from}, which fetched none for it"
        ));
    }
    let ttl = case.tools.get(call.tool.as_str())?.ttl_ms?;
    let (fetched, given) = (source.finished_at?, call.finished_at?);
    let (age, most) = (given - fetched, ttl + LATE_MS);
    let worker = event.actor.strip_prefix("worker ");
    let mut excuses = case.struck(
        worker,
        &[How::Paused, How::Ledger, How::Postgres],
        fetched - STRUCK_BEFORE_MS,
        given,
    );
    let moved = |one: &ClockMove| one.begun <= given && fetched <= one.done;
    let was_moved = case.facts.injected.clock_moves.iter().any(moved);
    (age > most && excuses.next().is_none() && !was_moved)
        .then(|| format!("the answer of {from} was {age} ms old, and counts for {ttl} ms"))
}

/// What is told in place of a live answer says so: `fallback` and why, in a call that failed.
pub(super) fn degraded_is_marked(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for told in case.told.iter().filter(|told| told.is_end()) {
        let source = text(told.answer, "/source");
        let is_degraded = matches!(source, Some("other" | "stale" | "stub"));
        let says_so = text(told.answer, "/outcome") == Some("fallback");
        let says_why = told
            .answer
            .get("degraded")
            .is_some_and(|why| !why.is_null());
        let is_marked = says_so && says_why && told.state == "failed";
        if is_degraded != says_so || is_degraded && !is_marked {
            let call = told.call.unwrap_or("-");
            let what = format!(
                "{:?} was told an answer of {source:?} unmarked",
                told.entry.op
            );
            breaches.push(breach(DEGRADED, call, what));
        }
    }
    breaches
}
