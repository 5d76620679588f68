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
    // The alert on tools that fail sees both.
    for tool in ["read", "write"] {
        let series = format!(
            r#"toolfleet_ended_attempts_total{{error_type="output_invalid",outcome="applied",tool="{tool}"}}"#
        );
        until_so("the attempt to be counted", async || {
            (counter(&series) - 1.0).abs() < 0.5
        })
        .await;
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn broken_characters_in_an_answer_are_replaced_and_marked() {
    let witness = Witness::start().await;
    let latin = r#"printf '{"name":"caf\351","nul":"\\u0000","half":"\\ud800"}'"#;
    let tools = [
        script("read", "read", latin),
        script("write", "once", latin),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    for (tool, effect) in [("read", "none"), ("write", "applied")] {
        let answer = fleet.submit(tool, &json!({})).key(tool).wait().await;
        assert_eq!(
            (
                &answer["state"],
                &answer["outcome"],
                &answer["is_error"],
                &answer["effect"]
            ),
            (
                &json!("succeeded"),
                &json!("success"),
                &json!(false),
                &json!(effect)
            ),
            "{}",
            *answer
        );
        let mended = json!({"name": "caf\u{fffd}", "nul": "\u{fffd}", "half": "\u{fffd}"});
        assert_eq!(answer["result"], mended);
        assert_eq!(answer.code(), "output_invalid");
        assert_eq!(
            answer["error"]["details"],
            json!({"characters_replaced": true})
        );
        let again = fleet.submit(tool, &json!({})).key(tool).wait().await;
        assert_eq!(again.first_bytes(), String::from_utf8_lossy(&answer.bytes));
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn an_answer_too_large_is_cut_and_its_write_stays_applied() {
    let witness = Witness::start().await;
    let large = "head -c 3000000 /dev/zero | tr '\\0' x";
    let limited = |tool: String| tool.replacen('{', r#"{"output_limit": 1000, "#, 1);
    let secretive = |tool: String| tool.replacen('{', r#"{"sensitive": {"pointers": ["/a"]}, "#, 1);
    let tools = [
        limited(script("read", "read", large)),
        limited(script("write", "once", large)),
        limited(secretive(script("secret", "once", large))),
        witness.tool("remote", "once") + "output_limit: 1000\n",
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("a", Reply::Body(format!("[\"{}\"]", "y".repeat(5_000))));
    let cut = |start: &str, letter: &str, count: usize| {
        json!(format!("{start}{}… [cut]", letter.repeat(count)))
    };
    for (tool, state, effect, result) in [
        ("read", "failed", "none", Value::Null),
        ("write", "succeeded", "applied", cut("", "x", 1_000)),
        ("secret", "succeeded", "applied", Value::Null),
        ("remote", "succeeded", "applied", cut("[\"", "y", 998)),
    ] {
        let call = fleet.submit(tool, &json!({"what": "a"}));
        let answer = call.key(tool).wait().await;
        assert_eq!(
            (&answer["state"], answer.code(), &answer["effect"]),
            (&json!(state), "output_too_large", &json!(effect)),
            "{tool}: {}",
            *answer
        );
        assert_eq!(answer["result"], result, "{tool}");
    }
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
