//! Facts made by hand, for tests: of a run in which nothing is wrong, and of one in which everything happened.

pub(crate) mod waiting;

use std::collections::BTreeMap;

use fleet::{
    call::{Effect, State},
    manifest::Policy,
};
use serde_json::{Value, json};

use super::facts::{
    Attempt, BreakerRow, Call, Event, Facts, Forced, How, Ledger, Moment, Process, Rate, Struck,
    ToolRow, WorkerRow,
};
use crate::{
    effects::{Did, Mark, Mode},
    history::{Entry, Op, Phase},
    plan::Member,
};

/// The worker that runs everything, and its process.
const WORKER: &str = "worker-0";
const PID: u32 = 100;

/// A run of forty calls, all of which succeeded, of tools of every class.
pub(crate) fn clean() -> Facts {
    let mut facts = Facts {
        ledger: Ledger {
            tools: vec![
                tool("charge", Effect::Once, "http"),
                tool("put", Effect::Idempotent, "nats"),
                tool("transfer", Effect::Transaction, "sql"),
                tool("look", Effect::Read, "process"),
            ],
            workers: vec![WorkerRow {
                worker_id: WORKER.to_owned(),
                pid: PID,
                state: "live".to_owned(),
                started_at: 0,
                ended_at: None,
                ended_by: None,
                fenced_at: None,
            }],
            ..Ledger::default()
        },
        ..Facts::default()
    };
    facts.injected.processes = vec![Process {
        member: Member::Worker(0),
        pid: PID,
    }];
    for n in 0..40 {
        let tool = ["charge", "put", "transfer", "look"][n as usize % 4];
        succeeded(&mut facts, n, tool);
    }
    facts
}

fn tool(name: &str, effect: Effect, executor: &str) -> ToolRow {
    ToolRow {
        tool: name.to_owned(),
        effect,
        executor: executor.to_owned(),
        attempts_max: 3,
        rate: None,
        ttl_ms: None,
        approval: None,
        policy: None,
    }
}

/// The id of a number's call.
pub(crate) fn id(n: u64) -> String {
    format!("call-{n}")
}

/// When a number's call was accepted; its attempt begins ten milliseconds later and takes as long.
pub(crate) fn at(n: u64) -> Moment {
    10_000 + 100 * i64::try_from(n).unwrap()
}

/// A call with this number that has succeeded, and what its client was told.
pub(crate) fn succeeded(facts: &mut Facts, n: u64, tool: &str) {
    let effect = facts
        .ledger
        .tools
        .iter()
        .find(|row| row.tool == tool)
        .unwrap()
        .effect;
    let (accepted, call_id) = (at(n), id(n));
    facts.ledger.calls.push(Call {
        call_id: call_id.clone(),
        tenant: "default".to_owned(),
        tool: tool.to_owned(),
        effect,
        state: State::Succeeded,
        source: Some("live".to_owned()),
        n: Some(n),
        told: Some(n),
        amount: None,
        run: None,
        answer: None,
        effect_known: Some("applied".to_owned()),
        key_hash: Some(format!("hash-{n}")),
        code: None,
        attempts: 1,
        probe_of: None,
        accepted_at: accepted,
        deadline_at: accepted + 60_000,
        finished_at: Some(accepted + 20),
    });
    facts.ledger.attempts.push(attempt(n, 1));
    facts.ledger.events.extend([
        event(n, 0, None, State::Queued, "accepted"),
        event(n, 1, Some(State::Queued), State::Running, "claimed"),
        event(n, 2, Some(State::Running), State::Succeeded, "applied"),
    ]);
    if tool == "transfer" {
        facts.tables.push((tool.to_owned(), n, 1));
    } else if tool != "look" {
        for (did, later) in [(Did::Started, 11), (Did::Applied, 12), (Did::Replied, 13)] {
            facts.marks.push(mark(n, tool, 1, did, accepted + later));
        }
    }
    say(facts, n, tool, Op::Submit, Phase::Asked, 0, None);
    let answer = json!({
        "call_id": call_id, "tool": tool, "state": "succeeded", "outcome": "success", "effect": "applied",
        "result": {"n": n}, "error": null, "replayed": false,
    });
    say(
        facts,
        n,
        tool,
        Op::Submit,
        Phase::Answered,
        30,
        Some(answer),
    );
}

/// An attempt that did it.
pub(crate) fn attempt(n: u64, number: u32) -> Attempt {
    Attempt {
        call_id: id(n),
        attempt_id: format!("attempt-{n}-{number}"),
        number,
        worker_id: Some(WORKER.to_owned()),
        started_at: at(n) + 10,
        finished_at: Some(at(n) + 20),
        timeout_ms: 3_000,
        outcome: Some("applied".to_owned()),
        code: None,
        message: None,
        late: false,
    }
}

