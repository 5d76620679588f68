//! Tools that run only so often at a time over the whole fleet: what the world outside sees of it.

use std::time::{Duration, Instant};

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::{until_so, until_within},
    witness::{Reply, Witness},
};
use futures_util::{StreamExt as _, future::join_all};
use serde_json::{Value, json};

const OPEN: &str = "SELECT count(*) FROM toolfleet.open_calls";
const TAKEN: &str = "SELECT count(*) FROM toolfleet.slots";
/// Long enough for a worker's death to be found out.
const PATIENCE: Duration = Duration::from_secs(120);

/// A tool that takes so long, and runs so often at a time.
fn limited(witness: &Witness, effect: &str, limit: u32, takes: Duration) -> String {
    witness.always("a", Reply::DoneAfter(takes));
    format!("{}concurrency: {limit}\n", witness.tool("book", effect))
}

/// Submits calls for the tool in one batch.
async fn submitted(fleet: &Fleet, calls: usize) {
    let item = |n: usize| json!({"tool": "book", "args": {"what": "a"}, "idempotency_key": format!("key-{n}")});
    let items: Vec<Value> = (0..calls).map(item).collect();
    let answer = fleet
        .ask("toolfleet.v1.default.batch", &json!({"calls": items}))
        .await;
    let items = answer["items"].as_array().unwrap();
    assert!(items.iter().all(|item| item["state"] == "queued"));
}

async fn until_all_is_done(fleet: &Fleet) {
    until_within(PATIENCE, "everything to have run", async || {
        (fleet.count(OPEN).await == 0).then_some(())
    })
    .await;
}

