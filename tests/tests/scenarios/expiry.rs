//! Calls whose time is over: who notices, and how soon.

use std::time::{Duration, Instant};

use fleet::{
    ids::CallId,
    store::walk::{self, Worth},
};
use fleet_tests::{
    caller::Answer,
    fleet::{Fleet, Spec, counter},
    invariants,
    wait::until_so,
    witness::Witness,
};
use futures_util::future::join_all;
use serde_json::json;

/// Calls ended because of a caller who waits for them, because it was known when they would be over, and by the walk.
const WAITED: &str = r#"toolfleet_swept_calls_total{pass="expired_waited"}"#;
const SOON: &str = r#"toolfleet_swept_calls_total{pass="expired_soon"}"#;
const WALKED: &str = r#"toolfleet_swept_calls_total{pass="expired"}"#;

/// A tool that no worker serves, one that has to start within a second, and one within three.
async fn unserved(witness: &Witness) -> Fleet {
    let tools = [
        witness.tool("look", "read"),
        witness.tool("soon", "read") + "max_queue_wait: 1s\n",
        witness.tool("later", "read") + "max_queue_wait: 3s\n",
    ];
    Fleet::start(Spec::with(tools).workers(0, &[])).await
}

fn assert_expired(answer: &Answer) {
    assert_eq!(answer["state"], "expired", "{}", **answer);
    assert_eq!(answer.code(), "deadline_exceeded");
}