/// A move of a number's call, by its first attempt.
pub(crate) fn event(n: u64, revision: i64, from: Option<State>, to: State, reason: &str) -> Event {
    Event {
        call_id: id(n),
        revision,
        at: at(n) + 10 * revision,
        from,
        to,
        actor: format!("worker {WORKER}"),
        reason: reason.to_owned(),
        attempt_id: (revision > 0).then(|| format!("attempt-{n}-1")),
        spent: None,
        copied_from: None,
    }
}

/// Something that a tool did.
pub(crate) fn mark(n: u64, tool: &str, attempt: u32, did: Did, at: Moment) -> Mark {
    Mark {
        at: u64::try_from(at).unwrap() * 1_000_000,
        did,
        tool: tool.to_owned(),
        call: id(n),
        attempt,
        key: format!("key-{n}"),
        n,
        mode: Mode::Ok,
    }
}

/// A line of the history. An operation of a number has its own id for each kind.
pub(crate) fn say(
    facts: &mut Facts,
    n: u64,
    tool: &str,
    op: Op,
    phase: Phase,
    later: u64,
    answer: Option<Value>,
) {
    facts.history.push(Entry {
        at_ms: 10_000 + 100 * n + later,
        client: 0,
        op_id: n * 100 + op as u64,
        op,
        phase,
        n,
        tool: tool.to_owned(),
        key: Some(format!("key of {n}")),
        mode: Mode::Ok,
        call_id: None,
        answer,
    });
}

/// Asks, and is answered.
pub(crate) fn tell(facts: &mut Facts, n: u64, op: Op, answer: Value) {
    let tool = ["charge", "put", "transfer", "look"][n as usize % 4];
    say(facts, n, tool, op, Phase::Asked, 40, None);
    say(facts, n, tool, op, Phase::Answered, 50, Some(answer));
}

/// A number's call.
pub(crate) fn call(facts: &mut Facts, n: u64) -> &mut Call {
    facts
        .ledger
        .calls
        .iter_mut()
        .find(|call| call.n == Some(n))
        .unwrap()
}

/// How all that is said of a number's call and its tool was told to behave.
pub(crate) fn set_mode(facts: &mut Facts, n: u64, mode: Mode) {
    facts
        .history
        .iter_mut()
        .filter(|entry| entry.n == n)
        .for_each(|entry| entry.mode = mode);
    facts
        .marks
        .iter_mut()
        .filter(|mark| mark.n == n)
        .for_each(|mark| mark.mode = mode);
}

/// A number's call is in doubt since its first attempt ended, for this reason and with this error.
pub(crate) fn doubt(facts: &mut Facts, n: u64, reason: &str, code: &str) {
    let state = State::InDoubt;
    let row = call(facts, n);
    (row.state, row.source, row.finished_at) = (state, None, None);
    let (call_id, reason) = (id(n), reason.to_owned());
    let last = facts
        .ledger
        .events
        .iter_mut()
        .find(|event| event.call_id == call_id && event.revision == 2)
        .unwrap();
    (last.to, last.reason) = (state, reason);
    let attempt = facts
        .ledger
        .attempts
        .iter_mut()
        .find(|attempt| attempt.call_id == call_id)
        .unwrap();
    (attempt.outcome, attempt.code) = (Some("unknown".to_owned()), Some(code.to_owned()));
    facts
        .history
        .retain(|entry| entry.n != n || entry.phase == Phase::Asked);
}

/// A fault that struck the worker while a number's call ran.
pub(crate) fn strike(facts: &mut Facts, n: u64, how: How, pid: Option<u32>) {
    facts.injected.struck.push(Struck {
        member: Some(Member::Worker(0)),
        pid,
        how,
        from: at(n) + 12,
        until: at(n) + 12,
    });
}

