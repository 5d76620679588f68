//! Calls of tools with a policy.

use fleet::manifest::Policy;

use super::*;
use crate::oracle::rules::ruled;

/// For each rule about them, facts that break it. The numbers: 0, 4 and 8 are calls of `charge`, 1 and 5 of `put`.
pub(super) const BROKEN: &[(&str, Break)] = &[
    (ruled::AT_MOST, |facts| {
        rule(
            facts,
            "charge",
            &json!({"at_most": {"calls": 1, "per": "run"}}),
        );
        put_in_run(facts, &[0, 4]);
    }),
    // Nothing has succeeded in its run.
    (ruled::AFTER, |facts| {
        rule(facts, "put", &json!({"after": ["charge"]}));
        put_in_run(facts, &[1]);
    }),
    // It came later.
    (ruled::AFTER, |facts| {
        rule(facts, "put", &json!({"after": ["charge"]}));
        put_in_run(facts, &[1, 4]);
    }),
    (ruled::NEVER, |facts| {
        rule(facts, "put", &json!({"never_after": ["charge"]}));
        put_in_run(facts, &[0, 5]);
    }),
    // Its tool has no policy.
    (ruled::REASON, |facts| forbid(facts, 4)),
    // It was the first in its run.
    (ruled::REASON, |facts| {
        rule(
            facts,
            "charge",
            &json!({"at_most": {"calls": 1, "per": "run"}}),
        );
        put_in_run(facts, &[4]);
        forbid(facts, 4);
    }),
];

fn rule(facts: &mut Facts, tool: &str, policy: &Value) {
    let policy: Policy = serde_json::from_value(policy.clone()).unwrap();
    let mut tools = facts.ledger.tools.iter_mut();
    let row = tools.find(|row| row.tool == tool).unwrap();
    row.policy = Some(policy);
}

fn put_in_run(facts: &mut Facts, numbers: &[u64]) {
    for n in numbers {
        call(facts, *n).run = Some("short-1".to_owned());
    }
}

/// A number's call was ended by its policy, and nobody was told.
fn forbid(facts: &mut Facts, n: u64) {
    let row = call(facts, n);
    (row.state, row.code) = (State::Failed, Some("forbidden".to_owned()));
    (row.attempts, row.effect_known) = (0, Some("none".to_owned()));
    let call_id = id(n);
    facts.marks.retain(|mark| mark.n != n);
    let ledger = &mut facts.ledger;
    ledger.attempts.retain(|attempt| attempt.call_id != call_id);
    ledger.events.retain(|event| event.call_id != call_id);
    ledger.events.extend([
        event(n, 0, None, State::Queued, "accepted"),
        event(n, 1, Some(State::Queued), State::Failed, "forbidden"),
    ]);
    facts
        .history
        .retain(|entry| entry.n != n || entry.phase == Phase::Asked);
}

#[test]
fn what_a_policy_lets_and_forbids_rightly_breaks_no_rule() {
    let breaks: [Break; 4] = [
        // Of two one may happen, and the other was forbidden.
        |facts| {
            rule(
                facts,
                "charge",
                &json!({"at_most": {"calls": 1, "per": "run"}}),
            );
            put_in_run(facts, &[0, 4]);
            forbid(facts, 4);
        },
        // They are of different runs.
        |facts| {
            rule(
                facts,
                "charge",
                &json!({"at_most": {"calls": 1, "per": "run"}}),
            );
            put_in_run(facts, &[0]);
        },
        |facts| {
            rule(facts, "put", &json!({"after": ["charge"]}));
            put_in_run(facts, &[0, 5]);
        },
        |facts| {
            rule(facts, "put", &json!({"never_after": ["charge"]}));
            put_in_run(facts, &[1, 4]);
        },
    ];
    for (number, break_it) in breaks.into_iter().enumerate() {
        let mut facts = clean();
        break_it(&mut facts);
        let verdict = judge(&facts);
        assert_eq!(rules_broken(&facts), BTreeSet::new(), "{number}: {verdict}");
    }
}
