//! A call that does not go well, and what a caller is told about it.

use std::{fs, time::Duration};

use fleet_tests::{
    fleet::{Fleet, Spec, counter},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

/// A tool that is a shell script, tried once.
fn script(name: &str, effect: &str, script: &str) -> String {
    json!({
        "name": name, "version": 1, "description": "Runs a shell script.", "effect": effect,
        "input_schema": {"type": "object"}, "retry": {"strategy": "none"},
        "executor": {"process": {"command": ["sh", "-c", script]}},
    })
    .to_string()
}

#[tokio::test]
async fn a_tool_that_says_no_is_believed() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    witness.always("a", Reply::No("the card is blocked"));
    let answer = fleet
        .submit("charge", &json!({"what": "a"}))
        .key("k")
        .wait()
        .await;
    for (field, value) in [
        ("state", "failed"),
        ("outcome", "business_error"),
        ("source", "live"),
        ("effect", "not_applied"),
    ] {
        assert_eq!(answer[field], value, "{}", *answer);
    }
    assert_eq!(
        (&answer["attempts"], answer.code()),
        (&json!(1), "tool_error")
    );
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("he card is blocked"), "{message}");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_program_answers_with_its_output_and_its_exit_code() {
    let witness = Witness::start().await;
    let tools = [
        script("fine", "read", "cat"),
        script(
            "no",
            "once",
            r#"echo '{"error": {"message": "no such file"}}'; exit 10"#,
        ),
        script("crash_read", "read", "exit 3"),
        script("crash_once", "once", "exit 3"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let missing = json!({
        "name": "missing", "version": 1, "description": "Is not installed.", "effect": "once",
        "input_schema": {"type": "object"}, "retry": {"strategy": "none"},
        "executor": {"process": {"command": ["/nowhere/to/be/found"]}},
    });
    fleet.apply(&missing.to_string()).await;
    until_so("the dispatcher to know the last tool", async || {
        let refused = fleet.submit("missing", &json!([])).key("x").wait().await;
        refused.code() != "unknown_tool"
    })
    .await;
    for (tool, state, code, effect) in [
        ("fine", "succeeded", "", "none"),
        ("no", "failed", "tool_error", "not_applied"),
        ("crash_read", "failed", "tool_crashed", "none"),
        ("crash_once", "in_doubt", "in_doubt", "unknown"),
        ("missing", "failed", "unavailable", "not_applied"),
    ] {
        let answer = fleet.submit(tool, &json!({"x": 1})).key(tool).wait().await;
        assert_eq!(
            (
                answer["state"].as_str(),
                answer.code(),
                answer["effect"].as_str()
            ),
            (Some(state), code, Some(effect)),
            "{tool}: {}",
            *answer
        );
        if tool == "fine" {
            assert_eq!(answer["result"], json!({"x": 1}));
        }
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn an_answer_that_cannot_be_used_fails_a_read_and_not_a_write() {
    let witness = Witness::start().await;
    let tools = [
        script("read", "read", "echo this is no JSON"),
        script("write", "once", "echo this is no JSON"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let read = fleet.submit("read", &json!({})).wait().await;
    assert_eq!(
        (&read["state"], read.code()),
        (&json!("failed"), "output_invalid")
    );
    // What it did stands, whatever it printed.
    let write = fleet.submit("write", &json!({})).key("k").wait().await;
    assert_eq!(
        (&write["state"], write.code()),
        (&json!("succeeded"), "output_invalid")
    );
    assert_eq!(
        (&write["effect"], &write["result"]),
        (&json!("applied"), &Value::Null)
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn what_is_refused_at_the_door_leaves_no_trace() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let call = fleet.submit("charge", &json!({"what": "a"}));
    for (refused, code, status) in [
        (call.clone(), "missing_idempotency_key", "400"),
        (
            fleet.submit("nothing", &json!({})).key("k"),
            "unknown_tool",
            "404",
        ),
        (
            fleet.submit("charge", &json!({"what": 1})).key("k"),
            "invalid_arguments",
            "400",
        ),
        (
            fleet.submit_bytes("charge", "{\"what\": ").key("k"),
            "truncated_arguments",
            "400",
        ),
        (
            fleet.submit_bytes("charge", vec![b' '; 300 << 10]).key("k"),
            "payload_too_large",
            "413",
        ),
        (
            call.clone().key("k").header("Prefer", "never"),
            "header_invalid",
            "400",
        ),
        (call.clone().key("k").tenant("a~b"), "invalid_tenant", "400"),
    ] {
        let answer = refused.wait().await;
        assert_eq!(
            (answer.code(), &answer["state"]),
            (code, &json!("refused")),
            "{}",
            *answer
        );
        let headers = answer.headers.as_ref().unwrap();
        assert_eq!(
            headers.get("Nats-Service-Error-Code").unwrap().as_str(),
            status,
            "{code}"
        );
        assert!(headers.get("Nats-Service-Error").is_some(), "{code}");
    }
    assert_eq!(fleet.count("SELECT count(*) FROM toolfleet.calls").await, 0);
    // The key is still free.
    let answer = call.key("k").wait().await;
    assert_eq!(answer["replayed"], false);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn arguments_that_fit_nowhere_end_the_call_before_it_starts() {
    let witness = Witness::start().await;
    let tool = json!({
        "name": "charge", "version": 1, "description": "Sends a header.", "effect": "once",
        "input_schema": {"type": "object", "properties": {"account": {"type": "string"}}},
        "executor": {"http": {"method": "POST", "url": witness.url(), "headers": {"x-account": "{account}"}}},
    });
    let fleet = Fleet::start(Spec::with([tool.to_string()])).await;
    let bad = json!({"what": "a", "account": "1\r\nx-admin: yes"});
    let answer = fleet.submit("charge", &bad).key("k").wait().await;
    assert_eq!(
        (&answer["state"], answer.code()),
        (&json!("failed"), "tool_error"),
        "{}",
        *answer
    );
    assert_eq!(
        (&answer["effect"], &answer["attempts"]),
        (&json!("not_applied"), &json!(0))
    );
    assert_eq!(witness.asked("a"), 0);
    let good = json!({"what": "a", "account": "1"});
    assert_eq!(
        fleet.submit("charge", &good).key("l").wait().await["state"],
        "succeeded"
    );
    invariants::hold(&fleet, &witness).await;
}

/// A tool that needs the secret TOKEN.
fn with_secret(witness: &Witness) -> String {
    let tool = json!({
        "name": "charge", "version": 1, "description": "Needs a secret.", "effect": "once",
        "input_schema": {"type": "object"},
        "executor": {"http": {"method": "POST", "url": witness.url(), "headers": {"authorization": "secret://TOKEN"}}},
    });
    tool.to_string()
}

const CANNOT_RUN: &str = r#"toolfleet_skipped_claims_total{reason="cannot_run"}"#;

#[tokio::test]
async fn a_worker_without_the_secret_leaves_the_call_to_one_that_has_it() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([with_secret(&witness)])).await;
    let skipped = counter(CANNOT_RUN);
    let accepted = fleet
        .submit("charge", &json!({"what": "a"}))
        .key("k")
        .asynchronous()
        .await;
    until_so("the first worker to pass it on", async || {
        counter(CANNOT_RUN) > skipped
    })
    .await;
    assert_eq!(fleet.call(accepted.call_id()).await["attempts"], 0);
    let secrets = tempfile::tempdir().unwrap();
    fs::write(secrets.path().join("TOKEN"), "Bearer let-me-in\n").unwrap();
    fleet
        .add_worker(&["--secrets", secrets.path().to_str().unwrap()])
        .await;
    let row = fleet.until_state(accepted.call_id(), "succeeded").await;
    assert_eq!(
        (&row["worker"], &row["attempts"]),
        (&json!("worker-2"), &json!(1))
    );
    let sent = witness.look(|seen| seen.requests[0].header("authorization").to_owned());
    assert_eq!(sent, "Bearer let-me-in");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_call_that_nobody_can_run_expires_and_its_pointer_with_it() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([with_secret(&witness)])).await;
    let call = fleet.submit("charge", &json!({"what": "a"})).key("k");
    let answer = call.deadline(Duration::from_millis(500)).wait().await;
    assert_eq!(
        (&answer["state"], answer.code()),
        (&json!("expired"), "deadline_exceeded")
    );
    assert_eq!(answer["effect"], "not_applied");
    invariants::hold(&fleet, &witness).await;
}