fn most_at_once(witness: &Witness) -> usize {
    witness.look(|seen| seen.running_max)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_workers_run_no_more_than_two_at_a_time_and_hold_up_nobody_else() {
    const CALLS: usize = 120;
    let (witness, others) = (Witness::start().await, Witness::start().await);
    let book = limited(&witness, "idempotent", 2, Duration::from_millis(40));
    let spec = Spec::with([book, others.tool("look", "read")]);
    let mut fleet = Fleet::start(spec.dispatchers(2).workers(3, &["--concurrency", "8"])).await;
    submitted(&fleet, CALLS).await;
    witness.until_asked("a", 10).await;

    // Another tool on the same queue, beside the line of this one.
    let single = async |n: usize| {
        let began = Instant::now();
        let args = json!({"what": format!("other-{n}")});
        let answer = fleet.submit("look", &args).wait().await;
        assert_eq!(answer["state"], "succeeded", "{}", *answer);
        began.elapsed()
    };
    let mut waits = join_all((0..20).map(single)).await;
    waits.sort();
    assert!(
        witness.asked("a") < CALLS,
        "the line was there all the time"
    );
    println!(
        "beside the line of another tool: {:?} at the median, {:?} at most",
        waits[10], waits[19]
    );
    assert!(waits[19] < Duration::from_secs(2), "{waits:?}");

    // A worker dies in the middle of it, with its places.
    fleet.workers.remove(0).kill().await;
    until_all_is_done(&fleet).await;
    assert_eq!(most_at_once(&witness), 2);
    assert!(witness.applied("a") >= CALLS);
    assert_eq!(fleet.count(TAKEN).await, 0);
    let succeeded =
        "SELECT count(*) FROM toolfleet.calls WHERE tool = 'book' AND state = 'succeeded'";
    assert_eq!(fleet.count(succeeded).await, i64::try_from(CALLS).unwrap());
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_after_the_other_is_hardly_slower_than_the_tool() {
    const CALLS: u32 = 60;
    const TAKES: Duration = Duration::from_millis(50);
    let witness = Witness::start().await;
    let book = limited(&witness, "read", 1, TAKES);
    let plain = witness.tool("plain", "read");
    witness.always("plain", Reply::DoneAfter(TAKES));
    let fleet = Fleet::start(Spec::with([book, plain]).workers(2, &[])).await;
    // What the same machine takes for calls that one caller makes one after the other, before and after.
    let by_a_caller = async || {
        let began = Instant::now();
        for _ in 0..CALLS / 2 {
            let answer = fleet
                .submit("plain", &json!({"what": "plain"}))
                .wait()
                .await;
            assert_eq!(answer["state"], "succeeded", "{}", *answer);
        }
        began.elapsed()
    };
    submitted(&fleet, 1).await;
    until_all_is_done(&fleet).await;
    let before = by_a_caller().await;
    let began = Instant::now();
    let item = |n: u32| json!({"tool": "book", "args": {"what": "a"}, "idempotency_key": format!("more-{n}")});
    let items: Vec<Value> = (0..CALLS).map(item).collect();
    fleet
        .ask("toolfleet.v1.default.batch", &json!({"calls": items}))
        .await;
    until_all_is_done(&fleet).await;
    let took = began.elapsed();
    let by_a_caller = before + by_a_caller().await;
    println!(
        "{CALLS} calls of a tool that takes {TAKES:?}, one at a time: {took:?}; made by a caller: {by_a_caller:?}"
    );
    assert_eq!(most_at_once(&witness), 1);
    // With the bell of each end the next one starts as soon as a caller's would; without it, after two looks at the line.
    assert!(took < by_a_caller * 2, "{took:?} and {by_a_caller:?}");
}

#[tokio::test]
async fn a_call_of_a_version_without_the_limit_rings_when_its_place_is_free() {
    let witness = Witness::start().await;
    let unlimited = witness.tool("book", "read");
    let limited = limited(&witness, "read", 1, Duration::ZERO).replace("version: 1", "version: 2");
    let fleet = Fleet::start(Spec::with([unlimited, limited])).await;
    let mut bells = fleet
        .client
        .subscribe("toolfleet.control.room")
        .await
        .unwrap();
    fleet.client.flush().await.unwrap();
    witness.always("b", Reply::DoneWhenReleased);
    let call = fleet.submit("book", &json!({"what": "b"}));
    let call = call.header("Toolfleet-Tool-Version", "1");
    let call = call.asynchronous().await.call_id();
    witness.until_asked("b", 1).await;
    // The limit is the newest version's, whichever version the call has.
    assert_eq!(fleet.count(TAKEN).await, 1);
    witness.release("b");
    fleet.until_state(call, "succeeded").await;
    let bell = tokio::time::timeout(Duration::from_secs(10), bells.next()).await;
    assert!(bell.is_ok_and(|bell| bell.is_some()), "its end rings");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_call_in_doubt_keeps_its_place_until_its_time_is_over() {
    let witness = Witness::start().await;
    let book =
        limited(&witness, "once", 1, Duration::ZERO) + "timeout: 3s\nretry: {strategy: none}\n";
    let fleet = Fleet::start(Spec::with([book]).workers(2, &[])).await;
    witness.first("doubtful", [Reply::DoneThenClose]);
    let began = Instant::now();
    let doubtful = fleet.submit("book", &json!({"what": "doubtful"})).key("1");
    let doubtful = doubtful.wait().await;
    assert_eq!(doubtful["state"], "in_doubt", "{}", *doubtful);
    let next = fleet.submit("book", &json!({"what": "next"})).key("2");
    let next = next.asynchronous().await.call_id();
    assert_eq!(fleet.count(TAKEN).await, 1);
    fleet.until_state(next, "succeeded").await;
    assert!(
        began.elapsed() > Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(most_at_once(&witness), 1);
}

#[tokio::test]
async fn what_has_no_limit_any_more_leaves_the_line() {
    let witness = Witness::start().await;
    witness.always("a", Reply::DoneWhenReleased);
    let book = witness.tool("book", "read");
    let fleet = Fleet::start(Spec::with([format!("{book}concurrency: 1\n")]).workers(2, &[])).await;
    submitted(&fleet, 12).await;
    witness.until_asked("a", 1).await;
    let held = "SELECT count(*) FROM toolfleet.calls WHERE held AND line = 'tool/book'";
    assert_eq!(fleet.count(held).await, 11);
    fleet
        .apply(&format!(
            "{}concurrency: 3\n",
            book.replace("version: 1", "version: 2")
        ))
        .await;
    witness.until_asked("a", 3).await;
    assert_eq!(fleet.count(TAKEN).await, 3);
    assert_eq!(most_at_once(&witness), 3);
    fleet.apply(&book.replace("version: 1", "version: 3")).await;
    witness.until("all to run", |seen| seen.running == 12).await;
    witness.release("a");
    until_all_is_done(&fleet).await;
    until_so("the line to be empty", async || {
        fleet.count(held).await == 0
    })
    .await;
}
