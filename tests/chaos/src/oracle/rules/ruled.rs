//! Policies: what happened before in its run decides whether a call may run.

use fleet::call::State;

use super::effects::came_after_settlement;
use crate::{
    effects::Did,
    oracle::{
        case::{Case, at_large, breach},
        facts::{Call, Moment},
        verdict::Breach,
    },
};

pub(super) const AT_MOST: &str = "no_more_happens_than_a_policy_allows";
pub(super) const AFTER: &str = "nothing_comes_before_what_it_must_follow";
pub(super) const NEVER: &str = "nothing_comes_after_what_forbids_it";
pub(super) const REASON: &str = "nothing_is_forbidden_without_a_reason";

/// How far two moments may be apart that are put together, or that are of one clock which was moved between them.
const CLOCK_MS: Moment = 100;

/// The code of a call that its policy has ended.
const FORBIDDEN: &str = "forbidden";

/// Whether its policy has ended a call.
pub(crate) fn is_forbidden(call: &Call) -> bool {
    call.code.as_deref() == Some(FORBIDDEN)
}

/// Of the calls of one run no more have happened, or may have, than the tool's policy allows.
pub(super) fn no_more_happens_than_a_policy_allows(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (tool, most) in bounds(case) {
        let mut runs: Vec<&str> = of_tool(case, tool)
            .filter_map(|call| call.run.as_deref())
            .collect();
        runs.sort_unstable();
        runs.dedup();
        for run in runs {
            let happened = of_run(case, tool, run)
                .filter(|call| may_have_happened(case, call))
                .count();
            if happened > most {
                let what = format!(
                    "{happened} calls of {tool} have happened in {run}, or may have, and {most} may"
                );
                breaches.push(at_large(AT_MOST, what));
            }
        }
    }
    breaches
}

/// A tool is asked only once a call has succeeded of each that its own must follow in its run.
pub(super) fn nothing_comes_before_what_it_must_follow(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (call, first) in needs(case) {
        let started = |mark: &&&crate::effects::Mark| mark.did == Did::Started;
        // The claim reads what is committed by then, and may have waited for it: only the tool's own word is surely later.
        let asked = case.marks(&call.call_id).iter().filter(started);
        let Some(asked) = asked.map(|mark| millis(mark.at)).min() else {
            continue;
        };
        let Some(run) = call.run.as_deref() else {
            continue;
        };
        let mut before = of_run(case, first, run).filter(|first| first.state == State::Succeeded);
        if !before.any(|first| first.finished_at.is_some_and(|at| at <= asked + CLOCK_MS)) {
            let what = format!(
                "{} ran in {run}, where {first} had not succeeded",
                call.tool
            );
            breaches.push(breach(AFTER, &call.call_id, what));
        }
    }
    breaches
}

/// No attempt begins once a call has happened in its run of a tool that its policy names.
pub(super) fn nothing_comes_after_what_forbids_it(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for call in case.calls.values() {
        let (Some(policy), Some(run)) = (case.policy(&call.tool), call.run.as_deref()) else {
            continue;
        };
        for last in &policy.never_after {
            // It was noted when it was claimed, and that was committed before it ended.
            let ends =
                of_run(case, last.as_str(), run).filter(|last| last.state == State::Succeeded);
            let Some(end) = ends.filter_map(|last| last.finished_at).min() else {
                continue;
            };
            let mut attempts = case.attempts(&call.call_id).iter();
            if attempts.any(|attempt| !attempt.late && attempt.started_at > end + CLOCK_MS) {
                let what = format!("{} ran in {run}, where {last} had succeeded", call.tool);
                breaches.push(breach(NEVER, &call.call_id, what));
            }
        }
    }
    breaches
}

/// A call is forbidden only where its tool has a policy, and one that bounds its calls only where as many others have been tried.
pub(super) fn nothing_is_forbidden_without_a_reason(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for call in case.calls.values().filter(|call| is_forbidden(call)) {
        let Some(policy) = case.policy(&call.tool) else {
            let what = format!("{} has no policy", call.tool);
            breaches.push(breach(REASON, &call.call_id, what));
            continue;
        };
        let is_bounded_only = policy.after.is_empty() && policy.never_after.is_empty();
        let (Some(most), Some(run), true) = (&policy.at_most, call.run.as_deref(), is_bounded_only)
        else {
            continue;
        };
        let others = of_run(case, &call.tool, run)
            .filter(|other| other.call_id != call.call_id && other.attempts > 0)
            .count();
        if others < usize::try_from(most.calls).unwrap_or(usize::MAX) {
            let what = format!(
                "{others} other calls of {} were tried in {run}, and {} may happen",
                call.tool, most.calls
            );
            breaches.push(breach(REASON, &call.call_id, what));
        }
    }
    breaches
}

/// The tools of which only so many calls may happen in a run.
fn bounds<'a>(case: &Case<'a>) -> impl Iterator<Item = (&'a str, usize)> {
    let tools = case.facts.ledger.tools.iter();
    tools.filter_map(|tool| {
        let most = tool.policy.as_ref()?.at_most.as_ref()?;
        Some((tool.tool.as_str(), usize::try_from(most.calls).ok()?))
    })
}

/// Calls, each with a tool of which one must have succeeded before.
fn needs<'a>(case: &Case<'a>) -> Vec<(&'a Call, &'a str)> {
    let calls = case.calls.values().copied();
    let needs = calls.flat_map(|call| {
        let after = case
            .policy(&call.tool)
            .map_or(&[][..], |policy| &policy.after);
        after.iter().map(move |first| (call, first.as_str()))
    });
    needs.collect()
}

fn of_tool<'a>(case: &Case<'a>, tool: &str) -> impl Iterator<Item = &'a Call> {
    case.calls
        .values()
        .copied()
        .filter(move |call| call.tool == tool)
}

fn of_run<'a>(case: &Case<'a>, tool: &str, run: &str) -> impl Iterator<Item = &'a Call> {
    of_tool(case, tool).filter(move |call| call.run.as_deref() == Some(run))
}

/// Whether a call has happened, or may have: by the ledger, or by its tool.
fn may_have_happened(case: &Case<'_>, call: &Call) -> bool {
    let by_ledger = matches!(
        call.state,
        State::Succeeded | State::Running | State::InDoubt
    ) || matches!(call.effect_known.as_deref(), Some("applied" | "unknown"));
    by_ledger || case.applied(call) > 0 && !came_after_settlement(case, call)
}

fn millis(nanos: u64) -> Moment {
    Moment::try_from(nanos / 1_000_000).unwrap_or(Moment::MAX)
}
