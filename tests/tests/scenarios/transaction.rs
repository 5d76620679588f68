//! A `transaction` tool: what it changes commits together with the outcome of its call.

use std::time::Duration;

use fleet::checkpoint::Checkpoint;
use fleet_tests::{
    caller::Answer,
    fleet::{Fleet, Spec},
    invariants,
    proxy::{Broken, Proxy},
    real::Armed,
    wait::{LONG, until_so},
    witness::Witness,
};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::time::timeout;

/// The example, its table, and more tools.
async fn shop(workers: usize, tools: &[String]) -> Fleet {
    let example = include_str!("../../../examples/tools/transfer.yaml").to_owned();
    let tools = tools.iter().cloned().chain([example]);
    let fleet = Fleet::start(Spec::with(tools).workers(workers, &[])).await;
    sqlx::raw_sql(
        "CREATE TABLE tools.accounts (id int PRIMARY KEY, balance bigint NOT NULL CHECK (balance >= 0)); \
         INSERT INTO tools.accounts VALUES (1, 100), (2, 0)",
    )
    .execute(&mut fleet.database.connect().await)
    .await
    .unwrap();
    fleet
}

async fn balance(fleet: &Fleet, id: i32) -> i64 {
    sqlx::query_scalar("SELECT balance FROM tools.accounts WHERE id = $1")
        .bind(id)
        .fetch_one(&fleet.database.pool)
        .await
        .unwrap()
}

/// A tool that does this, with these changes to its manifest.
fn tool(name: &str, statement: &str, changes: &Value) -> String {
    let mut manifest = json!({
        "name": name,
        "version": 1,
        "description": "Changes something.",
        "effect": "transaction",
        "timeout": "5s",
        "input_schema": {"type": "object"},
        "executor": {"sql": {"database": "fleet", "statement": statement}},
    });
    for (field, value) in changes.as_object().unwrap() {
        manifest[field] = value.clone();
    }
    manifest.to_string()
}

async fn end(fleet: &Fleet) {
    invariants::hold(fleet, &Witness::start().await).await;
}

fn said(answer: &Answer) -> (&str, &str, &str) {
    let word = |field: &str| answer[field].as_str().unwrap_or_default();
    (word("state"), word("effect"), answer.code())
}

#[tokio::test]
async fn the_example_of_the_page_does_what_the_page_says() {
    let fleet = shop(1, &[]).await;
    let transfer = |amount: i64, key: &str| {
        let args = json!({"from": 1, "to": 2, "amount": amount});
        fleet.submit("transfer", &args).key(key).wait()
    };
    let first = transfer(30, "first").await;
    assert_eq!(said(&first), ("succeeded", "applied", ""), "{:?}", *first);
    assert_eq!(first["source"], "live");
    let again = transfer(30, "first").await;
    assert_eq!(again.first_bytes(), first.first_bytes());
    let other = transfer(300, "second").await;
    assert_eq!(said(&other), ("failed", "not_applied", "tool_error"));
    assert_eq!(other["outcome"], "business_error");
    assert_eq!(
        (balance(&fleet, 1).await, balance(&fleet, 2).await),
        (70, 30)
    );
    let attempts = fleet.attempts(first.call_id()).await;
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0]["outcome"], "applied");
    end(&fleet).await;
}

#[tokio::test]
async fn an_answer_that_cannot_be_kept_takes_its_effect_back() {
    let put = "UPDATE tools.accounts SET balance = balance + 1 WHERE id = 2 RETURNING";
    let promised = json!({"type": "array", "items": {"type": "object", "required": ["id"]}});
    let fleet = shop(
        1,
        &[
            tool(
                "large",
                &format!("{put} repeat('x', 5000) AS text"),
                &json!({"output_limit": "1KiB"}),
            ),
            tool(
                "odd",
                &format!("{put} balance"),
                &json!({"output_schema": promised}),
            ),
        ],
    )
    .await;
    for (name, code) in [("large", "output_too_large"), ("odd", "output_invalid")] {
        let answer = fleet.submit(name, &json!({})).key(name).wait().await;
        assert_eq!(
            said(&answer),
            ("failed", "not_applied", code),
            "{:?}",
            *answer
        );
    }
    assert_eq!(balance(&fleet, 2).await, 0);
    end(&fleet).await;
}

