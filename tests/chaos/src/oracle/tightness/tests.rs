//! What is unknown has a cause of its own, or it is a breach.

use std::collections::BTreeSet;

use super::*;
use crate::oracle::{
    facts::{Facts, Struck},
    judge,
    sample::{at, call, clean, doubt, event, set_mode, strike},
};

fn broken(change: impl FnOnce(&mut Facts)) -> BTreeSet<&'static str> {
    let mut facts = clean();
    change(&mut facts);
    judge(&facts).rules()
}

const NONE: BTreeSet<&str> = BTreeSet::new();

#[test]
fn a_doubt_without_a_cause_is_a_breach() {
    assert_eq!(
        broken(|facts| doubt(facts, 0, "timeout", "tool_crashed")),
        BTreeSet::from([CAUSE])
    );
    assert_eq!(
        broken(|facts| doubt(facts, 0, "worker_lost", "tool_crashed")),
        BTreeSet::from([CAUSE])
    );
}

#[test]
fn how_its_tool_behaves_explains_what_an_executor_says_and_no_lost_worker() {
    let told = |reason: &'static str, mode| {
        broken(move |facts| {
            doubt(facts, 0, reason, "tool_crashed");
            set_mode(facts, 0, mode);
        })
    };
    assert_eq!(told("tool_crashed", Mode::ResetAfter), NONE);
    assert_eq!(told("tool_crashed", Mode::Slow), BTreeSet::from([CAUSE]));
    assert_eq!(
        told("worker_lost", Mode::ResetAfter),
        BTreeSet::from([CAUSE])
    );
}

#[test]
fn a_fault_explains_the_attempts_of_the_process_that_it_struck() {
    let struck = |how, pid, change: fn(&mut Struck)| {
        broken(move |facts| {
            doubt(facts, 0, "worker_lost", "tool_crashed");
            strike(facts, 0, how, pid);
            change(&mut facts.injected.struck[0]);
        })
    };
    let as_it_is = |_: &mut Struck| ();
    assert_eq!(struck(How::Killed, Some(100), as_it_is), NONE);
    assert_eq!(struck(How::Ledger, None, as_it_is), NONE);
    assert_eq!(
        struck(How::Postgres, None, |struck| struck.member = None),
        NONE
    );
    let breach = BTreeSet::from([CAUSE]);
    assert_eq!(
        struck(How::Killed, Some(101), as_it_is),
        breach,
        "another process of that place"
    );
    assert_eq!(
        struck(How::Bus, None, as_it_is),
        breach,
        "no worker is lost without NATS"
    );
    let before =
        |struck: &mut Struck| (struck.from, struck.until) = (at(0) - 60_000, at(0) - 50_000);
    assert_eq!(struck(How::Ledger, None, before), breach, "long before");
}

#[test]
fn a_wish_to_stop_explains_what_it_stopped() {
    let stopped = broken(|facts| {
        doubt(facts, 0, "cancelled", "cancelled");
        let last = facts
            .ledger
            .events
            .iter_mut()
            .find(|event| event.reason == "cancelled")
            .unwrap();
        last.revision = 3;
        facts.ledger.events.push(event(
            0,
            2,
            Some(State::Running),
            State::Running,
            "cancel_requested",
        ));
    });
    assert_eq!(stopped, NONE);
}

#[test]
fn a_tool_that_took_all_its_time_was_too_slow_but_not_often() {
    let slow = |calls: u64, replied: bool| {
        broken(move |facts| {
            for n in (0..).step_by(4).take(calls as usize) {
                doubt(facts, n, "timeout", "timeout");
                let mut attempts = facts.ledger.attempts.iter_mut();
                let attempt = attempts
                    .find(|attempt| attempt.started_at == at(n) + 10)
                    .unwrap();
                attempt.finished_at = Some(attempt.started_at + attempt.timeout_ms);
                facts
                    .marks
                    .retain(|mark| mark.n != n || replied || mark.did != Did::Replied);
            }
        })
    };
    assert_eq!(slow(3, false), NONE);
    assert_eq!(slow(4, false), BTreeSet::from([SLOWNESS]));
    assert_eq!(
        slow(1, true),
        BTreeSet::from([CAUSE]),
        "it answered in time, and nobody heard"
    );
}

