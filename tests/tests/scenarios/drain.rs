//! Processes that are asked to stop, and lose nothing.

use std::time::{Duration, Instant};

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
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
