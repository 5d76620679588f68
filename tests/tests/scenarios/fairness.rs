//! More calls than can run: who waits for whom, and for how long.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use fleet::ids::CallId;
use fleet_tests::{
    caller::Answer,
    fleet::{Fleet, Spec, counter},
    invariants,
    wait::{until, until_so, until_within},
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

const HELD: &str = "SELECT count(*) FROM toolfleet.calls WHERE held";
const OPEN: &str = "SELECT count(*) FROM toolfleet.open_calls";
const PAUSED: &str =
    "SELECT count(*) FROM toolfleet.open_calls WHERE attempts = 1 AND due_at > now()";
/// Long enough for a backlog.
const PATIENCE: Duration = Duration::from_secs(240);
/// What the stream may hold of a queue without workers.
const ALLOWANCE: u64 = 64;

/// One tenant sends so many calls for this, in batches.
async fn flood(fleet: &Fleet, tenant: &'static str, tool: &str, what: &str, calls: usize) {
    flood_with(fleet, tenant, tool, what, calls, &json!({})).await;
}

async fn flood_with(
    fleet: &Fleet,
    tenant: &'static str,
    tool: &str,
    what: &str,
    calls: usize,
    more: &Value,
) {
    let subject: &'static str = format!("toolfleet.v1.{tenant}.batch").leak();
    let mut sent = 0;
    while sent < calls {
        let of = (calls - sent).min(1_000);
        let item = |n: usize| {
            let mut item = json!({"tool": tool, "args": {"what": what}, "idempotency_key": format!("{what}-{n}"),
                "deadline_ms": 3_600_000});
            let more = more.as_object().unwrap().clone();
            item.as_object_mut().unwrap().extend(more);
            item
        };
        let items: Vec<Value> = (sent..sent + of).map(item).collect();
        let answer = fleet.ask(subject, &json!({"calls": items})).await;
        let items = answer["items"].as_array().unwrap();
        assert!(
            items.iter().all(|item| item["state"] == "queued"),
            "{}",
            items[0]
        );
        sent += of;
    }
}

/// A tool that takes as long as `what` is told to, and no key is required.
fn look(witness: &Witness, what: &str, takes: Duration) -> String {
    witness.always(what, Reply::DoneAfter(takes));
    witness.tool("look", "read")
}

async fn until_nothing_is_open(fleet: &Fleet) {
    until_within(PATIENCE, "everything to have run", async || {
        (fleet.count(OPEN).await == 0).then_some(())
    })
    .await;
}

/// Returns how long single calls took.
async fn another_tenant_beside(backlog: usize) -> String {
    let witness = Witness::start().await;
    let tool = look(&witness, "flood", Duration::from_millis(20));
    let mut fleet = Fleet::start(Spec::with([tool]).workers(0, &[])).await;
    flood(&fleet, "large", "look", "flood", backlog).await;
    let held = fleet.count(HELD).await;
    assert!(held >= i64::try_from(backlog - 200).unwrap(), "{held} held");
    fleet.add_worker(&["--concurrency", "8"]).await;
    until_so("the backlog to drain", async || {
        witness.asked("flood") > 100
    })
    .await;
    let mut waits = Vec::new();
    for n in 0..10 {
        let what = format!("single-{n}");
        let began = Instant::now();
        let answer = fleet
            .submit("look", &json!({"what": what}))
            .tenant("small")
            .wait()
            .await;
        assert_eq!(answer["state"], "succeeded", "{}", *answer);
        waits.push(began.elapsed());
    }
    waits.sort();
    let behind = fleet.count(HELD).await;
    let told = format!(
        "beside {backlog} calls of another tenant, {behind} of them still held: single calls took {:?} at the median, {:?} at most",
        waits[5], waits[9]
    );
    assert!(
        behind > i64::try_from(backlog / 4).unwrap(),
        "the backlog was in the way all the time: {behind}"
    );
    // Eight slots, 20 ms each: the backlog alone takes fifty times as long.
    assert!(waits[5] <= Duration::from_secs(1), "{waits:?}");
    assert!(waits[9] <= Duration::from_secs(4), "{waits:?}");
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_of_one_tenant_does_not_delay_another() {
    println!("{}", another_tenant_beside(8_000).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "slow: the same beside 100,000 calls"]
async fn a_backlog_of_a_hundred_thousand_does_not_delay_another() {
    println!("{}", another_tenant_beside(100_000).await);
}

/// Has held calls wait in another line.
async fn move_held(fleet: &Fleet, from: &str, to: &str, calls: i64) {
    let moved = sqlx::query(
        "UPDATE toolfleet.open_calls SET line = $2 WHERE call_id IN ( \
             SELECT call_id FROM toolfleet.open_calls WHERE held AND line = $1 ORDER BY call_id LIMIT $3)",
    )
    .bind(from)
    .bind(to)
    .bind(calls)
    .execute(&fleet.database.pool)
    .await
    .unwrap();
    assert_eq!(moved.rows_affected(), u64::try_from(calls).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_of_a_newer_dispatcher_holds_up_no_other() {
    let witness = Witness::start().await;
    let tool = look(&witness, "flood", Duration::ZERO);
    let mut fleet = Fleet::start(Spec::with([tool]).workers(0, &[])).await;
    flood(&fleet, "paused", "look", "flood", 200).await;
    let held = fleet.count(HELD).await;
    assert!(held > 2, "{held} held");
    move_held(&fleet, "default", "nap/7", 2).await;
    fleet.add_worker(&["--concurrency", "8"]).await;
    until_within(PATIENCE, "all others to have run", async || {
        (fleet.count(OPEN).await == 2).then_some(())
    })
    .await;
    assert_eq!(fleet.count(HELD).await, 2);
    // Back in a line that is known, they go like all others.
    move_held(&fleet, "nap/7", "default", 2).await;
    until_nothing_is_open(&fleet).await;
    invariants::hold_for(&fleet, &witness, &[]).await;
}

/// In which order these calls ran.
fn order(witness: &Witness, among: &[&str]) -> Vec<String> {
    witness.look(|seen| {
        let requests = seen.requests.iter().map(|request| request.what.clone());
        requests
            .filter(|what| among.contains(&what.as_str()))
            .collect()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn high_overtakes_and_low_gets_its_turn_by_age() {
    let witness = Witness::start().await;
    let tool = look(&witness, "normal", Duration::from_millis(5));
    let mut fleet = Fleet::start(Spec::with([tool]).workers(0, &[])).await;
    witness.always("high", Reply::DoneAfter(Duration::from_millis(5)));
    flood(&fleet, "default", "look", "normal", 500).await;
    let single = async |what: &str, priority: &str| -> CallId {
        let call = fleet.submit("look", &json!({"what": what}));
        let call = call.header("Toolfleet-Priority", priority);
        call.asynchronous().await.call_id()
    };
    let aged = single("aged low", "low").await;
    let fresh = single("fresh low", "low").await;
    flood_with(
        &fleet,
        "default",
        "look",
        "high",
        500,
        &json!({"priority": "high"}),
    )
    .await;
    for call in [aged, fresh] {
        assert_eq!(fleet.call(call).await["held"], true);
    }
    let age = "UPDATE toolfleet.open_calls SET accepted_at = accepted_at - interval '61 seconds' WHERE call_id = $1";
    let aging = sqlx::query(age).bind(aged.0);
    aging.execute(&fleet.database.pool).await.unwrap();
    fleet.add_worker(&["--concurrency", "1"]).await;
    until_nothing_is_open(&fleet).await;
    let ran = order(&witness, &["normal", "high", "aged low", "fresh low"]);
    assert_eq!(ran.len(), 1_002);
    let place = |what: &str| ran.iter().position(|ran| ran == what).unwrap();
    let (aged, fresh) = (place("aged low"), place("fresh low"));
    let last_high = ran.iter().rposition(|what| what == "high").unwrap();
    let normal_before = ran[..last_high]
        .iter()
        .filter(|what| *what == "normal")
        .count();
    println!(
        "of 1,002 calls the aged low one was {aged}th, the other {fresh}th; {normal_before} normal ones ran before the last high one"
    );
    // What the stream held already comes first, and what is released in one turn may change places.
    assert!(aged < 200, "{aged}");
    assert!(fresh > 900, "{fresh}");
    assert!(normal_before < 200, "{normal_before}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_without_workers_waits_in_the_ledger_and_nothing_is_published_again() {
    let witness = Witness::start().await;
    let tool = look(&witness, "a", Duration::ZERO);
    let mut fleet = Fleet::start(Spec::with([tool]).workers(0, &[])).await;
    flood(&fleet, "default", "look", "a", 3_000).await;
    // Nothing waits for the stream's answers, so a look at it may not see what is on its way: once more that, at most.
    let published = until("the allowance to be published", async || {
        let pointers = fleet.pointers().await?;
        let held = fleet.count(HELD).await;
        let is_all = i64::try_from(pointers).unwrap() + held == 3_000;
        (pointers >= ALLOWANCE && is_all).then_some(pointers)
    })
    .await;
    assert!(published <= 2 * ALLOWANCE, "{published}");
    let lost_pointers = r#"toolfleet_swept_calls_total{pass="lost_pointer"}"#;
    let before = counter(lost_pointers);
    let began = Instant::now();
    // Four circuits of the walk, and the first step of the ages at which a pointer is worth it.
    until_so("several circuits", async || {
        began.elapsed() > Duration::from_secs(14)
    })
    .await;
    let again = counter(lost_pointers) - before;
    println!("3,000 calls waited for 14 s: {again} pointers were published again");
    assert!(again <= 2.0 * published as f64 + 8.0, "{again}");
    assert_eq!(fleet.pointers().await, Some(published));
    fleet.add_worker(&[]).await;
    until_nothing_is_open(&fleet).await;
    assert_eq!(witness.asked("a"), 3_000);
    until_so("the stream to be empty", async || {
        fleet.pointers().await == Some(0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatcher_that_dies_with_thousands_held_leaves_them_to_another() {
    let witness = Witness::start().await;
    let tool = witness.tool("charge", "once");
    let mut fleet = Fleet::start(Spec::with([tool]).workers(0, &[])).await;
    flood(&fleet, "default", "charge", "a", 5_000).await;
    fleet.add_worker(&["--concurrency", "16"]).await;
    until_so("some to run", async || witness.asked("a") > 300).await;
    fleet.dispatchers.remove(0).kill().await;
    let ran = witness.asked("a");
    fleet.add_dispatcher().await;
    fleet.add_dispatcher().await;
    until_nothing_is_open(&fleet).await;
    println!("the dispatcher died when {ran} of 5,000 calls had run");
    assert_eq!(witness.asked("a"), 5_000);
    assert_eq!(calls_by_effects(&witness), HashMap::from([(1, 5_000)]));
    invariants::hold_for(&fleet, &witness, &[]).await;
}

/// How many calls had so many effects.
fn calls_by_effects(witness: &Witness) -> HashMap<usize, usize> {
    let mut effects: HashMap<String, usize> = HashMap::new();
    witness.look(|seen| {
        for request in &seen.requests {
            *effects
                .entry(request.header("toolfleet-call-id").to_owned())
                .or_default() += 1;
        }
    });
    let mut calls = HashMap::new();
    for times in effects.into_values() {
        *calls.entry(times).or_default() += 1;
    }
    calls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_dispatchers_release_each_call_once() {
    let witness = Witness::start().await;
    let tool = witness.tool("charge", "once");
    let mut fleet = Fleet::start(Spec::with([tool]).dispatchers(2).workers(0, &[])).await;
    for (tenant, what) in [("one", "a"), ("two", "b"), ("three", "c")] {
        flood(&fleet, tenant, "charge", what, 1_000).await;
    }
    let before = counter("toolfleet_released_calls_total");
    // Each dispatcher may find room for an allowance, and once more for what its look at the stream did not see.
    until_so("the stream to have what it may", async || {
        (ALLOWANCE..=4 * ALLOWANCE).contains(&fleet.pointers().await.unwrap())
    })
    .await;
    fleet.add_worker(&["--concurrency", "32"]).await;
    until_nothing_is_open(&fleet).await;
    assert_eq!(calls_by_effects(&witness), HashMap::from([(1, 3_000)]));
    let released = counter("toolfleet_released_calls_total") - before;
    assert!((2_700.0..=3_000.0).contains(&released), "{released}");
    invariants::hold_for(&fleet, &witness, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_that_are_due_at_once_do_not_flood_the_stream() {
    let witness = Witness::start().await;
    let tool = witness.tool("look", "read")
        + "retry: {strategy: fixed, max_attempts: 2, base: 10m, cap: 10m}\n";
    let mut fleet = Fleet::start(Spec::with([tool])).await;
    witness.always("a", Reply::Status(503));
    flood(&fleet, "default", "look", "a", 600).await;
    until_so("every call to have failed once", async || {
        fleet.count(PAUSED).await == 600
    })
    .await;
    // Another dispatcher has not seen how fast the workers were, by which this one would have the stream hold more.
    fleet.workers[0].drain().await;
    fleet.dispatchers[0].drain().await;
    let due = sqlx::query("UPDATE toolfleet.open_calls SET not_before = now(), due_at = now()");
    due.execute(&fleet.database.pool).await.unwrap();
    fleet.add_dispatcher().await;
    until_so("the retries to wait, and most of them held", async || {
        fleet.count(HELD).await >= 400
    })
    .await;
    let pointers = fleet.pointers().await.unwrap();
    assert!(pointers < 200, "{pointers}");
    witness.always("a", Reply::Done);
    fleet.add_worker(&[]).await;
    until_nothing_is_open(&fleet).await;
    invariants::hold_for(&fleet, &witness, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_caller_is_never_held() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let before = counter("toolfleet_released_calls_total");
    for n in 0..300 {
        let answer: Answer = fleet
            .submit("look", &json!({"what": n.to_string()}))
            .wait()
            .await;
        assert_eq!(answer["state"], "succeeded");
    }
    assert_eq!(counter("toolfleet_released_calls_total"), before);
}
