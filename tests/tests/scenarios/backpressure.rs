//! More work than there are hands.

use std::time::Duration;

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    witness::{Reply, Witness},
};
use serde_json::json;
use tokio::task::JoinSet;

#[tokio::test]
async fn a_worker_never_runs_more_than_it_has_slots() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("charge", "once")]).workers(1, &["--concurrency", "2"]);
    let fleet = Fleet::start(spec).await;
    witness.always("a", Reply::DoneAfter(Duration::from_millis(5)));
    let mut callers = JoinSet::new();
    for key in 0..200 {
        let call = fleet.submit("charge", &json!({"what": "a"}));
        callers.spawn(call.key(&key.to_string()).wait());
    }
    for answer in callers.join_all().await {
        assert_eq!(answer["state"], "succeeded", "{}", *answer);
    }
    assert_eq!(witness.look(|seen| seen.running_max), 2);
    assert_eq!(witness.applied("a"), 200);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_worker_that_starts_is_given_no_more_than_it_has_slots() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("charge", "once")]).workers(0, &[]);
    let mut fleet = Fleet::start(spec).await;
    let mut accepted = Vec::new();
    for key in ["1", "2", "3", "4"] {
        let call = fleet.submit("charge", &json!({"what": "a"})).key(key);
        accepted.push(call.asynchronous().await.call_id());
    }
    fleet.add_worker(&["--concurrency", "1"]).await;
    for call in accepted {
        fleet.until_state(call, "succeeded").await;
    }
    // What is given too much goes back, and is given again.
    let stream = fleet.stream().await.unwrap();
    let consumer = stream.consumer_info("q_default").await.unwrap();
    assert_eq!(consumer.delivered.consumer_sequence, 4);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn slow_calls_do_not_hold_up_quick_ones_while_a_slot_is_free() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("charge", "once")]).workers(1, &["--concurrency", "4"]);
    let fleet = Fleet::start(spec).await;
    witness.always("slow", Reply::DoneWhenReleased);
    let mut slow = Vec::new();
    for key in ["1", "2", "3"] {
        let call = fleet.submit("charge", &json!({"what": "slow"})).key(key);
        slow.push(call.asynchronous().await.call_id());
    }
    witness.until_asked("slow", 3).await;
    for key in 0..20 {
        let call = fleet.submit("charge", &json!({"what": "quick"}));
        let answer = call.key(&format!("quick-{key}")).wait().await;
        assert_eq!(answer["state"], "succeeded");
    }
    assert_eq!(witness.look(|seen| seen.running), 3);
    witness.release("slow");
    for call in slow {
        fleet.until_state(call, "succeeded").await;
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn five_hundred_callers_at_once_are_all_answered() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read"), witness.tool("charge", "once")];
    let fleet = Fleet::start(Spec::with(tools).dispatchers(2).workers(2, &[])).await;
    let mut callers = JoinSet::new();
    for caller in 0..500 {
        // Every key is used by two callers, at whichever dispatcher.
        let (tool, key) = (["look", "charge"][caller % 2], caller / 4);
        let call = fleet.submit(tool, &json!({"what": tool}));
        callers.spawn(call.key(&format!("{tool}-{key}")).wait());
    }
    let answers = callers.join_all().await;
    assert!(answers.iter().all(|answer| answer["state"] == "succeeded"));
    assert_eq!(fleet.accepted().len(), 250);
    assert_eq!(
        (witness.applied("look"), witness.applied("charge")),
        (125, 125)
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_dispatcher_with_its_hands_full_says_so() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("look", "read")]).dispatchers(0)).await;
    fleet.add_dispatcher_with(&["--requests-max", "2"]).await;
    witness.always("a", Reply::DoneWhenReleased);
    let call = fleet.submit("look", &json!({"what": "a"}));
    let mut callers = JoinSet::new();
    for _ in 0..2 {
        callers.spawn(call.clone().wait());
    }
    witness.until_asked("a", 2).await;
    let answer = call.wait().await;
    assert_eq!(
        (answer.code(), &answer["error"]["retryable"]),
        ("overloaded", &json!(true))
    );
    witness.release("a");
    assert!(
        callers
            .join_all()
            .await
            .iter()
            .all(|answer| answer["state"] == "succeeded")
    );
    assert_eq!(witness.asked("a"), 2);
    invariants::hold(&fleet, &witness).await;
}
