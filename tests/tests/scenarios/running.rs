//! What a tenant may have under way in a queue: handed to NATS, or running.

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

const HELD: &str = "SELECT count(*) FROM toolfleet.calls \
    WHERE held AND held_why = 'slots' AND line = 'slots/default' AND tenant = 'greedy'";
const OPEN: &str = "SELECT count(*) FROM toolfleet.open_calls";

/// One tenant submits so many calls, each with its number.
async fn submit(fleet: &Fleet, calls: usize, what: impl Fn(usize) -> String) {
    let item = |n| json!({"tool": "look", "args": {"what": what(n)}});
    let items: Vec<Value> = (0..calls).map(item).collect();
    let answer = fleet
        .ask("toolfleet.v1.greedy.batch", &json!({"calls": items}))
        .await;
    let items = answer["items"].as_array().unwrap();
    assert!(
        items.iter().all(|item| item["state"] == "queued"),
        "{items:?}"
    );
}

/// A fleet whose dispatchers let a tenant have so many calls under way.
async fn fleet(witness: &Witness, running: &[&str]) -> Fleet {
    let spec = Spec::with([witness.tool("look", "read")]);
    let mut fleet = Fleet::start(spec.dispatchers(0).workers(1, &["--concurrency", "8"])).await;
    for running in running {
        fleet
            .add_dispatcher_with(&["--tenant-running", running])
            .await;
    }
    fleet
}

async fn until_nothing_is_open(fleet: &Fleet) {
    until_so("everything to have run", async || {
        fleet.count(OPEN).await == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_at_its_bound_waits_and_leaves_the_other_slots() {
    let witness = Witness::start().await;
    witness.always("slow", Reply::DoneWhenReleased);
    let fleet = fleet(&witness, &["3"]).await;
    submit(&fleet, 20, |_| "slow".to_owned()).await;
    witness.until_asked("slow", 3).await;
    assert_eq!(fleet.count(HELD).await, 17);
    for n in 0..20 {
        let what = format!("quick-{n}");
        let call = fleet.submit("look", &json!({"what": what})).tenant("small");
        let answer = call.wait().await;
        assert_eq!(answer["state"], "succeeded", "{}", *answer);
    }
    assert_eq!(witness.asked("slow"), 3, "five slots stayed free");
    assert_eq!(fleet.count(HELD).await, 17);
    witness.release("slow");
    until_nothing_is_open(&fleet).await;
    assert_eq!(witness.asked("slow"), 20);
    let most = witness.look(|seen| seen.running_max);
    assert!(most <= 4, "{most} ran at a time, one of them quick");
    invariants::hold_for(&fleet, &witness, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_with_a_large_bound_leaves_the_last_quarter_of_the_slots() {
    let witness = Witness::start().await;
    witness.always("slow", Reply::DoneWhenReleased);
    let fleet = fleet(&witness, &["100"]).await;
    submit(&fleet, 20, |_| "slow".to_owned()).await;
    witness.until_asked("slow", 6).await;
    assert_eq!(fleet.count(HELD).await, 14);
    let call = fleet.submit("look", &json!({"what": "quick"}));
    assert_eq!(call.tenant("small").wait().await["state"], "succeeded");
    assert_eq!(witness.asked("slow"), 6);
    witness.release("slow");
    until_nothing_is_open(&fleet).await;
    assert_eq!(witness.asked("slow"), 20);
    invariants::hold_for(&fleet, &witness, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_beyond_the_bound_run_in_order_and_retries_wait_their_turn() {
    let witness = Witness::start().await;
    let fleet = fleet(&witness, &["1"]).await;
    // The first attempt of each fails.
    for n in 0..6 {
        witness.first(&format!("call-{n}"), [Reply::Status(503)]);
    }
    submit(&fleet, 6, |n| format!("call-{n}")).await;
    until_nothing_is_open(&fleet).await;
    let (mut firsts, most) = witness.look(|seen| {
        let requests = seen.requests.iter().map(|request| request.what.clone());
        (requests.collect::<Vec<_>>(), seen.running_max)
    });
    assert_eq!((firsts.len(), most), (12, 1));
    let mut seen = std::collections::HashSet::new();
    firsts.retain(|what| seen.insert(what.clone()));
    let expected: Vec<String> = (0..6).map(|n| format!("call-{n}")).collect();
    assert_eq!(firsts, expected);
    invariants::hold_for(&fleet, &witness, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatcher_without_a_bound_lets_the_held_ones_go() {
    let witness = Witness::start().await;
    witness.always("slow", Reply::DoneWhenReleased);
    let mut fleet = fleet(&witness, &["2"]).await;
    submit(&fleet, 20, |_| "slow".to_owned()).await;
    witness.until_asked("slow", 2).await;
    fleet.dispatchers.remove(0).kill().await;
    fleet.add_dispatcher().await;
    witness.until_asked("slow", 8).await;
    witness.release("slow");
    until_nothing_is_open(&fleet).await;
    assert_eq!(witness.asked("slow"), 20);
    invariants::hold_for(&fleet, &witness, &[]).await;
}
