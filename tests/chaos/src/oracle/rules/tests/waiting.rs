//! Calls that wait for somebody.

use serde_json::json;

use super::*;
use crate::oracle::{
    facts::Approval,
    sample::waiting::{agreed, decision, handed, said, silent},
};

/// For each rule about them, facts that break it. The number 0 is a call of `charge`.
pub(super) const BROKEN: &[(&str, Break)] = &[
    // Nobody has said it.
    (agreed::YES, |facts| {
        agreed(facts, 0);
        facts.ledger.decisions.clear();
    }),
    // It came after the attempt.
    (agreed::YES, |facts| {
        agreed(facts, 0);
        facts.ledger.decisions[0].at = at(0) + 200;
    }),
    // One said it, of two.
    (agreed::YES, |facts| {
        agreed(facts, 0);
        facts.ledger.tools[0].approval = Some(Approval {
            count: 2,
            above: Some(100),
        });
    }),
    (agreed::NO, |facts| {
        agreed(facts, 0);
        facts.ledger.decisions.push(decision(0, false, "bob"));
    }),
    (agreed::NO, |facts| {
        let row = call(facts, 3);
        (row.state, row.code) = (State::Failed, Some("denied".to_owned()));
        let call_id = id(3);
        let mut events = facts.ledger.events.iter_mut();
        let last = events.find(|event| event.call_id == call_id && event.revision == 2);
        last.unwrap().to = State::Failed;
        facts
            .history
            .retain(|entry| entry.n != 3 || entry.phase == Phase::Asked);
    }),
    (agreed::RECORDED, |facts| {
        agreed(facts, 0);
        facts.ledger.decisions[0].args_hash = "another".to_owned();
    }),
    (agreed::RECORDED, |facts| {
        agreed(facts, 0);
        let told = json!({"call_id": id(0), "tool": "charge", "state": "succeeded"});
        tell(facts, 0, Op::Deny, told);
    }),
    (handed::TWICE, |facts| {
        handed(facts);
        let told = json!({
            "call_id": id(0), "tool": "charge", "state": "awaiting_client",
            "awaiting": {"for": "client", "token": "another"},
        });
        said(facts, 0, Op::Replay, told);
    }),
    (handed::TWICE, |facts| {
        handed(facts);
        facts.ledger.attempts[0].worker_id = Some("worker-0".to_owned());
    }),
    (handed::OPEN, |facts| {
        handed(facts);
        silent(facts, 0, State::Expired);
        set_mode(facts, 0, Mode::HangBefore);
    }),
    (handed::LATE, |facts| {
        handed(facts);
        silent(facts, 0, State::InDoubt);
        let told = json!({"call_id": null, "state": "refused", "error": {"code": "conflict"}});
        tell(facts, 0, Op::Output, told);
        name_the_call(facts, 0);
    }),
    (handed::TIME, |facts| {
        handed(facts);
        silent(facts, 0, State::InDoubt);
        let mut events = facts.ledger.events.iter_mut();
        let over = events.find(|event| event.reason == "client_silent");
        over.unwrap().at -= 1_000;
    }),
];

/// Who is refused asked about a call all the same.
fn name_the_call(facts: &mut Facts, n: u64) {
    let entries = facts.history.iter_mut().filter(|entry| entry.n == n);
    entries.for_each(|entry| entry.call_id = Some(id(n)));
}

#[test]
fn what_waited_as_it_should_breaks_no_rule() {
    let breaks: [Break; 6] = [
        |facts| agreed(facts, 0),
        // It needed none.
        |facts| {
            agreed(facts, 4);
            call(facts, 0).amount = Some(100);
        },
        handed,
        |facts| {
            handed(facts);
            silent(facts, 0, State::InDoubt);
        },
        // An error says nothing of a doubt.
        |facts| {
            handed(facts);
            silent(facts, 0, State::InDoubt);
            let told = json!({"call_id": null, "state": "refused", "error": {"code": "conflict"}});
            tell(facts, 0, Op::Output, told);
            name_the_call(facts, 0);
            set_mode(facts, 0, Mode::ErrorBefore);
        },
        // Postgres's clock was moved meanwhile.
        |facts| {
            handed(facts);
            silent(facts, 0, State::InDoubt);
            let mut events = facts.ledger.events.iter_mut();
            let over = events.find(|event| event.reason == "client_silent");
            over.unwrap().at -= 1_000;
            facts.injected.clock_moves.push(ClockMove {
                begun: at(0) + 500,
                done: at(0) + 510,
                by: 90_000,
            });
        },
    ];
    for (number, break_it) in breaks.into_iter().enumerate() {
        let mut facts = clean();
        break_it(&mut facts);
        let verdict = judge(&facts);
        assert_eq!(rules_broken(&facts), BTreeSet::new(), "{number}: {verdict}");
    }
}

#[test]
fn what_its_program_left_open_may_have_happened() {
    let mut facts = clean();
    handed(&mut facts);
    let row = call(&mut facts, 0);
    row.state = State::Failed;
    let call_id = id(0);
    let mut events = facts.ledger.events.iter_mut();
    let last = events.find(|event| event.call_id == call_id && event.revision == 1);
    last.unwrap().to = State::Failed;
    facts
        .history
        .retain(|entry| entry.n != 0 || entry.phase == Phase::Asked);
    assert_eq!(rules_broken(&facts), BTreeSet::from([effects::STATE]));
    call(&mut facts, 0).effect_known = Some("unknown".to_owned());
    assert_eq!(rules_broken(&facts), BTreeSet::new(), "{}", judge(&facts));
}