#[tokio::test]
async fn a_running_one_that_is_taken_back_has_done_nothing() {
    let slow = "UPDATE tools.accounts SET balance = balance + 1 WHERE id = 2 RETURNING pg_sleep(20)::text AS slept";
    let fleet = shop(1, &[tool("slow", slow, &json!({"timeout": "25s"}))]).await;
    let call = fleet
        .submit("slow", &json!({}))
        .key("slow")
        .asynchronous()
        .await;
    let id = call.call_id();
    until_so("the statement to run", async || {
        let running = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'toolfleet_tool' AND wait_event = 'PgSleep' \
                       AND datname = current_database()";
        fleet.count(running).await == 1
    })
    .await;
    let began = tokio::time::Instant::now();
    fleet
        .ask("toolfleet.v1.default.cancel", &json!({"call_id": id}))
        .await;
    let ended = fleet.get(&json!({"call_id": id, "wait_ms": 10_000})).await;
    assert_eq!(
        said(&ended),
        ("cancelled", "not_applied", "cancelled"),
        "{:?}",
        *ended
    );
    assert!(
        began.elapsed() < Duration::from_secs(6),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(balance(&fleet, 2).await, 0);
    end(&fleet).await;
}

#[tokio::test]
async fn one_that_takes_too_long_is_tried_again_and_fails_without_a_doubt() {
    let slow = "UPDATE tools.accounts SET balance = balance + 1 WHERE id = 2 RETURNING pg_sleep(20)::text AS slept";
    let changes = json!({"timeout": "300ms", "retry": {"strategy": "fixed", "max_attempts": 2, "base": "10ms"}});
    let fleet = shop(1, &[tool("slow", slow, &changes)]).await;
    let answer = fleet.submit("slow", &json!({})).key("slow").wait().await;
    assert_eq!(
        said(&answer),
        ("failed", "not_applied", "retries_exhausted"),
        "{:?}",
        *answer
    );
    let attempts = fleet.attempts(answer.call_id()).await;
    for attempt in &attempts {
        assert_eq!(attempt["outcome"], "definite_failure", "{attempt}");
        assert_eq!(attempt["effect"], "not_applied", "{attempt}");
    }
    assert_eq!(attempts.len(), 2);
    assert_eq!(balance(&fleet, 2).await, 0);
    end(&fleet).await;
}

/// Before the COMMIT and right after it: the next attempt does it, or none needs to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_may_die_around_it() {
    for (point, attempts) in [
        (Checkpoint::Claimed, 2),
        (Checkpoint::Starting, 2),
        (Checkpoint::Executed, 1),
    ] {
        let mut fleet = shop(0, &[]).await;
        let mut mortal = fleet.real_worker(
            "mortal",
            &[],
            Some(Armed {
                at: point,
                times: 1,
            }),
        );
        mortal.ready().await;
        let args = json!({"from": 1, "to": 2, "amount": 30});
        let call = fleet.submit("transfer", &args).key("once").asynchronous();
        let id = call.await.call_id();
        mortal.until_stopped_at(point).await;
        fleet.report_death(&mut mortal).await;
        fleet.add_worker(&[]).await;
        let ended = fleet.get(&json!({"call_id": id, "wait_ms": 20_000})).await;
        assert_eq!(
            said(&ended),
            ("succeeded", "applied", ""),
            "{point}: {:?}",
            *ended
        );
        assert_eq!(ended["attempts"], attempts, "{point}");
        assert_eq!(balance(&fleet, 2).await, 30, "{point}");
        end(&fleet).await;
    }
}

/// The answer to a COMMIT is lost, and the worker learns from the row that it went through.
#[tokio::test]
async fn who_follows_a_session_hears_of_a_commit_that_was_not_answered() {
    let mut fleet = shop(0, &[]).await;
    let (front, _) = fleet.database.url.rsplit_once('/').unwrap();
    let port = front.rsplit_once(':').unwrap().1.parse().unwrap();
    let wire = Proxy::to(port).await;
    let url = fleet.database.tool_url_through(wire.port());
    fleet.add_worker(&["--tool-database-url", &url]).await;
    let subject = "toolfleet.v1.default.event.s.*";
    let mut events = fleet.client.subscribe(subject).await.unwrap();
    fleet.client.flush().await.unwrap();
    wire.break_commits(1);
    let mut n = 0;
    while wire.broken(Broken::After) == 0 {
        n += 1;
        let call = fleet.submit("transfer", &json!({"from": 1, "to": 2, "amount": 1}));
        let call = call.key(&format!("k{n}")).header("Toolfleet-Session", "s");
        let answer = call.wait().await;
        let mut kind = Value::Null;
        while kind != "finished" {
            let event = timeout(LONG, events.next()).await.expect("an event comes");
            let event: Value = serde_json::from_slice(&event.unwrap().payload).unwrap();
            assert_eq!(event["call_id"], answer["call_id"]);
            kind = event["kind"].clone();
        }
    }
    end(&fleet).await;
}
