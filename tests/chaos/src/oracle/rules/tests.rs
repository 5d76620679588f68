//! No rule without facts that break it, and it alone; and none that breaks on facts that are as they should be.

mod ruled;
mod waiting;

use std::collections::BTreeSet;

use fleet::call::{Effect, State};
use serde_json::{Value, json};

use super::*;
use crate::{
    effects::{Did, Mode},
    history::{Op, Phase},
    oracle::{
        clock::{Clock, ClockMove},
        facts::{Exit, Facts, Forced, Held, How, Moment, Pause, Rate, Session},
        judge,
        sample::{
            at, attempt, call, clean, doubt, event, hit, id, late_after_settlement, mark, say,
            set_mode, strike, succeeded, tell,
        },
    },
    plan::Member,
};

/// A worker that ended by itself, long after or before anything was done to it.
fn exit(code: Option<i32>, was_ready: bool) -> Exit {
    Exit {
        member: Member::Worker(0),
        name: "worker-0-1".to_owned(),
        started: at(0),
        at: at(0) + 10,
        code,
        was_ready,
        was_told: false,
    }
}

/// A breaker that was forced long enough before the first calls began.
fn forced(facts: &mut Facts, tool: &str, is_open: bool) {
    facts.ledger.forced.push(Forced {
        control_id: 1,
        tool: tool.to_owned(),
        is_open,
        set_at: at(0) - 2_000,
        ended_at: at(5),
    });
}

/// A number's call was ended by an open breaker, at this moment.
fn end_by_breaker(facts: &mut Facts, n: u64, ended: Moment) {
    let row = call(facts, n);
    row.code = Some("circuit_open".to_owned());
    row.finished_at = Some(ended);
    facts
        .history
        .retain(|entry| entry.n != n || entry.phase == Phase::Asked);
}

/// Until 50 s another tool is called, every second.
fn busy(facts: &mut Facts) {
    for n in (50..400).step_by(10) {
        succeeded(facts, n, "put");
    }
}

/// So many in a second.
fn rate(calls: u64) -> Rate {
    Rate {
        calls,
        per_ms: 1_000,
        burst: 1,
    }
}

/// A pause that was set long enough before the first calls began.
fn pause(facts: &mut Facts, tool: Option<&str>, has_value: bool) {
    facts.ledger.pauses.push(Pause {
        control_id: 1,
        tool: tool.map(str::to_owned),
        has_value,
        set_at: at(0) - 2_000,
        ended_at: at(5),
    });
}

/// Breaks one rule.
type Break = fn(&mut Facts);