#[test]
fn a_doubt_stands_on_an_attempt() {
    let without = broken(|facts| {
        doubt(facts, 0, "timeout", "timeout");
        let attempt = facts
            .ledger
            .attempts
            .iter_mut()
            .find(|attempt| attempt.started_at == at(0) + 10);
        attempt.unwrap().outcome = Some("applied".to_owned());
    });
    assert_eq!(without, BTreeSet::from([DOUBT]));
}

#[test]
fn a_run_in_which_little_succeeds_fails_and_so_does_one_in_which_little_is_tried() {
    let fail = |tools: &'static [u64], mode| {
        broken(move |facts| {
            for n in (0..40).filter(|n| tools.contains(&(n % 4))) {
                // Of tools that leave no effect behind, or leave it undone.
                let row = call(facts, n);
                row.state = State::Failed;
                let call_id = row.call_id.clone();
                let last = facts
                    .ledger
                    .events
                    .iter_mut()
                    .find(|e| e.call_id == call_id && e.revision == 2);
                last.unwrap().to = State::Failed;
                facts.tables.retain(|(_, of, _)| *of != n);
                facts
                    .history
                    .retain(|entry| entry.n != n || entry.answer.is_none());
                set_mode(facts, n, mode);
            }
        })
    };
    assert_eq!(fail(&[2, 3], Mode::Ok), BTreeSet::from([SUCCESS]));
    assert_eq!(fail(&[2, 3], Mode::Business), NONE);
    let few = broken(|facts| (0..25).for_each(|n| set_mode(facts, n, Mode::Business)));
    assert_eq!(few, BTreeSet::from([SUCCESS]));
}

#[test]
fn a_tool_that_never_works_is_a_breach() {
    let never = broken(|facts| {
        let calls: Vec<String> = (0..40)
            .filter(|n| n % 2 == 1)
            .map(crate::oracle::sample::id)
            .collect();
        // The calls of `put` were all of `look`, so that there are twenty of them.
        facts.marks.retain(|mark| mark.tool != "put");
        for call in facts
            .ledger
            .calls
            .iter_mut()
            .filter(|call| calls.contains(&call.call_id))
        {
            (call.tool, call.effect) = ("look".to_owned(), fleet::call::Effect::Read);
            call.state = State::Failed;
        }
        for event in facts
            .ledger
            .events
            .iter_mut()
            .filter(|event| event.revision == 2)
        {
            if calls.contains(&event.call_id) {
                event.to = State::Failed;
            }
        }
        for entry in facts.history.iter_mut().filter(|entry| entry.n % 2 == 1) {
            (entry.tool, entry.answer, entry.mode) = ("look".to_owned(), None, Mode::Business);
        }
    });
    assert_eq!(never, BTreeSet::from([TOOLS]));
}

#[test]
fn a_worker_that_nothing_happened_to_is_not_dead() {
    let dead = |struck: bool| {
        broken(move |facts| {
            let worker = &mut facts.ledger.workers[0];
            (worker.state, worker.ended_at) = ("dead".to_owned(), Some(at(20)));
            if struck {
                strike(facts, 3, How::Paused, Some(100));
            }
        })
    };
    assert_eq!(dead(false), BTreeSet::from([WORKERS]));
    assert_eq!(dead(true), NONE);
}

#[test]
fn after_healing_and_some_time_to_recover_everything_succeeds() {
    let recovery_max = Moment::try_from(RECOVERY_MAX.as_millis()).unwrap();
    let healed = |before_ms| {
        broken(move |facts| {
            doubt(facts, 0, "worker_lost", "tool_crashed");
            strike(facts, 0, How::Killed, Some(100));
            facts.healed_at = Some(at(0) - before_ms);
        })
    };
    assert_eq!(healed(recovery_max - 1_000), NONE);
    assert_eq!(healed(recovery_max + 1_000), BTreeSet::from([HEALED]));
    assert_eq!(broken(|facts| facts.healed_at = Some(at(0) - 60_000)), NONE);
}
