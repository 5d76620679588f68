//! What stands in when the ledger is silent or refuses to look, and when the worker must leave.

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::json;
use sqlx::Connection as _;

use super::{ask, control, stands_in, tool, until_forced};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_constant_and_another_tool_need_no_ledger() {
    let witness = Witness::start().await;
    let patient = |name, layer| tool(&witness, name, layer).replace("timeout: 1s", "timeout: 20s");
    let tools = [
        witness.tool("other", "read"),
        patient("stub", "{stub: 1}"),
        patient("by_other", "{tool: {name: other, args: {what: other}}}"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("x", Reply::StatusWhenReleased(503));
    let mut calls = Vec::new();
    for (n, name) in ["stub", "by_other"].into_iter().enumerate() {
        calls.push(ask(&fleet, name, "x").asynchronous().await.call_id());
        witness.until_asked("x", n + 1).await;
    }
    let mut locking = fleet.database.connect().await;
    let mut hold = locking.begin().await.unwrap();
    let lock = sqlx::query("LOCK TABLE toolfleet.open_calls");
    lock.execute(&mut *hold).await.unwrap();
    witness.release("x");
    witness.until_asked("other", 1).await;
    let recording = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                     AND wait_event_type = 'Lock' AND query LIKE '%attempt_effect%'";
    until_so("an ending to be recorded", async || {
        fleet.count(recording).await > 0
    })
    .await;
    hold.rollback().await.unwrap();
    for (call, source) in calls.into_iter().zip(["stub", "other"]) {
        let ended = json!({"call_id": call, "wait_ms": 20_000});
        stands_in(&fleet.get(&ended).await, source, "unavailable");
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_ledger_refuses_to_look_for_an_old_answer_the_constant_stands_in() {
    let witness = Witness::start().await;
    let layers = "{stale: {max_age: 1h}, stub: 1}";
    let cache = "cache: {ttl: 1ms}\n";
    let tools = [
        tool(&witness, "look", layers) + cache,
        tool(&witness, "shut", layers) + cache + "breaker: {}\n",
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    control(
        &fleet,
        json!({"do": "breaker", "tool": "shut", "position": "open"}),
    )
    .await;
    until_forced(&fleet, "shut", true).await;
    fleet
        .sql("ALTER FUNCTION toolfleet.stale_answer RENAME TO not_granted")
        .await;
    witness.always("x", Reply::Status(503));
    for (name, reason) in [("look", "unavailable"), ("shut", "circuit_open")] {
        let answer = ask(&fleet, name, "x").wait().await;
        stands_in(&answer, "stub", reason);
        // It is not asked again.
        let took = answer["timing"]["run_ms"].as_u64().unwrap_or(0);
        assert!(took < 4_000, "{took} ms");
    }
    fleet
        .sql("ALTER FUNCTION toolfleet.not_granted RENAME TO stale_answer")
        .await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_leaves_while_another_tool_is_asked_does_not_run_the_call_again() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("other", "read"),
        tool(
            &witness,
            "look",
            "{tool: {name: other, args: {what: other}}, stub: 1}",
        ),
    ];
    let spec = Spec::with(tools).workers(1, &["--drain-timeout", "200ms"]);
    let mut fleet = Fleet::start(spec).await;
    witness.always("x", Reply::Hang);
    witness.always("other", Reply::Hang);
    let call = ask(&fleet, "look", "x").asynchronous().await.call_id();
    witness.until_asked("other", 1).await;
    fleet.workers[0].drain().await;
    let answer = json!({"call_id": call, "wait_ms": 20_000});
    let answer = fleet.get(&answer).await;
    stands_in(&answer, "stub", "timeout");
    assert_eq!((&answer["attempts"], witness.asked("x")), (&json!(1), 1));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_purge_no_old_answer_stands_in() {
    let witness = Witness::start().await;
    let layers = "{stale: {max_age: 1h}, stub: 1}";
    let tools = [tool(&witness, "look", layers) + "cache: {ttl: 1ms}\n"];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let look = async || ask(&fleet, "look", "x").wait().await;
    assert_eq!(look().await["source"], "live");
    witness.always("x", Reply::Status(503));
    stands_in(&look().await, "stale", "unavailable");
    control(&fleet, json!({"do": "purge", "tool": "look"})).await;
    stands_in(&look().await, "stub", "unavailable");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ledger_keeps_as_much_of_it_as_of_an_answer_or_refuses_it() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("other", "read"),
        tool(
            &witness,
            "look",
            "{tool: {name: other, args: {what: other}}}",
        ) + "sensitive: {pointers: [/what, /secret]}\n",
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("x", Reply::Status(503));
    // The history keeps of it what it keeps of the tool's own answers.
    let secret = json!({"secret": "s3cret-s3cret", "rate": 7});
    witness.always("other", Reply::Body(secret.to_string()));
    let answer = ask(&fleet, "look", "x").wait().await;
    stands_in(&answer, "other", "unavailable");
    assert_eq!(answer["result"], secret);
    let row = fleet.call(answer.call_id()).await;
    assert_eq!(row["result"]["rate"], 7);
    assert!(!row.to_string().contains("s3cret-s3cret"), "{row}");
    fleet
        .sql(
            "ALTER TABLE toolfleet.finished_calls ADD CONSTRAINT refuses CHECK (source <> 'other') NOT VALID",
        )
        .await;
    let error = ask(&fleet, "look", "x").wait().await;
    assert_eq!(
        (&error["outcome"], error.code(), &error["degraded"]),
        (&json!("system_error"), "unavailable", &json!(null)),
        "{}",
        *error
    );
    invariants::hold(&fleet, &witness).await;
}