/// For each rule, facts that break it. The numbers: 0 is a call of `charge`, 1 of `put`, 2 of `transfer`, 3 of `look`.
const BROKEN: &[(&str, Break)] = &[
    (accepted::KNOWN, |facts| {
        tell(
            facts,
            90,
            Op::SubmitAsync,
            json!({"call_id": "lost", "state": "queued"}),
        )
    }),
    (accepted::ASKED, |facts| {
        facts.history.retain(|entry| entry.n != 3)
    }),
    (accepted::ASKED, |facts| call(facts, 3).n = None),
    (processes::LEAVES, |facts| {
        facts.exits.push(exit(Some(1), true))
    }),
    (processes::LEAVES, |facts| {
        facts.exits.push(exit(None, false))
    }),
    (processes::LEAVES, |facts| {
        facts.exits.push(exit(Some(69), false))
    }),
    (processes::STAYS, |facts| {
        facts.stayed.push("worker-0".to_owned())
    }),
    (accepted::ONE, |facts| {
        call(facts, 3).key_hash = Some("hash-2".to_owned())
    }),
    (accepted::REFUSED, |facts| {
        answer(
            facts,
            3,
            &json!({"call_id": null, "state": "refused", "effect": "none", "error": {"code": "overloaded"}}),
        )
    }),
    (accepted::MISUSED, |facts| {
        tell(
            facts,
            3,
            Op::Misuse,
            json!({"call_id": id(3), "tool": "look", "state": "succeeded"}),
        )
    }),
    (accepted::CROSSED, |facts| {
        ended(facts, 0)["tool"] = json!("put")
    }),
    (accepted::CROSSED, |facts| {
        ended(facts, 0)["result"]["n"] = json!(4)
    }),
    (effects::TWICE, |facts| {
        facts
            .marks
            .push(mark(0, "charge", 1, Did::Applied, at(0) + 13))
    }),
    (effects::TWICE, |facts| {
        facts
            .marks
            .push(mark(1, "put", 1, Did::Applied, at(1) + 13))
    }),
    (effects::TWICE, |facts| {
        facts.tables.push(("transfer".to_owned(), 2, 1))
    }),
    (effects::TWICE, |facts| {
        // Each of two calls did it once, for one submission.
        for mark in facts.marks.iter_mut().filter(|mark| mark.n == 4) {
            mark.n = 0;
        }
    }),
    (effects::STATE, |facts| {
        facts.tables.retain(|(_, n, _)| *n != 2)
    }),
    (effects::STATE, |facts| {
        late_after_settlement(facts, 0);
        call(facts, 0).source = Some("live".to_owned());
    }),
    (effects::OUTCOME, |facts| {
        let attempt = facts
            .ledger
            .attempts
            .iter_mut()
            .find(|attempt| attempt.call_id == id(1))
            .unwrap();
        attempt.outcome = Some("definite_failure".to_owned());
    }),
    (effects::ALARM, |facts| {
        let name = "toolfleet_integrity_alarms_total".to_owned();
        facts.metrics.insert(name, 1.0);
    }),
    (effects::MONEY, |facts| {
        facts.totals = Some((640_000, 640_001))
    }),
    (told::CODES, |facts| {
        tell(
            facts,
            3,
            Op::Batch,
            json!({"call_id": null, "state": "refused", "error": {"code": "invalid_arguments"}}),
        )
    }),
    (attempts::AGAIN, |facts| {
        facts
            .marks
            .push(mark(0, "charge", 1, Did::Started, at(0) + 14))
    }),
    (attempts::AGAIN, |facts| {
        again(facts, 0, "definite_failure");
        facts
            .marks
            .insert(0, mark(0, "charge", 2, Did::Started, at(0) + 30));
    }),
    (attempts::CLAIMED, |facts| {
        facts
            .marks
            .push(mark(1, "put", 2, Did::Started, at(1) + 14))
    }),
    (attempts::CLAIMED, |facts| {
        facts
            .marks
            .push(mark(1, "put", 1, Did::Started, at(1) - 200))
    }),
    (attempts::KEY, |facts| {
        facts.marks.iter_mut().find(|mark| mark.n == 1).unwrap().key = "another".to_owned()
    }),
    (attempts::KEY, |facts| {
        facts
            .marks
            .iter_mut()
            .filter(|mark| mark.n == 1)
            .for_each(|mark| mark.key = "key-0".to_owned())
    }),
    (attempts::GAPS, |facts| call(facts, 3).attempts = 2),
    (attempts::POLICY, |facts| {
        facts.ledger.tools[3].attempts_max = 0
    }),
    (paused::PAUSED, |facts| pause(facts, None, false)),
    (paused::PAUSED, |facts| pause(facts, Some("look"), true)),
    (paused::FORCED, |facts| forced(facts, "look", true)),
    (waits::NOBODY, |facts| {
        facts.ledger.held.push(Held {
            call_id: id(3),
            line: "breaker/1".to_owned(),
            has_cause: false,
        })
    }),
    // The last attempt of its tool was over after 14 s.
    (waits::AGAIN, |facts| {
        busy(facts);
        end_by_breaker(facts, 3, 50_000);
    }),
    (waits::UNKNOWN, |facts| {
        again(facts, 1, "unknown");
        set_mode(facts, 1, Mode::HangBefore);
        let asked = mark(1, "put", 1, Did::Started, at(1) + 11);
        facts.marks.push(asked);
        let row = call(facts, 1);
        row.state = State::Failed;
        row.code = Some("circuit_open".to_owned());
        facts.ledger.events.last_mut().unwrap().to = State::Failed;
        facts
            .marks
            .retain(|mark| mark.n != 1 || mark.did != Did::Applied);
        facts
            .history
            .retain(|entry| entry.n != 1 || entry.phase == Phase::Asked);
        facts.ledger.attempts.last_mut().unwrap().outcome = Some("definite_failure".to_owned());
    }),
    (rates::RATE, |facts| {
        // Its four calls of the first 1.2 s are more than start in 2.3 s.
        facts.ledger.tools[1].rate = Some(rate(1));
    }),
    (attempts::DEADLINE, |facts| {
        call(facts, 3).deadline_at = at(3) + 5
    }),
    (moves::LEGAL, |facts| {
        facts
            .ledger
            .events
            .retain(|event| event.call_id != id(3) || event.revision != 1)
    }),
    (caches::TENANT, |facts| {
        call(facts, 3).answer = Some(json!({"n": 3, "tenant": "other"}));
        ended(facts, 3)["result"]["tenant"] = json!("default");
    }),
    (caches::TENANT, |facts| {
        call(facts, 3).answer = Some(json!({"n": 7, "tenant": "default"}));
        ended(facts, 3)["result"]["tenant"] = json!("default");
    }),
    (caches::TENANT, |facts| {
        call(facts, 3).answer = Some(json!({"n": 3, "tenant": "default"}));
        ended(facts, 3)["result"]["tenant"] = json!("other");
    }),
    // It was 3,600 ms old.
    (caches::HIT, |facts| hit(facts, 39, 3, 500)),
    (caches::HIT, |facts| {
        hit(facts, 39, 3, 60_000);
        call(facts, 3).source = Some("cache".to_owned());
    }),
    (caches::HIT, |facts| {
        hit(facts, 39, 3, 60_000);
        call(facts, 3).told = Some(7);
        ended(facts, 3)["result"]["n"] = json!(7);
    }),
    (caches::HIT, |facts| {
        call(facts, 3).source = Some("cache".to_owned())
    }),
    (caches::DEGRADED, |facts| {
        ended(facts, 3)["source"] = json!("stale")
    }),
    (caches::DEGRADED, |facts| {
        ended(facts, 3)["outcome"] = json!("fallback")
    }),
    (moves::LEGAL, |facts| {
        facts
            .ledger
            .events
            .iter_mut()
            .filter(|event| event.call_id == id(3) && event.revision == 2)
            .for_each(|event| event.revision = 3)
    }),
    (moves::LEGAL, |facts| {
        facts.ledger.events.push(event(
            3,
            3,
            Some(State::Succeeded),
            State::Succeeded,
            "remark",
        ))
    }),
    (moves::CLASS, |facts| {
        doubt(facts, 3, "timeout", "timeout");
        set_mode(facts, 3, Mode::HangAfter);
    }),
    (moves::STUCK, |facts| {
        let row = call(facts, 3);
        (row.state, row.finished_at) = (State::Running, None);
        facts
            .ledger
            .events
            .retain(|event| event.call_id != id(3) || event.revision < 2);
        facts
            .history
            .retain(|entry| entry.n != 3 || entry.phase == Phase::Asked);
    }),
    (told::ONE_END, |facts| {
        let mut other = ended(facts, 3).clone();
        other["result"] = json!({"n": 3, "more": true});
        tell(facts, 3, Op::Get, other);
    }),
    (told::AS_IT_IS, |facts| {
        tell(
            facts,
            3,
            Op::Cancel,
            json!({"call_id": id(3), "state": "succeeded", "result": "cancelled"}),
        )
    }),
    (told::AS_IT_IS, |facts| {
        tell(
            facts,
            3,
            Op::Cancel,
            json!({"call_id": id(3), "state": "failed", "result": "already_terminal"}),
        )
    }),
    (told::BACK, |facts| {
        tell(
            facts,
            3,
            Op::Get,
            json!({"call_id": id(3), "tool": "look", "state": "running"}),
        )
    }),
    (told::CODES, |facts| {
        tell(
            facts,
            3,
            Op::Get,
            json!({"call_id": null, "state": "refused", "error": {"code": "not_found"}}),
        )
    }),
    (told::CODES, |facts| {
        ended(facts, 3)["error"] = json!({"code": "output_invalid"})
    }),
    (told::CODES, |facts| tell(facts, 3, Op::Get, json!({}))),
    (processes::SESSIONS, |facts| {
        facts.sessions.push(session("idle in transaction", 1_500))
    }),
    (processes::SESSIONS, |facts| {
        facts.stopped = true;
        facts.sessions.push(session("idle", 20_000));
    }),
    (processes::PROCESSES, |facts| {
        facts
            .leftover_processes
            .push("4711 chaos_effects act".to_owned())
    }),
    (processes::PANICS, |facts| {
        facts.logs.push((
            "worker-0".to_owned(),
            "x\nthread 'main' panicked at src/x.rs:1\n".to_owned(),
        ))
    }),
    (processes::RIGHTS, |facts| {
        facts.logs.push((
            "nats".to_owned(),
            "\"fleet/user:agent-default\" - Publish Violation - Subject \"a\"\n\
             \"fleet/user:service-a\" - Publish Violation - Subject \"b\""
                .to_owned(),
        ))
    }),
    (processes::SECRETS, |facts| {
        facts.secret_marker = Some("s3cret".to_owned());
        facts.logs.push((
            "worker-0".to_owned(),
            "sent {\"token\": \"s3cret\"}".to_owned(),
        ));
    }),
];

