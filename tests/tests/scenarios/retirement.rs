//! A retired tool takes no new calls; what was accepted before goes on, and a newer version offers it again.

use std::time::Instant;

use fleet_tests::{
    fleet::{FLEET_WIDE, Fleet, Spec},
    invariants,
    wait::{until, until_so},
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

const TOOLS: &str = "toolfleet.v1.default.tools";
const BATCH: &str = "toolfleet.v1.default.batch";

/// Waits until every dispatcher refuses the tool. What they take meanwhile are ordinary calls.
async fn until_refused(fleet: &Fleet, tool: &str) {
    let mut in_a_row = 0;
    // Both dispatchers answer some of these.
    until_so("every dispatcher to refuse the tool", async || {
        let asked = fleet.submit(tool, &json!({"what": "late"}));
        let refused = asked.asynchronous().await.code() == "tool_retired";
        in_a_row = if refused { in_a_row + 1 } else { 0 };
        in_a_row == 16
    })
    .await;
}

async fn offered(fleet: &Fleet, format: &str) -> Vec<String> {
    let listing = fleet.ask(TOOLS, &json!({"format": format})).await;
    let names = listing["tools"].as_array().unwrap().iter().map(|tool| {
        let name = tool["name"].as_str();
        name.or_else(|| tool["function"]["name"].as_str()).unwrap()
    });
    names.map(str::to_owned).collect()
}

#[tokio::test]
async fn a_retired_tool_is_refused_everywhere_and_its_open_call_ends_well() {
    let witness = Witness::start().await;
    let look = witness.tool("look", "read");
    let tools = [look.clone(), witness.tool("other", "read")];
    let fleet = Fleet::start(Spec::with(tools).dispatchers(2)).await;
    // Its first attempt fails only after the tool was retired, so it takes a retry as well.
    witness.first("open", [Reply::StatusWhenReleased(503), Reply::Done]);
    let call = fleet.submit("look", &json!({"what": "open"})).key("k");
    let accepted = call.clone().asynchronous().await;
    witness.until_asked("open", 1).await;
    assert_eq!(offered(&fleet, "full").await, ["look", "other"]);

    let retired = Instant::now();
    fleet.retire("look").await;
    until_refused(&fleet, "look").await;
    assert!(retired.elapsed() < FLEET_WIDE, "{:?}", retired.elapsed());

    let refused = fleet.submit("look", &json!({"what": "new"})).key("n");
    let refused = refused.wait().await;
    assert_eq!(
        (&refused["state"], &refused["effect"], refused.code()),
        (&json!("refused"), &json!("none"), "tool_retired"),
        "{}",
        *refused
    );
    let error = &refused["error"];
    assert_eq!(
        (&error["retryable"], &error["suggestion"]),
        (&json!(false), &json!("check_state"))
    );
    // It had not used up its key.
    let elsewhere = fleet.submit("other", &json!({"what": "new"})).key("n");
    assert_eq!(elsewhere.wait().await["state"], "succeeded");
    // Neither what is wrong with the arguments nor the version asked for matters any more.
    let wrong = fleet.submit("look", &json!({"what": 7, "more": []}));
    assert_eq!(wrong.wait().await.code(), "tool_retired");
    let pinned = fleet.submit("look", &json!({"what": "new"}));
    let pinned = pinned.header("Toolfleet-Tool-Version", "1");
    assert_eq!(pinned.wait().await.code(), "tool_retired");
    for format in ["full", "openai", "anthropic", "mcp"] {
        assert_eq!(offered(&fleet, format).await, ["other"], "{format}");
    }

    let item = |tool: &str, what: &str, key: &str| json!({"tool": tool, "args": {"what": what}, "idempotency_key": key});
    let items = [
        item("other", "beside", "b"),
        item("look", "new", "n2"),
        item("look", "open", "k"),
    ];
    let batch = fleet.ask(BATCH, &json!({"calls": items})).await;
    let [beside, new, known] = batch["items"].as_array().unwrap().as_slice() else {
        panic!("{}", *batch)
    };
    assert!(beside["call_id"].is_string(), "{beside}");
    assert_eq!(new["error"]["code"], "tool_retired", "{new}");
    assert_eq!(
        (&known["call_id"], &known["replayed"]),
        (&accepted["call_id"], &json!(true)),
        "{known}"
    );

    witness.release("open");
    let ended = call.wait().await;
    assert_eq!(
        (&ended["state"], &ended["attempts"], &ended["replayed"]),
        (&json!("succeeded"), &json!(2), &json!(true)),
        "{}",
        *ended
    );
    assert_eq!((witness.applied("open"), witness.asked("new")), (1, 1));
    for call in fleet.accepted() {
        fleet.until_state(call, "succeeded").await;
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_newer_version_offers_a_retired_tool_again_and_the_older_ones_stay_retired() {
    let witness = Witness::start().await;
    let look = witness.tool("look", "read");
    let fleet = Fleet::start(Spec::with([look.clone()]).dispatchers(2)).await;
    fleet.retire("look").await;
    until_refused(&fleet, "look").await;

    fleet.apply(&look.replace("version: 1", "version: 2")).await;
    let mut in_a_row = 0;
    until_so("every dispatcher to offer the new version", async || {
        let taken = fleet.submit("look", &json!({"what": "a"})).wait().await;
        in_a_row = if taken["tool_version"] == 2 {
            in_a_row + 1
        } else {
            0
        };
        in_a_row == 16
    })
    .await;
    assert_eq!(offered(&fleet, "full").await, ["look"]);
    let ask = |version: &str| {
        let asked = fleet.submit("look", &json!({"what": "b"}));
        asked.header("Toolfleet-Tool-Version", version).wait()
    };
    assert_eq!(ask("1").await.code(), "tool_retired");
    assert_eq!(ask("2").await["state"], "succeeded");
    assert_eq!(ask("3").await.code(), "unknown_tool_version");
    for call in fleet.accepted() {
        fleet.until_state(call, "succeeded").await;
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn what_was_accepted_is_run_by_a_worker_that_starts_after_the_retirement() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("charge", "once")]).workers(0, &[]);
    let mut fleet = Fleet::start(spec).await;
    let call = fleet.submit("charge", &json!({"what": "a"})).key("k");
    let accepted = call.asynchronous().await;
    fleet.retire("charge").await;
    fleet.add_worker(&[]).await;
    fleet.until_state(accepted.call_id(), "succeeded").await;
    assert_eq!(witness.applied("a"), 1);
    // A dispatcher that starts after it refuses from its first request on.
    fleet.dispatchers[0].drain().await;
    fleet.add_dispatcher().await;
    let late = fleet.submit("charge", &json!({"what": "b"})).key("l");
    assert_eq!(late.wait().await.code(), "tool_retired");
    assert_eq!(witness.asked("b"), 0);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_key_made_of_the_arguments_is_answered_although_its_tool_is_retired() {
    let witness = Witness::start().await;
    let tool = witness.tool("send", "once") + "key: from_arguments\n";
    let fleet = Fleet::start(Spec::with([tool])).await;
    let first = fleet.submit("send", &json!({"what": "a"})).wait().await;
    fleet.retire("send").await;
    until("the dispatcher to refuse the tool", async || {
        // Arguments that were refused before as well, for another reason.
        let asked = fleet
            .submit("send", &json!({"what": ["a", "b"]}))
            .wait()
            .await;
        (asked.code() == "tool_retired").then_some(())
    })
    .await;
    let again = fleet.submit("send", &json!({"what": "a"})).wait().await;
    assert_eq!(
        (&again["call_id"], &again["replayed"]),
        (&first["call_id"], &json!(true)),
        "{}",
        *again
    );
    let item = |what: &str| json!({"tool": "send", "args": {"what": what}});
    let batch = json!({"calls": [item("a"), item("b")]});
    let batch = fleet.ask(BATCH, &batch).await;
    assert_eq!(batch["items"][0]["replayed"], true, "{}", *batch);
    assert_eq!(
        batch["items"][1]["error"]["code"], "tool_retired",
        "{}",
        *batch
    );
    assert_eq!((witness.applied("a"), witness.asked("b")), (1, 0));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_retired_read_tool_is_still_asked_as_a_probe() {
    let witness = Witness::start().await;
    let charge = witness.tool("charge", "once")
        + "timeout: 500ms\nprobe:\n  tool: find_charge\n  args: {what: \"find {{ args.what }}\"}\n  \
           applied_when: result.found == true\n  not_applied_when: result.found == false\n";
    let tools = [witness.tool("find_charge", "read"), charge];
    let fleet = Fleet::start(Spec::with(tools)).await;
    fleet.retire("find_charge").await;
    until_refused(&fleet, "find_charge").await;
    witness.always("c", Reply::DoneThenHang);
    let found = json!({"found": true}).to_string();
    witness.always("find c", Reply::Body(found));
    let doubted = fleet.submit("charge", &json!({"what": "c"})).key("c");
    let doubted = doubted.wait().await;
    assert_eq!(doubted["state"], "in_doubt", "{}", *doubted);
    let settled: Value = until("the call to be settled", async || {
        let row = fleet.call(doubted.call_id()).await;
        (row["state"] != "in_doubt").then_some(row)
    })
    .await;
    assert_eq!(
        (&settled["state"], &settled["source"]),
        (&json!("succeeded"), &json!("settled")),
        "{settled}"
    );
    for call in fleet.accepted() {
        fleet.until_state(call, "succeeded").await;
    }
    invariants::hold(&fleet, &witness).await;
}
