//! How a call ends that was handed to its caller: by an error, by silence, by a cancellation, by lost writes.

use fleet_tests::wait::until_so;

use super::*;

const CANCEL: &str = "toolfleet.v1.default.cancel";
const SETTLE: &str = "toolfleet.v1.default.admin.settle";
const SHORT: &str = "timeout: 1s\n";

async fn why(fleet: &Fleet, call: CallId) -> Value {
    let doubt = "SELECT why FROM toolfleet.in_doubt WHERE call_id = $1";
    fleet.rows(doubt, call).await[0]["why"].clone()
}

#[tokio::test]
async fn an_error_is_the_tools_no_and_says_whether_anything_was_done() {
    let witness = Witness::start().await;
    let tools = [
        client_tool("look", "read", ""),
        client_tool("shell", "once", ""),
        client_tool("put", "idempotent", ""),
    ];
    let fleet = fleet_of(tools).await;
    for (tool, not_done, effect) in [
        ("look", false, "none"),
        ("shell", false, "unknown"),
        ("shell", true, "not_applied"),
        ("put", false, "unknown"),
        ("put", true, "not_applied"),
    ] {
        let handed = handed(&fleet, tool, &format!("{tool}-{not_done}")).await;
        let mut no = json!({"error": {"message": "No such file", "code": "ENOENT"}});
        no["not_done"] = not_done.into();
        let told = handed.hands_in(&fleet, &no).await;
        let words = ["state", "outcome", "source", "effect"].map(|field| &told[field]);
        assert_eq!(
            words,
            ["failed", "business_error", "client", effect],
            "{}",
            *told
        );
        assert_eq!(told["error"]["details"], json!({"code": "ENOENT"}));
        let message = told["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("No such file. "), "{message}");
        assert_eq!(handed.hands_in(&fleet, &no).await.bytes, told.bytes);
        no["error"]["message"] = "Another".into();
        assert_eq!(handed.hands_in(&fleet, &no).await.code(), "conflict");
        let did = handed.hands_in(&fleet, &json!({"result": 1})).await;
        assert_eq!(did.code(), "conflict");
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_write_of_which_nothing_is_heard_is_in_doubt_and_its_late_answer_settles_it() {
    let witness = Witness::start().await;
    let tools = [
        client_tool("shell", "once", SHORT),
        client_tool("put", "idempotent", SHORT),
    ];
    let fleet = fleet_of(tools).await;
    for tool in ["shell", "put"] {
        let done = handed(&fleet, tool, &format!("{tool}-done")).await;
        let not_done = handed(&fleet, tool, &format!("{tool}-not")).await;
        for handed in [&done, &not_done] {
            fleet.until_state(handed.call, "in_doubt").await;
            assert_eq!(why(&fleet, handed.call).await, "client_silent");
            // An error does not say whether it was done.
            let unsure = json!({"error": {"message": "broken pipe"}});
            let told = handed.hands_in(&fleet, &unsure).await;
            assert_eq!(
                (told.code(), &told["error"]["details"]["state"]),
                ("conflict", &json!("in_doubt"))
            );
        }
        let told = done
            .hands_in(&fleet, &json!({"result": {"exit_code": 0}}))
            .await;
        let words = ["state", "source", "effect"].map(|field| &told[field]);
        assert_eq!(words, ["succeeded", "client", "applied"], "{}", *told);
        let moved = last_move(&fleet, done.call).await;
        assert_eq!(moved, ["in_doubt", "succeeded", "client"]);
        let no = json!({"error": {"message": "It never ran"}, "not_done": true});
        let told = not_done.hands_in(&fleet, &no).await;
        let words = ["state", "source", "effect"].map(|field| &told[field]);
        assert_eq!(words, ["failed", "client", "not_applied"], "{}", *told);
        assert_eq!(not_done.hands_in(&fleet, &no).await.bytes, told.bytes);
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_read_of_which_nothing_is_heard_expires_and_its_late_answer_is_told_so() {
    let witness = Witness::start().await;
    let fleet = fleet_of([client_tool("look", "read", SHORT)]).await;
    let handed = handed(&fleet, "look", "a").await;
    let waiting = json!({"call_id": handed.call, "wait_ms": 60_000});
    let told = fleet.get(&waiting).await;
    assert_eq!(
        (&told["state"], told.code()),
        (&json!("expired"), "deadline_exceeded")
    );
    let late = handed.hands_in(&fleet, &json!({"result": 1})).await;
    assert_eq!(
        (late.code(), &late["error"]["details"]["state"]),
        ("already_terminal", &json!("expired"))
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_write_that_is_cancelled_in_its_clients_hands_is_in_doubt_and_a_read_is_cancelled() {
    let witness = Witness::start().await;
    let tools = [
        client_tool("look", "read", ""),
        client_tool("shell", "once", ""),
    ];
    let fleet = fleet_of(tools).await;
    let read = handed(&fleet, "look", "a").await;
    let told = fleet.ask(CANCEL, &json!({"call_id": read.call})).await;
    assert_eq!(told["result"], "cancelled", "{}", *told);
    let late = read.hands_in(&fleet, &json!({"result": 1})).await;
    assert_eq!(
        (late.code(), &late["error"]["details"]["state"]),
        ("already_terminal", &json!("cancelled"))
    );

    let write = handed(&fleet, "shell", "b").await;
    let told = fleet.ask(CANCEL, &json!({"call_id": write.call})).await;
    assert_eq!(told["result"], "in_doubt", "{}", *told);
    assert_eq!(why(&fleet, write.call).await, "cancelled");
    let late = write.hands_in(&fleet, &json!({"result": 1})).await;
    assert_eq!(late["state"], "succeeded", "{}", *late);

    // Settled by a person: whoever ran it is told that it is too late.
    let settled = handed(&fleet, "shell", "c").await;
    fleet.ask(CANCEL, &json!({"call_id": settled.call})).await;
    let body =
        json!({"call_id": settled.call, "outcome": "applied", "actor": "ann", "note": "saw it"});
    assert_eq!(fleet.ask(SETTLE, &body).await["state"], "succeeded");
    let late = settled.hands_in(&fleet, &json!({"result": 1})).await;
    assert_eq!(
        (late.code(), &late["error"]["details"]["state"]),
        ("already_terminal", &json!("succeeded"))
    );
    invariants::hold(&fleet, &witness).await;
}

/// What was handed out may have been answered on the server that is lost.
#[tokio::test]
async fn lost_writes_leave_what_clients_write_in_doubt() {
    let witness = Witness::start().await;
    let tools = [
        client_tool("look", "read", ""),
        client_tool("put", "idempotent", ""),
        client_tool("shell", "once", ""),
    ];
    let fleet = fleet_of(tools).await;
    let mut calls = Vec::new();
    for tool in ["look", "put", "shell"] {
        calls.push(handed(&fleet, tool, tool).await);
    }
    let lost = "SELECT done FROM toolfleet.fleet f, LATERAL toolfleet.quarantine( \
                    f.quarantines, f.quarantines + 1, f.system_identifier, f.timeline, 'test', \
                    '{\"en\": {\"code\": \"in_doubt\", \"message\": \"m\"}}') WHERE $1::uuid IS NOT NULL";
    fleet.rows(lost, calls[0].call).await;
    until_so("the writes to be in doubt", async || {
        let states = ["awaiting_client", "in_doubt", "in_doubt"];
        let mut found = Vec::new();
        for handed in &calls {
            found.push(fleet.call(handed.call).await["state"].clone());
        }
        found == states
    })
    .await;
    for handed in &calls[1..] {
        assert_eq!(why(&fleet, handed.call).await, "lost_writes");
        // Only success is evidence.
        let no = json!({"error": {"message": "It never ran"}, "not_done": true});
        assert_eq!(handed.hands_in(&fleet, &no).await.code(), "conflict");
    }
    for handed in &calls {
        let told = handed.hands_in(&fleet, &json!({"result": 1})).await;
        assert_eq!(told["state"], "succeeded", "{}", *told);
    }
    invariants::hold(&fleet, &witness).await;
}