fn all_broken() -> impl Iterator<Item = &'static (&'static str, Break)> {
    BROKEN.iter().chain(waiting::BROKEN).chain(ruled::BROKEN)
}

fn ended(facts: &mut Facts, n: u64) -> &mut Value {
    let mut answers = facts.history.iter_mut().filter(|entry| entry.n == n);
    answers.find_map(|entry| entry.answer.as_mut()).unwrap()
}

fn answer(facts: &mut Facts, n: u64, answer: &Value) {
    ended(facts, n).clone_from(answer);
}

fn session(state: &str, for_ms: i64) -> Session {
    Session {
        pid: 9,
        application: "toolfleet-worker".to_owned(),
        state: state.to_owned(),
        for_ms,
    }
}

/// A number's call was queued again after its first attempt, which came to this without an effect, and succeeded then.
fn again(facts: &mut Facts, n: u64, outcome: &str) {
    call(facts, n).attempts = 2;
    let first = facts
        .ledger
        .attempts
        .iter_mut()
        .find(|attempt| attempt.call_id == id(n))
        .unwrap();
    first.outcome = Some(outcome.to_owned());
    facts.ledger.attempts.push(attempt(n, 2));
    facts
        .ledger
        .events
        .retain(|event| event.call_id != id(n) || event.revision < 2);
    facts.ledger.events.extend([
        event(n, 2, Some(State::Running), State::Queued, "unavailable"),
        event(n, 3, Some(State::Queued), State::Running, "claimed"),
        event(n, 4, Some(State::Running), State::Succeeded, "applied"),
    ]);
    let marks = facts
        .marks
        .iter_mut()
        .filter(|mark| mark.n == n && mark.did != Did::Started);
    marks.for_each(|mark| mark.attempt = 2);
}