/// A run in which everything happened that must happen sometimes. It is no run that could be: only what is counted is there.
pub(crate) fn everything_happened() -> Facts {
    let mut facts = clean();
    let answer = |n: u64, state: &str, more: Value| {
        let mut answer = json!({"call_id": id(n), "state": state});
        answer
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        answer
    };
    for state in ["queued", "running", "in_doubt", "succeeded", "failed"] {
        tell(
            &mut facts,
            0,
            Op::Replay,
            answer(0, state, json!({"replayed": true})),
        );
    }
    for result in ["cancelled", "already_terminal", "in_doubt"] {
        tell(
            &mut facts,
            1,
            Op::Cancel,
            answer(1, "cancelled", json!({"result": result})),
        );
    }
    let refused =
        |code: &str| json!({"call_id": null, "state": "refused", "error": {"code": code}});
    tell(&mut facts, 2, Op::Misuse, refused("idempotency_key_reused"));
    tell(&mut facts, 2, Op::Settle, refused("worker_not_fenced"));
    tell(&mut facts, 2, Op::Get, refused("overloaded"));
    tell(&mut facts, 2, Op::Get, refused("store_unavailable"));
    tell(&mut facts, 2, Op::Batch, refused("tool_paused"));
    for (revision, reason) in [
        "claim_given_up",
        "worker_lost",
        "poison",
        "cancel_requested",
    ]
    .into_iter()
    .enumerate()
    {
        facts.ledger.events.push(event(
            3,
            i64::try_from(revision).unwrap(),
            None,
            State::Queued,
            reason,
        ));
    }
    let doubt = Some(State::InDoubt);
    for actor in ["ann", "probe call-9"] {
        for (to, reason) in [
            (State::Succeeded, "settled_applied"),
            (State::Failed, "settled_not_applied"),
            (State::Failed, "settled_abandoned"),
        ] {
            let actor = actor.to_owned();
            facts.ledger.events.push(Event {
                actor,
                ..event(3, 9, doubt, to, reason)
            });
        }
    }
    facts
        .ledger
        .events
        .push(event(3, 9, doubt, State::Succeeded, "applied"));
    call(&mut facts, 4).code = Some("retries_exhausted".to_owned());
    call(&mut facts, 5).state = State::Expired;
    let mut evidence = attempt(6, 1);
    evidence.late = true;
    let mut refused_start = attempt(7, 1);
    refused_start.message =
        Some("the worker's lease ran out before the tool was started".to_owned());
    let mut second = attempt(9, 2);
    second.worker_id = Some("worker-1".to_owned());
    facts
        .ledger
        .attempts
        .extend([evidence, refused_start, second]);
    facts.ledger.workers.push(WorkerRow {
        worker_id: "worker-1".to_owned(),
        started_at: at(9) + 50,
        fenced_at: Some(at(40)),
        ..facts.ledger.workers[0].clone()
    });
    // A dispatcher died between a question and the end of its wait; another client was told later.
    say(
        &mut facts,
        10,
        "transfer",
        Op::Attach,
        Phase::Asked,
        0,
        None,
    );
    say(
        &mut facts,
        10,
        "transfer",
        Op::Attach,
        Phase::Unknown,
        20,
        None,
    );
    for (how, member) in [
        (How::Killed, Some(Member::Dispatcher(0))),
        (How::Stream, None),
    ] {
        facts.injected.struck.push(Struck {
            member,
            pid: Some(7),
            how,
            from: at(10) + 10,
            until: at(10) + 10,
        });
    }
    // A tool that may start once in a second, and started once in a second.
    facts.ledger.tools[1].rate = Some(Rate {
        calls: 1,
        per_ms: 1_000,
        burst: 1,
    });
    for (n, seconds) in [(1, 10), (5, 11), (9, 12), (13, 13)] {
        facts
            .ledger
            .attempts
            .iter_mut()
            .find(|attempt| attempt.call_id == id(n))
            .unwrap()
            .started_at = 1_000 * seconds;
    }
    // Two equal calls of a tool with a cache: the first one failed while the other one waited for it.
    facts.ledger.tools[3].ttl_ms = Some(1_000);
    for n in [15, 19] {
        call(&mut facts, n).told = Some(15);
    }
    let leader = call(&mut facts, 15);
    (leader.state, leader.finished_at) = (State::Failed, Some(at(19) + 5));
    call(&mut facts, 23).source = Some("cache".to_owned());
    call(&mut facts, 22).source = Some("stub".to_owned());
    for is_open in [true, false] {
        facts.ledger.forced.push(Forced {
            control_id: 1,
            tool: "look".to_owned(),
            is_open,
            set_at: at(0),
            ended_at: at(1),
        });
    }
    facts.ledger.breakers.push(BreakerRow {
        tool: "look".to_owned(),
        generation: 3,
    });
    everything_waited_for(&mut facts);
    facts.ledger.tools[3].policy = Some(Policy::default());
    call(&mut facts, 27).code = Some("forbidden".to_owned());
    call(&mut facts, 11).code = Some("circuit_open".to_owned());
    let closed = "the breaker is closed: calls are sent to this target again\n".to_owned();
    facts.logs.push(("worker-0".to_owned(), closed));
    let line = "stream of pointers was missing and is made\n".repeat(2);
    facts.logs.push(("dispatcher-0".to_owned(), line));
    let one = |name: &str| (name.to_owned(), 1.0);
    facts.metrics = BTreeMap::from([
        one("toolfleet_lost_leases_total"),
        one(r#"toolfleet_skipped_claims_total{reason="not_queued"}"#),
        one(r#"toolfleet_skipped_claims_total{reason="running"}"#),
        one(r#"toolfleet_swept_calls_total{pass="dead_worker"}"#),
        one(r#"toolfleet_swept_calls_total{pass="lost_pointer"}"#),
        one(r#"toolfleet_swept_calls_total{pass="put_aside"}"#),
        one(r#"toolfleet_swept_calls_total{pass="handed_back"}"#),
        one(r#"toolfleet_skipped_claims_total{reason="paused"}"#),
        one(r#"toolfleet_skipped_claims_total{reason="starts_in"}"#),
        one(r#"toolfleet_skipped_claims_total{reason="limited"}"#),
        one("toolfleet_held_wait_seconds_count"),
        one(r#"toolfleet_cache_looks_total{found="followed"}"#),
        one(r#"toolfleet_cache_looks_total{found="miss"}"#),
        one("toolfleet_breaker_openings_total"),
        (
            r#"toolfleet_skipped_claims_total{reason="circuit_open"}"#.to_owned(),
            2.0,
        ),
    ]);
    for statement in ["claim", "complete", "transaction"] {
        for found in ["done", "not_done"] {
            let name = format!(
                r#"toolfleet_lost_answers_total{{found="{found}",statement="{statement}"}}"#
            );
            facts.metrics.insert(name, 1.0);
        }
    }
    facts
}

/// What comes of calls that wait for somebody.
fn everything_waited_for(facts: &mut Facts) {
    waiting::agreed(facts, 12);
    facts
        .ledger
        .decisions
        .push(waiting::decision(16, false, "bob"));
    let waits = Some(State::AwaitingClient);
    for (from, to, reason, actor) in [
        (waits, State::Expired, "undecided", "sweep"),
        (waits, State::Succeeded, "applied", "client"),
        (Some(State::InDoubt), State::Succeeded, "applied", "client"),
        (waits, State::InDoubt, "client_silent", "sweep"),
        (waits, State::Expired, "client_silent", "sweep"),
    ] {
        facts.ledger.events.push(Event {
            actor: actor.to_owned(),
            ..event(20, 9, from, to, reason)
        });
    }
    let refused =
        |code: &str| json!({"call_id": null, "state": "refused", "error": {"code": code}});
    tell(facts, 20, Op::Approve, refused("conflict"));
    tell(facts, 20, Op::OtherArguments, refused("conflict"));
    tell(facts, 20, Op::OtherOutput, refused("conflict"));
    tell(facts, 20, Op::Output, refused("already_terminal"));
    let end = json!({"call_id": id(20), "state": "succeeded", "outcome": "success"});
    for _ in 0..2 {
        tell(facts, 20, Op::Output, end.clone());
    }
}

/// A number's call was answered by another one of its tool, whose answers count for as long as this.
pub(crate) fn hit(facts: &mut Facts, n: u64, from: u64, ttl_ms: Moment) {
    let row = call(facts, n);
    (row.source, row.told) = (Some("cache".to_owned()), Some(from));
    let tool = row.tool.clone();
    let tools = facts.ledger.tools.iter_mut();
    tools
        .filter(|row| row.tool == tool)
        .for_each(|row| row.ttl_ms = Some(ttl_ms));
    let call_id = id(n);
    let events = facts.ledger.events.iter_mut();
    events
        .filter(|event| event.call_id == call_id && event.revision == 2)
        .for_each(|event| event.copied_from = Some(id(from)));
    let answers = facts.history.iter_mut().filter(|entry| entry.n == n);
    for answer in answers.filter_map(|entry| entry.answer.as_mut()) {
        answer["result"]["n"] = from.into();
    }
}

/// A call of `charge` that was settled as not applied, and whose remote had the effect after that and after its time.
pub(crate) fn late_after_settlement(facts: &mut Facts, n: u64) {
    doubt(facts, n, "timeout", "timeout");
    set_mode(facts, n, Mode::Late);
    let row = call(facts, n);
    (row.state, row.source, row.finished_at) = (
        State::Failed,
        Some("settled".to_owned()),
        Some(at(n) + 4_000),
    );
    facts.ledger.events.push(Event {
        actor: "ann".to_owned(),
        ..event(
            n,
            3,
            Some(State::InDoubt),
            State::Failed,
            "settled_not_applied",
        )
    });
    let late = u64::try_from(at(n) + 5_000).unwrap() * 1_000_000;
    let applied = facts
        .marks
        .iter_mut()
        .filter(|mark| mark.n == n && mark.did == Did::Applied);
    applied.for_each(|mark| mark.at = late);
    facts
        .marks
        .retain(|mark| mark.n != n || mark.did != Did::Replied);
}