/// A worker that comes now finds pointers that may claim nothing.
async fn nothing_is_run(fleet: &mut Fleet, witness: &Witness) {
    fleet.add_worker(&[]).await;
    invariants::hold(fleet, witness).await;
    assert_eq!(witness.asked("a"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_waited_for_expires_when_it_is_over() {
    let witness = Witness::start().await;
    let mut fleet = unserved(&witness).await;
    let calls = (1..=10).map(|n| {
        let deadline = Duration::from_millis(200 * n);
        let look = fleet.submit("look", &json!({"what": "a"}));
        look.deadline(deadline).wait()
    });
    let soon = fleet.submit("soon", &json!({"what": "a"})).wait();
    let (calls, soon) = tokio::join!(join_all(calls), soon);
    calls.iter().chain([&soon]).for_each(assert_expired);
    let (waited, soon, walked) = (counter(WAITED), counter(SOON), counter(WALKED));
    println!("{waited} of 11 ended by timers, {soon} remembered, {walked} by the walk");
    // A walk that has met them has them remembered too; or it comes by in the moment in which one is over.
    assert!(
        waited + soon >= 8.0,
        "{waited} by timers, {soon} remembered, {walked} by the walk"
    );
    nothing_is_run(&mut fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_later_to_wait_for_a_call_has_a_timer_too() {
    let witness = Witness::start().await;
    let mut fleet = unserved(&witness).await;
    let looks = (0..6).map(|n| {
        let look = fleet.submit("look", &json!({"what": "a"}));
        let look = look.key(&n.to_string());
        look.deadline(Duration::from_secs(2))
    });
    let looks: Vec<_> = looks.collect();
    let accepted = join_all(looks.iter().map(|look| look.clone().asynchronous())).await;
    let replayed = join_all(looks[..3].iter().map(|look| look.clone().wait()));
    let asked = accepted[3..].iter().map(|accepted| {
        let asked = json!({"call_id": accepted["call_id"], "wait_ms": 60_000});
        let fleet = &fleet;
        async move { fleet.get(&asked).await }
    });
    let (replayed, asked) = tokio::join!(replayed, join_all(asked));
    replayed.iter().chain(&asked).for_each(assert_expired);
    let ended = counter(WAITED) + counter(SOON);
    assert!(
        ended >= 4.0,
        "{ended} by timers, {} by the walk",
        counter(WALKED)
    );
    nothing_is_run(&mut fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_no_caller_waits_for_expires_when_it_is_over_held_or_not() {
    let witness = Witness::start().await;
    let mut fleet = unserved(&witness).await;
    // More than the stream may hold of a queue that no worker serves.
    let item = |n: u64| json!({"tool": "look", "args": {"what": "a"}, "deadline_ms": 1_000 + n});
    let items: Vec<_> = (0..150).map(item).collect();
    let body = json!({"calls": items});
    let answer = fleet.ask("toolfleet.v1.default.batch", &body).await;
    let items = answer["items"].as_array().unwrap();
    assert!(items.iter().all(|item| item["state"] == "queued"));
    let held = "SELECT count(*) FROM toolfleet.open_calls WHERE held";
    assert!(fleet.count(held).await > 0);
    for _ in 0..10 {
        let soon = fleet.submit("soon", &json!({"what": "a"}));
        soon.asynchronous().await;
    }
    until_so("all of them to have expired", async || {
        fleet
            .count("SELECT count(*) FROM toolfleet.open_calls")
            .await
            == 0
    })
    .await;
    let (soon, walked) = (counter(SOON), counter(WALKED));
    println!("{soon} of 160 ended when they were over, {walked} by the walk");
    assert!(soon >= 1.0, "{soon} on time, {walked} by the walk");
    let expired = "SELECT count(*) FROM toolfleet.finished_calls WHERE state = 'expired'";
    assert_eq!(fleet.count(expired).await, 160);
    nothing_is_run(&mut fleet, &witness).await;
}

/// Calls that are open and not to run for an hour.
async fn others(fleet: &Fleet, calls: i32) {
    // No statement of the ledger may take long.
    for _ in 0..calls / 10_000 {
        ten_thousand_others(fleet).await;
    }
}

async fn ten_thousand_others(fleet: &Fleet) {
    sqlx::query(
        "INSERT INTO toolfleet.open_calls (call_id, tenant, tool, tool_version, effect, queue, priority, line, \
             key_retention_ms, args, args_hash, language, dispatcher_id, accepted_at, deadline_at, not_before, due_at) \
         SELECT gen_random_uuid(), 'others', 'look', 1, 'read', 'default', 1, 'default', 0, \
             json_build_object('what', repeat('a', 200)), decode(repeat('00', 32), 'hex'), 'en', gen_random_uuid(), \
             now(), now() + interval '2 hours', now() + interval '1 hour', now() + interval '1 hour' \
         FROM generate_series(1, 10000)",
    )
    .execute(&fleet.database.pool)
    .await
    .unwrap();
}

/// How long after `due` a call was ended, by the ledger's clock.
async fn ended_late(fleet: &Fleet, call: CallId, due: Duration) -> f64 {
    let took: f64 = sqlx::query_scalar(
        "SELECT extract(epoch FROM finished_at - accepted_at)::float8 FROM toolfleet.finished_calls WHERE call_id = $1",
    )
    .bind(call.0)
    .fetch_one(&fleet.database.pool)
    .await
    .unwrap();
    took - due.as_secs_f64()
}

const ROUNDS: usize = 8;

/// Makes calls that expire and tells how late they did, in milliseconds.
async fn measure(fleet: &Fleet, beside: i32) -> String {
    let mut lines = Vec::new();
    let cases = [
        ("deadline 300 ms", "look", 300, true),
        ("deadline 1 s", "look", 1_000, true),
        ("deadline 1.5 s", "look", 1_500, true),
        ("max_queue_wait 3 s", "later", 3_000, false),
    ];
    for (name, tool, due_ms, by_deadline) in cases {
        let due = Duration::from_millis(due_ms);
        let (mut answered, mut waited, mut other) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let submission = || {
                let call = fleet.submit(tool, &json!({"what": "a"}));
                if by_deadline {
                    call.deadline(due)
                } else {
                    call
                }
            };
            let began = Instant::now();
            let wait = async {
                let answer = submission().wait().await;
                (answer, began.elapsed())
            };
            let ((answer, took), accepted) = tokio::join!(wait, submission().asynchronous());
            assert_expired(&answer);
            answered.push(took.as_secs_f64() - due.as_secs_f64());
            waited.push(ended_late(fleet, answer.call_id(), due).await);
            fleet.until_state(accepted.call_id(), "expired").await;
            other.push(ended_late(fleet, accepted.call_id(), due).await);
        }
        let ms = |mut late: Vec<f64>| {
            late.sort_by(f64::total_cmp);
            let ms = |late: f64| (late * 1_000.0).round();
            format!("{:>5} {:>5}", ms(late[ROUNDS / 2]), ms(late[ROUNDS - 1]))
        };
        lines.push(format!(
            "{beside:>7} open | {name:<18} | waited for: answered {} ended {} | others: ended {} ms late (median, most)",
            ms(answered),
            ms(waited),
            ms(other)
        ));
    }
    lines.join("\n")
}

/// Calls that are over so late that no dispatcher remembers them from their acceptance: the walk has to meet them.
async fn measure_later(fleet: &Fleet) -> String {
    let due = Duration::from_secs(25);
    let calls = (0..ROUNDS).map(|_| {
        let call = fleet.submit("look", &json!({"what": "a"}));
        call.deadline(due).asynchronous()
    });
    let mut late = Vec::new();
    for call in join_all(calls).await {
        fleet.until_state(call.call_id(), "expired").await;
        late.push(ended_late(fleet, call.call_id(), due).await * 1_000.0);
    }
    late.sort_by(f64::total_cmp);
    format!(
        "others, with a deadline of 25 s: {late:.0?} ms late, {} of all by the walk",
        counter(WALKED)
    )
}

/// How long a walk over all open calls takes that rests nowhere.
async fn walk_over_all(fleet: &Fleet) -> String {
    let (began, mut cursor, mut steps) = (Instant::now(), None, 0);
    let worth = Worth::default();
    loop {
        let step = walk::step(&fleet.database.pool, cursor, &worth);
        cursor = step.await.unwrap().cursor;
        steps += 1;
        if cursor.is_none() {
            break;
        }
    }
    format!(
        "a walk over all took {:?} in {steps} steps",
        began.elapsed()
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; for performance tables"]
async fn how_late_calls_expire_idle_and_beside_two_hundred_thousand() {
    let witness = Witness::start().await;
    let fleet = unserved(&witness).await;
    println!("{}", measure(&fleet, 0).await);
    others(&fleet, 200_000).await;
    // As after any while: statistics and visibility are what autovacuum leaves.
    sqlx::query("VACUUM ANALYZE toolfleet.open_calls")
        .execute(&fleet.database.pool)
        .await
        .unwrap();
    println!("{}", walk_over_all(&fleet).await);
    println!("{}", measure(&fleet, 200_000).await);
    println!("{}", measure_later(&fleet).await);
}
