//! Processes that are asked to stop, and lose nothing.

use std::time::{Duration, Instant};

use fleet_tests::{
    caller::{Answer, Submission},
    fleet::{Fleet, Spec},
    invariants,
    load::Load,
    postgres::Cluster,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::json;
use tokio::task::JoinSet;

#[tokio::test]
async fn a_worker_that_drains_finishes_what_it_runs() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let mut callers = JoinSet::new();
    witness.always("slow", Reply::DoneAfter(Duration::from_secs(1)));
    for key in 0..20 {
        let call = fleet.submit("charge", &json!({"what": "slow"}));
        callers.spawn(call.key(&key.to_string()).wait());
    }
    witness.until_asked("slow", 20).await;
    fleet.workers[0].drain().await;
    for answer in callers.join_all().await {
        assert_eq!(
            (&answer["state"], &answer["attempts"]),
            (&json!("succeeded"), &json!(1)),
            "{}",
            *answer
        );
    }
    let left =
        "SELECT count(*) FROM toolfleet.workers WHERE state = 'left' AND ended_by = 'itself'";
    assert_eq!(fleet.count(left).await, 1);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn what_a_draining_worker_has_not_claimed_runs_elsewhere() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("charge", "once")]).workers(1, &["--concurrency", "2"]);
    let mut fleet = Fleet::start(spec).await;
    witness.always("held", Reply::DoneWhenReleased);
    let mut calls = Vec::new();
    for key in 0..10 {
        let what = if key < 2 { "held" } else { "quick" };
        let call = fleet.submit("charge", &json!({"what": what}));
        calls.push(call.key(&key.to_string()).asynchronous().await.call_id());
        if key < 2 {
            witness.until_asked("held", key + 1).await;
        }
    }
    fleet.workers[0].ask_to_stop();
    fleet.add_worker(&[]).await;
    witness
        .until("the others to be done", |seen| seen.applied("quick") == 8)
        .await;
    witness.release("held");
    fleet.workers[0].until_left().await;
    for (at, call) in calls.iter().enumerate() {
        let row = fleet.until_state(*call, "succeeded").await;
        let worker = if at < 2 { "worker-1" } else { "worker-2" };
        assert_eq!(
            (&row["worker"], &row["attempts"]),
            (&json!(worker), &json!(1))
        );
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_dispatcher_that_stops_still_answers_who_waits() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    witness.always("a", Reply::DoneWhenReleased);
    let waiting = fleet
        .submit("charge", &json!({"what": "a"}))
        .key("k")
        .wait();
    let (answer, ()) = tokio::join!(waiting, async {
        witness.until_asked("a", 1).await;
        fleet.dispatchers[0].ask_to_stop();
        until_so("the dispatcher to hear nobody any more", async || {
            fleet.dispatchers_heard().await == 0
        })
        .await;
        witness.release("a");
    });
    assert_eq!(answer["state"], "succeeded");
    fleet.dispatchers[0].until_left().await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_dispatcher_does_not_wait_for_ever_and_its_callers_ask_again() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    witness.always("a", Reply::DoneWhenReleased);
    let call = fleet.submit("charge", &json!({"what": "a"})).key("k");
    let mut callers = JoinSet::new();
    callers.spawn(call.clone().patience(Duration::from_secs(12)).try_wait());
    witness.until_asked("a", 1).await;
    fleet.add_dispatcher().await;
    let asked = Instant::now();
    fleet.dispatchers[0].drain().await;
    assert!(
        asked.elapsed() < Duration::from_secs(10),
        "{:?}",
        asked.elapsed()
    );
    witness.release("a");
    let answer = call.wait().await;
    assert_eq!(
        (&answer["state"], &answer["replayed"]),
        (&json!("succeeded"), &json!(true))
    );
    assert!(
        callers.join_all().await[0].is_none(),
        "nobody was there to answer"
    );
    assert_eq!(witness.asked("a"), 1);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn processes_stop_when_nats_is_gone() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    fleet.stop_nats().await;
    fleet.workers[0].drain().await;
    fleet.dispatchers[0].drain().await;
}

/// The must-show of draining: each process of a fleet is stopped and replaced in turn, and no caller notices.
#[tokio::test]
async fn every_process_is_replaced_in_turn_under_load_and_nothing_is_in_doubt_or_tried_twice() {
    const ROUNDS: usize = 3;
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(mixed(&witness)).await;
    let load = Load::start(12, mixed_calls(&fleet));
    load.until_answered(24).await;
    for round in 0..ROUNDS {
        for at in [2 * round, 2 * round + 1] {
            fleet.dispatchers[at].drain().await;
            fleet.add_dispatcher().await;
            load.until_answered(12).await;
            fleet.workers[at].drain().await;
            fleet.add_worker(&[]).await;
            load.until_answered(12).await;
        }
    }
    let answered = load.stop().await;
    let made = attempts_made(&fleet, &answered.answers).await;
    println!(
        "{ROUNDS} rounds, {} processes replaced: {} calls, {} attempts, asked again {} times",
        4 * ROUNDS,
        answered.answers.len(),
        made.all,
        answered.repeated
    );
    assert_eq!(made.all, answered.answers.len(), "an attempt was repeated");
    invariants::hold(&fleet, &witness).await;
}

