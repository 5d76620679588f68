//! Calls that their callers run: handed out once, and a write that was handed out may have happened.

use std::collections::{BTreeMap, BTreeSet};

use fleet::call::State;

use crate::{
    effects::Mode,
    history::Op,
    oracle::{
        case::{Case, breach},
        facts::{Call, Moment, text},
        verdict::Breach,
    },
};

pub(super) const TWICE: &str = "nothing_is_handed_out_twice";
pub(super) const OPEN: &str = "what_was_handed_out_may_have_happened";
pub(super) const LATE: &str = "an_answer_that_was_handed_in_counts";
pub(super) const TIME: &str = "who_is_waited_for_has_his_time";

/// A call is handed to its caller at most once, with one token, and then no worker has it.
pub(super) fn nothing_is_handed_out_twice(case: &Case<'_>) -> Vec<Breach> {
    let mut tokens: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for told in &case.told {
        if let Some(call) = told.call
            && text(told.answer, "/awaiting/for") == Some("client")
            && let Some(token) = text(told.answer, "/awaiting/token")
        {
            tokens.entry(call).or_default().insert(token);
        }
    }
    let mut breaches = Vec::new();
    for call in case.calls.values() {
        let attempts = case.attempts(&call.call_id);
        // Late evidence is about an attempt that is there.
        let attempts: Vec<_> = attempts.iter().filter(|one| !one.late).collect();
        let handed = attempts.iter().filter(|one| one.worker_id.is_none());
        let handed = handed.count();
        let expected = if case.is_handed(call) {
            attempts.len()
        } else {
            0
        };
        let tokens = tokens.get(call.call_id.as_str());
        let tokens = tokens.map_or(0, BTreeSet::len);
        if handed > 1 || handed != expected || tokens > handed {
            let what = format!(
                "{} has {} attempts, {handed} of them by its caller, who was told {tokens} tokens",
                call.tool,
                attempts.len()
            );
            breaches.push(breach(TWICE, &call.call_id, what));
        }
    }
    breaches
}

/// A write that was handed out is never over as if nothing had happened, but by the word of who had it, or of who has looked.
pub(super) fn what_was_handed_out_may_have_happened(case: &Case<'_>) -> Vec<Breach> {
    let writes = case.calls.values().filter(|call| {
        call.effect.may_doubt()
            && case.is_handed(call)
            && !case.attempts(&call.call_id).is_empty()
            && call.state.is_terminal()
    });
    let called_undone = writes.filter(|call| {
        let by_word = matches!(call.source.as_deref(), Some("client" | "settled"));
        !by_word || matches!(call.state, State::Expired | State::Cancelled)
    });
    let said = |call: &&Call| {
        let what = format!("{} was handed out, and is {}", call.tool, call.state);
        breach(OPEN, &call.call_id, what)
    };
    called_undone.map(said).collect()
}

/// What a caller's program hands in ends its call, late or not; or the call is over, and it is told so.
pub(super) fn an_answer_that_was_handed_in_counts(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for told in case.told.iter().filter(|told| told.entry.op == Op::Output) {
        let id = told.entry.call_id.as_deref().or(told.call);
        let Some(call) = id.and_then(|id| case.calls.get(id)) else {
            continue;
        };
        // Of a doubt an error alone says nothing.
        let says_nothing = matches!(told.entry.mode, Mode::ErrorBefore | Mode::ErrorAfter);
        let over = call.state.is_terminal();
        let wrong = match told.code {
            Some("conflict" | "already_terminal") if told.call.is_none() => !over && !says_nothing,
            _ => told.call.is_some() && !told.is_end(),
        };
        if wrong {
            let what = format!(
                "the answer to {} was answered with {} {}, and it is {}",
                call.tool,
                told.state,
                told.code.unwrap_or_default(),
                call.state
            );
            breaches.push(breach(LATE, &call.call_id, what));
        }
    }
    breaches
}

/// Two clocks of a machine.
const CLOCKS_MS: Moment = 100;

/// No wait for somebody is over before its time, but where Postgres's clock was moved meanwhile.
pub(super) fn who_is_waited_for_has_his_time(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for call in case.calls.values() {
        let events = case.events(&call.call_id).iter();
        let over = events.filter(|event| {
            event.from == Some(State::AwaitingClient)
                && matches!(event.reason.as_str(), "client_silent" | "undecided")
        });
        let handed = case.attempts(&call.call_id).first();
        let until = handed.map_or(call.deadline_at, |attempt| {
            call.deadline_at
                .min(attempt.started_at + attempt.timeout_ms)
        });
        for event in over.filter(|event| event.at + CLOCKS_MS < until) {
            let moved = case.facts.injected.clock_moves.iter();
            let mut moved =
                moved.filter(|one| one.begun <= event.at && one.done >= call.accepted_at);
            if moved.next().is_none() {
                let what = format!(
                    "{} was over as {} {} ms before its time",
                    call.tool,
                    event.reason,
                    until - event.at
                );
                breaches.push(breach(TIME, &call.call_id, what));
            }
        }
    }
    breaches
}
