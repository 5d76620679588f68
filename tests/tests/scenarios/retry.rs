//! Again, later or never: attempts, the pauses between them, and what ends them.

use std::time::Duration;

use fleet::ids::CallId;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    witness::{Reply, Witness},
};
use futures_util::future::join_all;
use serde_json::json;
use toolfleet::servers::free_ports;

/// The pauses that the ledger noted, in milliseconds.
async fn pauses(fleet: &Fleet, call: CallId) -> Vec<u64> {
    let events = fleet.events(call).await;
    let again = events
        .iter()
        .filter_map(|event| event["details"]["pause_ms"].as_u64());
    again.collect()
}

/// Asserts that every attempt started no sooner than its pause after the one before.
async fn assert_pauses_were_kept(fleet: &Fleet, call: CallId) {
    let attempts = fleet.attempts(call).await;
    for (pair, pause) in attempts.windows(2).zip(pauses(fleet, call).await) {
        let waited = pair[1]["started"].as_f64().unwrap() - pair[0]["finished"].as_f64().unwrap();
        let pause = Duration::from_millis(pause).as_secs_f64();
        assert!(
            waited >= pause - 0.001,
            "waited {waited} s instead of {pause} s: {pair:?}"
        );
    }
}

#[tokio::test]
async fn pauses_grow_as_the_strategy_says() {
    let witness = Witness::start().await;
    let retry = |name: &str, strategy: &str| {
        let retry = "max_attempts: 5, base: 40ms, factor: 2, cap: 100ms";
        witness.tool(name, "read") + &format!("retry: {{strategy: {strategy}, {retry}}}\n")
    };
    let tools = ["none", "fixed", "exponential", "jittered"].map(|name| retry(name, name));
    let fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("a", Reply::Status(503));
    let run = async |tool: &str| {
        let answer = fleet.submit(tool, &json!({"what": "a"})).wait().await;
        assert_eq!(answer["state"], "failed", "{}", *answer);
        assert_pauses_were_kept(&fleet, answer.call_id()).await;
        (
            answer.code().to_owned(),
            pauses(&fleet, answer.call_id()).await,
        )
    };
    let (none, fixed, exponential, jittered) = tokio::join!(
        run("none"),
        run("fixed"),
        run("exponential"),
        run("jittered")
    );
    let exhausted = "retries_exhausted".to_owned();
    assert_eq!(none, ("unavailable".to_owned(), vec![]));
    assert_eq!(fixed, (exhausted.clone(), vec![40; 4]));
    assert_eq!(exponential, (exhausted.clone(), vec![40, 80, 100, 100]));
    let (code, pauses) = jittered;
    assert_eq!((code, pauses.len()), (exhausted, 4));
    let within = pauses
        .iter()
        .zip([40, 80, 100, 100])
        .all(|(pause, most)| *pause <= most);
    assert!(within && pauses != [40, 80, 100, 100], "{pauses:?}");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_remote_that_asks_for_time_gets_it() {
    let witness = Witness::start().await;
    let retry = "retry: {strategy: fixed, max_attempts: 2, base: 10ms}\n";
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read") + retry])).await;
    witness.first("a", [Reply::RetryAfter(503, 1)]);
    let answer = fleet.submit("look", &json!({"what": "a"})).wait().await;
    assert_eq!(answer["state"], "succeeded");
    assert_eq!(pauses(&fleet, answer.call_id()).await, [1000]);
    assert_pauses_were_kept(&fleet, answer.call_id()).await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn an_exhausted_call_says_what_the_last_attempt_met() {
    let witness = Witness::start().await;
    let retry = "retry: {strategy: fixed, max_attempts: 3, base: 10ms}\n";
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read") + retry])).await;
    witness.always("a", Reply::Status(503));
    let answer = fleet.submit("look", &json!({"what": "a"})).wait().await;
    assert_eq!(
        (answer.code(), &answer["attempts"]),
        ("retries_exhausted", &json!(3))
    );
    assert_eq!(
        answer["error"]["details"]["last"]["code"], "unavailable",
        "{}",
        *answer
    );
    assert_eq!(witness.asked("a"), 3);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_write_is_tried_again_only_when_it_provably_did_not_start() {
    let witness = Witness::start().await;
    let lines =
        "not_applied_statuses: [429]\nretry: {strategy: fixed, max_attempts: 3, base: 10ms}\n";
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once") + lines])).await;
    witness.first("not started", [Reply::Status(429), Reply::Status(429)]);
    witness.first("definite", [Reply::No("no")]);
    witness.first("unknown", [Reply::Status(500)]);
    for (what, state, attempts) in [
        ("not started", "succeeded", 3),
        ("definite", "failed", 1),
        ("unknown", "in_doubt", 1),
    ] {
        let key = what.replace(' ', "-");
        let answer = fleet
            .submit("charge", &json!({"what": what}))
            .key(&key)
            .wait()
            .await;
        assert_eq!(
            (&answer["state"], &answer["attempts"]),
            (&json!(state), &json!(attempts)),
            "{what}: {}",
            *answer
        );
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_write_whose_service_is_down_fails_without_doubt() {
    let witness = Witness::start().await;
    let nobody = format!("http://127.0.0.1:{}/effects", free_ports(1).unwrap()[0]);
    let retry = "retry: {strategy: fixed, max_attempts: 3, base: 10ms}\n";
    let tool = witness
        .tool("charge", "once")
        .replace(&witness.url(), &nobody);
    let fleet = Fleet::start(Spec::with([tool + retry])).await;
    let answer = fleet
        .submit("charge", &json!({"what": "a"}))
        .key("k")
        .wait()
        .await;
    assert_eq!(
        (&answer["state"], answer.code()),
        (&json!("failed"), "retries_exhausted")
    );
    assert_eq!(
        (&answer["effect"], &answer["attempts"]),
        (&json!("not_applied"), &json!(3))
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_deadline_ends_the_attempts() {
    let witness = Witness::start().await;
    let retry = "retry: {strategy: fixed, max_attempts: 20, base: 300ms}\n";
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read") + retry])).await;
    witness.always("a", Reply::Status(503));
    let call = fleet.submit("look", &json!({"what": "a"}));
    let answer = call.deadline(Duration::from_millis(800)).wait().await;
    assert_eq!(answer.code(), "deadline_exceeded", "{}", *answer);
    // Between two attempts it is the sweep that notices, otherwise the last attempt.
    assert!(
        answer["state"] == "failed" || answer["state"] == "expired",
        "{}",
        *answer
    );
    let attempts = answer["attempts"].as_u64().unwrap();
    assert!(
        (1..=3).contains(&attempts),
        "{attempts} attempts fit in no 800 ms"
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn an_idempotent_write_is_repeated_under_one_key_while_nobody_knows() {
    let witness = Witness::start().await;
    let lines = "timeout: 300ms\nretry: {strategy: fixed, max_attempts: 2, base: 10ms}\n";
    let fleet = Fleet::start(Spec::with([witness.tool("book", "idempotent") + lines])).await;
    witness.first("a", [Reply::DoneThenHang]);
    let answer = fleet.submit("book", &json!({"what": "a"})).wait().await;
    assert_eq!(
        (&answer["state"], &answer["attempts"]),
        (&json!("succeeded"), &json!(2))
    );
    let keys = witness.look(|seen| {
        let keys = seen
            .requests
            .iter()
            .map(|request| request.header("idempotency-key"));
        keys.map(str::to_owned).collect::<Vec<_>>()
    });
    assert!(
        keys.len() == 2 && keys[0] == keys[1] && !keys[0].is_empty(),
        "{keys:?}"
    );
    // When the attempts end and the last one is unknown still, so is the call.
    witness.always("b", Reply::DoneThenHang);
    let answer = fleet.submit("book", &json!({"what": "b"})).wait().await;
    assert_eq!(
        (&answer["state"], &answer["attempts"]),
        (&json!("in_doubt"), &json!(2))
    );
    invariants::hold(&fleet, &witness).await;
}

/// What fails for every call is asked a fifth more often than it is called, and ten times by each worker: not four times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_bounds_how_often_a_tool_that_is_down_is_asked() {
    const CALLS: usize = 200;
    const WRITES: usize = 60;
    let witness = Witness::start().await;
    let retry = "retry: {max_attempts: 4, strategy: fixed, base: 10ms, cap: 20ms, budget: 0.2}\n";
    let tools = [
        witness.tool("look", "read") + retry,
        witness.tool("put", "idempotent") + retry,
    ];
    let fleet = Fleet::start(Spec::with(tools).workers(2, &[])).await;
    witness.always("down", Reply::Status(503));
    let calls = (0..CALLS).map(|_| fleet.submit("look", &json!({"what": "down"})).wait());
    let answers = join_all(calls).await;
    let suppressed = answers.iter().filter(|answer| {
        answer["error"]["details"]["retry"] == "suppressed" && answer.code() == "unavailable"
    });
    let (suppressed, asked) = (suppressed.count(), witness.asked("down"));
    println!("{CALLS} calls, asked {asked} times, {suppressed} given up for the budget");
    assert!(asked <= CALLS + CALLS / 5 + 2 * 10, "{asked}");
    assert!(suppressed > 0 && answers.iter().all(|answer| answer["state"] == "failed"));

    // A write whose effect is unknown is no doubt for that: it waits for the longest pause.
    let calls = (0..WRITES).map(|n| {
        let what = format!("write {n}");
        witness.first(&what, [Reply::DoneThenClose]);
        let key = format!("put-{n}");
        let call = fleet.submit("put", &json!({"what": what}));
        async move { call.key(&key).wait().await }
    });
    let answers = join_all(calls).await;
    assert!(answers.iter().all(|answer| answer["state"] == "succeeded"));
    let mut longest = 0;
    for answer in &answers {
        longest += usize::from(pauses(&fleet, answer.call_id()).await == [20]);
    }
    println!("{WRITES} writes, {longest} waited for the longest pause");
    assert!(longest >= WRITES - WRITES / 5 - 2 * 10, "{longest}");
    invariants::hold(&fleet, &witness).await;
}