/// The servers too. What a worker claims while Postgres goes is taken back before anything is started: it costs the tool
/// nothing, so attempts that no tool has spent may be there.
#[tokio::test]
async fn servers_are_restarted_in_turn_under_load_and_nothing_is_in_doubt_or_spent_twice() {
    let mut cluster = Cluster::alone(true).await;
    let witness = Witness::start().await;
    let database = cluster.database().await;
    let mut fleet = Fleet::start_on(database, mixed(&witness)).await;
    let load = Load::start(12, mixed_calls(&fleet));
    load.until_answered(24).await;
    for _ in 0..2 {
        fleet.stop_nats().await;
        fleet.start_nats().await;
        load.until_answered(24).await;
        cluster.stop().await;
        cluster.start().await;
        load.until_answered(24).await;
    }
    let answered = load.stop().await;
    let made = attempts_made(&fleet, &answered.answers).await;
    println!(
        "nats-server and Postgres restarted twice: {} calls, {} attempts, {} of them taken back, asked again {} times",
        answered.answers.len(),
        made.all,
        made.unspent,
        answered.repeated
    );
    assert_eq!(
        made.all - made.unspent,
        answered.answers.len(),
        "a tool was asked twice"
    );
    invariants::hold(&fleet, &witness).await;
}

/// Two dispatchers, two workers, and a tool of every effect class that takes 50 to 300 ms.
fn mixed(witness: &Witness) -> Spec {
    for ms in [50, 120, 300] {
        let reply = Reply::DoneAfter(Duration::from_millis(ms));
        witness.always(&ms.to_string(), reply);
    }
    let tools = ["once", "read", "idempotent"].map(|effect| witness.tool(effect, effect));
    Spec::with(tools).dispatchers(2).workers(2, &[])
}

fn mixed_calls(fleet: &Fleet) -> Vec<Submission> {
    let each = ["once", "read", "idempotent"].into_iter();
    let each = each.flat_map(|tool| ["50", "120", "300"].map(|what| (tool, what)));
    each.map(|(tool, what)| fleet.submit(tool, &json!({"what": what})))
        .collect()
}

struct Made {
    all: usize,
    /// Taken back before anything was started.
    unspent: usize,
}

/// Asserts that every call succeeded, and that none was in doubt or lost its worker on the way; counts its attempts.
async fn attempts_made(fleet: &Fleet, answers: &[Answer]) -> Made {
    let mut made = Made { all: 0, unspent: 0 };
    for answer in answers {
        assert_eq!(answer["state"], "succeeded", "{}", **answer);
        let events = fleet.events(answer.call_id()).await;
        for event in &events {
            assert_ne!(event["to_state"], "in_doubt", "{events:?}");
            assert_ne!(event["actor"], "sweep", "{events:?}");
            made.all += usize::from(event["to_state"] == "running");
            made.unspent += usize::from(event["details"]["spent"] == false);
        }
    }
    made
}

/// The end of a drain's patience is honest: what a `once` call did by then is unknown.
#[tokio::test]
async fn a_drain_whose_time_is_over_stops_what_runs_and_says_what_it_left_unknown() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("charge", "once"),
        // The worker took these attempts from their tools, so none of the one that they may make is spent.
        witness.tool("look", "read") + "retry: {strategy: none}\n",
        witness.tool("put", "idempotent") + "retry: {strategy: none}\n",
    ];
    let spec = Spec::with(tools).workers(1, &["--drain-timeout", "200ms"]);
    let mut fleet = Fleet::start(spec).await;
    let mut calls = Vec::new();
    for (tool, what) in [("charge", "c"), ("look", "l"), ("put", "p")] {
        witness.first(what, [Reply::DoneThenHang]);
        let call = fleet.submit(tool, &json!({"what": what})).key(what);
        calls.push(call.asynchronous().await.call_id());
        witness.until_asked(what, 1).await;
    }
    fleet.workers[0].drain().await;
    fleet.add_worker(&[]).await;
    fleet.until_state(calls[0], "in_doubt").await;
    for (call, what) in [(calls[1], "l"), (calls[2], "p")] {
        fleet.until_state(call, "succeeded").await;
        assert_eq!(witness.asked(what), 2);
    }
    let doubts = fleet
        .rows(
            "SELECT worker_fenced FROM toolfleet.in_doubt WHERE call_id = $1",
            calls[0],
        )
        .await;
    assert_eq!(
        doubts[0]["worker_fenced"], true,
        "the worker saw the attempt end"
    );
    invariants::hold(&fleet, &witness).await;
}
