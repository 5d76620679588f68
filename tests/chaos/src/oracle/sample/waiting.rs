//! Calls that wait for somebody, as facts.

use fleet::call::State;
use serde_json::json;

use super::{at, call, event, id, say};
use crate::{
    history::{Op, Phase},
    oracle::facts::{Approval, Decision, Facts},
};

/// A yes or a no to a number's call, a moment before its attempt.
pub(crate) fn decision(n: u64, is_yes: bool, actor: &str) -> Decision {
    Decision {
        call_id: id(n),
        is_yes,
        at: at(n) + 5,
        actor: actor.to_owned(),
        args_hash: format!("hash of {n}"),
    }
}

/// A number's call of `charge` has waited for a yes, and got it.
pub(crate) fn agreed(facts: &mut Facts, n: u64) {
    facts.ledger.tools[0].approval = Some(Approval {
        count: 1,
        above: Some(100),
    });
    call(facts, n).amount = Some(101);
    let (call_id, waits) = (id(n), Some(State::AwaitingClient));
    facts.ledger.events.retain(|event| event.call_id != call_id);
    facts.ledger.events.extend([
        event(n, 0, None, State::AwaitingClient, "accepted"),
        event(n, 1, waits, State::Queued, "approved"),
        event(n, 2, Some(State::Queued), State::Running, "claimed"),
        event(n, 3, Some(State::Running), State::Succeeded, "applied"),
    ]);
    facts.ledger.decisions.push(decision(n, true, "ann"));
    let shown = json!({
        "call_id": id(n), "tool": "charge", "state": "awaiting_client",
        "awaiting": {"for": "approval", "args_hash": format!("hash of {n}")},
    });
    said(facts, n, Op::SubmitAsync, shown);
}

/// All calls of `charge` were run by their callers.
pub(crate) fn handed(facts: &mut Facts) {
    facts.ledger.tools[0].executor = "client".to_owned();
    let ids: Vec<String> = (0..40).step_by(4).map(id).collect();
    let attempts = facts.ledger.attempts.iter_mut();
    for attempt in attempts.filter(|attempt| ids.contains(&attempt.call_id)) {
        attempt.worker_id = None;
    }
    facts
        .ledger
        .events
        .retain(|event| !ids.contains(&event.call_id));
    for n in (0..40).step_by(4) {
        call(facts, n).source = Some("client".to_owned());
        let mut last = event(
            n,
            1,
            Some(State::AwaitingClient),
            State::Succeeded,
            "applied",
        );
        last.actor = "client".to_owned();
        facts
            .ledger
            .events
            .extend([event(n, 0, None, State::AwaitingClient, "accepted"), last]);
        let told = json!({
            "call_id": id(n), "tool": "charge", "state": "awaiting_client",
            "awaiting": {"for": "client", "token": format!("token of {n}")},
        });
        said(facts, n, Op::SubmitAsync, told);
        let end = facts
            .history
            .iter()
            .find(|entry| entry.n == n && entry.answer.is_some());
        let end = end.and_then(|entry| entry.answer.clone()).unwrap();
        said(facts, n, Op::Output, end);
    }
}

/// Nothing was heard of a number's call that was handed out, and this came of it.
pub(crate) fn silent(facts: &mut Facts, n: u64, to: State) {
    let row = call(facts, n);
    row.state = to;
    row.source = to.is_terminal().then(|| "error".to_owned());
    let (call_id, until) = (id(n), at(n) + 10 + 3_000);
    let events = facts.ledger.events.iter_mut();
    for event in events.filter(|event| event.call_id == call_id && event.revision == 1) {
        (event.to, event.at) = (to, until);
        event.reason = "client_silent".to_owned();
        event.actor = "sweep".to_owned();
    }
    let attempts = facts.ledger.attempts.iter_mut();
    for attempt in attempts.filter(|attempt| attempt.call_id == call_id) {
        attempt.outcome = Some("unknown".to_owned());
        attempt.finished_at = Some(until);
    }
    facts.marks.retain(|mark| mark.n != n);
    facts
        .history
        .retain(|entry| entry.n != n || entry.phase == Phase::Asked || entry.op == Op::SubmitAsync);
}

/// Somebody was told this, before the end was told to anybody.
pub(crate) fn said(facts: &mut Facts, n: u64, op: Op, answer: serde_json::Value) {
    say(facts, n, "charge", op, Phase::Asked, 0, None);
    say(facts, n, "charge", op, Phase::Answered, 12, Some(answer));
}