fn rules_broken(facts: &Facts) -> BTreeSet<&'static str> {
    judge(facts).rules()
}

#[test]
fn a_clean_run_breaks_no_rule() {
    let verdict = judge(&clean());
    assert!(verdict.holds(), "{verdict}");
}

#[test]
fn each_rule_is_broken_by_what_it_is_for_and_no_other_with_it() {
    let mut wrong = Vec::new();
    for (number, (rule, break_it)) in all_broken().enumerate() {
        let mut facts = clean();
        break_it(&mut facts);
        let broken = rules_broken(&facts);
        if broken != BTreeSet::from([*rule]) {
            wrong.push(format!(
                "case {number}: {rule} was to break, and {broken:?} did"
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_rule_has_facts_that_break_it() {
    let tried: BTreeSet<&str> = all_broken().map(|(rule, _)| *rule).collect();
    let rules: BTreeSet<&str> = ALL.iter().map(|(rule, _)| *rule).collect();
    assert_eq!(rules, tried);
}

#[test]
fn an_answer_that_counts_or_that_a_fault_kept_may_be_given_again() {
    let breaks: [Break; 3] = [
        |facts| hit(facts, 39, 3, 1_000),
        // Its worker was stopped between the look and the answer.
        |facts| {
            hit(facts, 39, 3, 500);
            strike(facts, 20, How::Paused, Some(100));
        },
        |facts| {
            hit(facts, 39, 3, 500);
            facts.injected.clock_moves.push(ClockMove {
                begun: at(20),
                done: at(20),
                by: -1_000,
            });
        },
    ];
    for break_it in breaks {
        let mut facts = clean();
        break_it(&mut facts);
        assert_eq!(rules_broken(&facts), BTreeSet::new(), "{}", judge(&facts));
    }
}

#[test]
fn what_starts_beside_a_pause_breaks_no_rule() {
    let breaks: [Break; 4] = [
        // Not every process knew of it yet.
        |facts| {
            pause(facts, None, false);
            facts.ledger.pauses[0].set_at += 1_000;
        },
        |facts| pause(facts, Some("another"), false),
        // Its tool was told to behave in another way.
        |facts| {
            pause(facts, Some("look"), true);
            set_mode(facts, 3, Mode::Slow);
        },
        // Its worker could not hear of it.
        |facts| {
            pause(facts, None, false);
            strike(facts, 0, How::Ledger, None);
            facts.injected.struck[0].from = at(0) - 3_000;
        },
    ];
    for break_it in breaks {
        let mut facts = clean();
        break_it(&mut facts);
        assert_eq!(rules_broken(&facts), BTreeSet::new(), "{}", judge(&facts));
    }
}

#[test]
fn what_starts_or_waits_beside_a_breaker_breaks_no_rule() {
    let breaks: [Break; 6] = [
        // Its tool was tried a moment before.
        |facts| end_by_breaker(facts, 3, 20_000),
        // Nothing was tried, of any tool.
        |facts| end_by_breaker(facts, 3, 50_000),
        |facts| {
            busy(facts);
            end_by_breaker(facts, 3, 50_000);
            forced(facts, "look", true);
            facts.ledger.forced[0].set_at = 45_000;
            facts.ledger.forced[0].ended_at = 51_000;
        },
        |facts| forced(facts, "look", false),
        |facts| forced(facts, "another", true),
        // It waits for something.
        |facts| {
            facts.ledger.held.push(Held {
                call_id: id(3),
                line: "breaker/1".to_owned(),
                has_cause: true,
            });
        },
    ];
    for break_it in breaks {
        let mut facts = clean();
        break_it(&mut facts);
        assert_eq!(rules_broken(&facts), BTreeSet::new(), "{}", judge(&facts));
    }
}

#[test]
fn starts_that_the_rate_allows_break_no_rule() {
    let breaks: [Break; 3] = [
        // One of `put` in 400 ms.
        |facts| facts.ledger.tools[1].rate = Some(rate(3)),
        |facts| {
            facts.ledger.tools[1].rate = Some(Rate {
                burst: 10,
                ..rate(1)
            });
        },
        // Postgres's clock was moved in the middle of it.
        |facts| {
            facts.ledger.tools[1].rate = Some(rate(1));
            facts.injected.clock_moves.push(ClockMove {
                begun: at(1),
                done: at(40),
                by: 90_000,
            });
        },
    ];
    for break_it in breaks {
        let mut facts = clean();
        break_it(&mut facts);
        assert_eq!(rules_broken(&facts), BTreeSet::new(), "{}", judge(&facts));
    }
}

#[test]
fn an_effect_after_its_settlement_is_nobodys_fault_and_only_then() {
    let mut facts = clean();
    late_after_settlement(&mut facts, 0);
    facts
        .metrics
        .insert("toolfleet_integrity_alarms_total".to_owned(), 1.0);
    assert_eq!(rules_broken(&facts), BTreeSet::new(), "{}", judge(&facts));

    let breaks: [Break; 4] = [
        // Before it was settled, there was something to be found.
        |facts| call(facts, 0).finished_at = Some(at(0) + 6_000),
        // Before the attempt's time was over, no settlement could have been allowed.
        |facts| facts.ledger.attempts[0].timeout_ms = 30_000,
        // What runs on the worker's machine is gone when the worker is fenced.
        |facts| facts.ledger.tools[0].executor = "process".to_owned(),
        |facts| set_mode(facts, 0, Mode::HangAfter),
    ];
    for break_it in breaks {
        let mut facts = clean();
        late_after_settlement(&mut facts, 0);
        break_it(&mut facts);
        assert_eq!(rules_broken(&facts), BTreeSet::from([effects::STATE]));
    }
}

#[test]
fn what_a_person_abandoned_may_have_happened_and_what_a_probe_did_may_not() {
    let abandoned = |facts: &mut Facts, actor: &str| {
        late_after_settlement(facts, 0);
        // Not excused by when it happened.
        set_mode(facts, 0, Mode::HangAfter);
        let last = facts.ledger.events.last_mut().unwrap();
        last.reason = "settled_abandoned".to_owned();
        last.actor = actor.to_owned();
    };
    let mut facts = clean();
    abandoned(&mut facts, "client-1");
    assert_eq!(rules_broken(&facts), BTreeSet::new(), "{}", judge(&facts));
    let mut facts = clean();
    abandoned(&mut facts, "probe call-9");
    assert_eq!(rules_broken(&facts), BTreeSet::from([effects::STATE]));
}

/// Postgres's clock was moved forward by 90 s, and the harness was kept waiting for 250 ms after that. Meanwhile a call
/// was claimed, and its tool asked: so many milliseconds after it was accepted.
fn claimed_while_the_clock_was_moved(claimed: Moment) -> Facts {
    let slow = ClockMove {
        begun: at(1),
        done: at(1) + 250,
        by: 90_000,
    };
    let clock = Clock::new(90_000, &[slow]);
    let mut facts = clean();
    let attempts = facts.ledger.attempts.iter_mut();
    for attempt in attempts.filter(|attempt| attempt.call_id == id(1)) {
        attempt.started_at = clock.moment(at(1) + claimed + 90_000);
    }
    facts
}

#[test]
fn what_runs_while_the_clock_of_postgres_is_moved_was_claimed_before() {
    // Its tool is asked 11 ms after it was accepted.
    let facts = claimed_while_the_clock_was_moved(10);
    assert_eq!(rules_broken(&facts), BTreeSet::new(), "{}", judge(&facts));
    let facts = claimed_while_the_clock_was_moved(11 + 101);
    assert_eq!(
        rules_broken(&facts),
        BTreeSet::from([attempts::CLAIMED]),
        "the rule is as sharp as at any other time"
    );
}

#[test]
fn what_never_started_may_be_tried_again() {
    let mut facts = clean();
    again(&mut facts, 0, "not_started");
    facts
        .marks
        .iter_mut()
        .filter(|mark| mark.n == 0)
        .for_each(|mark| mark.attempt = 2);
    assert_eq!(rules_broken(&facts), BTreeSet::new(), "{}", judge(&facts));
}

#[test]
fn attempts_that_the_platform_lost_are_free() {
    let mut facts = clean();
    again(&mut facts, 1, "not_started");
    facts
        .marks
        .iter_mut()
        .filter(|mark| mark.n == 1)
        .for_each(|mark| mark.attempt = 2);
    facts.ledger.tools[1].attempts_max = 1;
    assert_eq!(rules_broken(&facts), BTreeSet::from([attempts::POLICY]));
    let back = facts
        .ledger
        .events
        .iter_mut()
        .find(|event| event.reason == "unavailable")
        .unwrap();
    back.spent = Some(false);
    assert_eq!(rules_broken(&facts), BTreeSet::new());
}

#[test]
fn a_submission_without_an_answer_may_have_left_a_call_or_none() {
    let mut facts = clean();
    facts
        .history
        .retain(|entry| entry.n != 3 || entry.phase == Phase::Asked);
    say(&mut facts, 91, "look", Op::Submit, Phase::Asked, 0, None);
    say(&mut facts, 91, "look", Op::Submit, Phase::Unknown, 9, None);
    let silent = json!({"call_id": null, "state": "refused", "effect": "unknown", "error": {"code": "store_unavailable"}});
    answer_of(&mut facts, 7, &silent);
    assert_eq!(rules_broken(&facts), BTreeSet::new(), "{}", judge(&facts));
}

#[test]
fn a_question_that_came_twice_may_be_refused_and_accepted() {
    let refused = json!({"call_id": null, "state": "refused", "effect": "none", "error": {"code": "overloaded"}});
    let mut facts = clean();
    answer_of(&mut facts, 3, &refused);
    assert!(rules_broken(&facts).contains(accepted::REFUSED));
    let answered = facts.history.iter().filter(|entry| entry.n == 3);
    let last = answered.map(|entry| entry.at_ms).max().unwrap();
    let at = facts.injected.clients_began + Moment::try_from(last).unwrap();
    facts.injected.asked_again = vec![at + 60_000..=at + 60_000];
    assert!(
        rules_broken(&facts).contains(accepted::REFUSED),
        "another one came twice"
    );
    facts.injected.asked_again = vec![at..=at];
    assert!(
        !rules_broken(&facts).contains(accepted::REFUSED),
        "{}",
        judge(&facts)
    );
}

fn answer_of(facts: &mut Facts, n: u64, silent: &Value) {
    answer(facts, n, silent);
}

#[test]
fn what_nobody_made_is_not_found_and_hostile_arguments_are_refused() {
    let mut facts = clean();
    let refused =
        |code: &str| json!({"call_id": null, "state": "refused", "error": {"code": code}});
    tell(&mut facts, 92, Op::Get, refused("not_found"));
    tell(&mut facts, 93, Op::Submit, refused("depth_exceeded"));
    assert_eq!(rules_broken(&facts), BTreeSet::new(), "{}", judge(&facts));
}

#[test]
fn a_doubt_is_told_before_its_end() {
    let mut facts = clean();
    late_after_settlement(&mut facts, 0);
    let told = json!({"call_id": id(0), "tool": "charge", "state": "in_doubt", "outcome": "unknown", "error": {"code": "in_doubt"}});
    say(
        &mut facts,
        0,
        "charge",
        Op::Submit,
        Phase::Answered,
        30,
        Some(told),
    );
    set_mode(&mut facts, 0, Mode::Late);
    assert_eq!(rules_broken(&facts), BTreeSet::new(), "{}", judge(&facts));
}

#[test]
fn the_sample_has_a_call_of_every_class() {
    let classes: BTreeSet<Effect> = clean()
        .ledger
        .calls
        .iter()
        .map(|call| call.effect)
        .collect();
    assert_eq!(classes, Effect::ALL.iter().copied().collect());
    // And what a fault explains is not a breach.
    let mut facts = clean();
    doubt(&mut facts, 0, "worker_lost", "tool_crashed");
    strike(&mut facts, 0, How::Killed, Some(100));
    assert_eq!(rules_broken(&facts), BTreeSet::new());
}
