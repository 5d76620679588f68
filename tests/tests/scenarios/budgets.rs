//! Budgets of models: what nothing is left of ends calls before their claim, over all workers.

use fleet_tests::{
    caller::{Answer, Submission},
    fleet::{Fleet, Spec},
    invariants,
    models::ModelServer,
    wait::until_so,
    witness::Witness,
};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

fn manifest(server: &ModelServer, version: u32, budget: &str) -> String {
    let url = server.url("/v1/chat/completions");
    format!(
        r#"
name: ask_model
version: {version}
description: Answers a conversation.
effect: read
executor:
  chat:
    protocol: openai_chat
    routes:
      - {{ name: main, url: "{url}", model: large, price: {{ currency: USD, input: "1000", output: "1000" }} }}
budget: {budget}
"#
    )
}

fn server(rule: &Value) -> ModelServer {
    ModelServer::start(&json!({"rules": [rule]}), &[])
}

fn asks(fleet: &Fleet, run: &str) -> Submission {
    let request = json!({"messages": [{"role": "user", "content": "hello"}]});
    fleet
        .submit("ask_model", &request)
        .header("Toolfleet-Run", run)
}

fn is_over(answer: &Answer) -> bool {
    if answer["state"] == "succeeded" {
        return false;
    }
    assert_eq!(answer.code(), "budget_exceeded", "{}", **answer);
    assert_eq!(
        (&answer["state"], &answer["attempts"], &answer["effect"]),
        (&json!("failed"), &json!(0), &json!("none")),
        "{}",
        **answer
    );
    assert_eq!(answer["error"]["suggestion"], "ask_user");
    true
}

#[tokio::test]
async fn a_run_of_a_hundred_calls_over_three_workers_makes_hardly_more() {
    const BUDGET: usize = 100;
    const IN_FLIGHT: usize = 16;
    let witness = Witness::start().await;
    let server = server(&json!({"answer": {"text": "hello"}, "first_byte_ms": 20}));
    let tools = [manifest(&server, 1, "{ calls_per_run: 100 }")];
    let fleet = Fleet::start(Spec::with(tools).workers(3, &[])).await;
    let calls = stream::iter(0..150).map(|_| asks(&fleet, "run-1").wait());
    let answers: Vec<Answer> = calls.buffer_unordered(IN_FLIGHT).collect().await;
    let over = answers.iter().filter(|answer| is_over(answer)).count();
    let executions = server.asked("large").await;
    println!("{executions} executions of a budget of {BUDGET}, {over} of 150 calls ended");
    assert_eq!(executions + over, 150);
    assert!(
        (BUDGET..BUDGET + IN_FLIGHT).contains(&executions),
        "{executions}"
    );
    // The events say why; another run has its own budget.
    let last = answers.iter().find(|answer| is_over(answer)).unwrap();
    let details = &last["error"]["details"];
    assert_eq!(
        (&details["budget"], &details["limit"]),
        (&json!("calls_per_run"), &json!("100"))
    );
    assert!(!is_over(&asks(&fleet, "run-2").wait().await));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn what_a_run_and_a_tenant_may_spend_is_exact_where_calls_follow_each_other() {
    let witness = Witness::start().await;
    // Ten tokens each, for a cent.
    let server = server(&json!({"answer": {"text": "hello", "usage": {"input": 8, "output": 2}}}));
    let tools = [manifest(
        &server,
        1,
        "{ tokens_per_run: 25, cost_per_tenant_day: \"0.05\" }",
    )];
    let fleet = Fleet::start(Spec::with(tools)).await;
    for run in ["a", "b"] {
        for expected in [false, false, false, true] {
            // The fifth of the day is the last of both.
            if run == "b" && server.asked("large").await == 5 {
                break;
            }
            let answer = asks(&fleet, run).wait().await;
            assert_eq!(is_over(&answer), expected, "{run}: {}", *answer);
        }
    }
    let today = asks(&fleet, "c").wait().await;
    assert!(is_over(&today));
    assert_eq!(
        today["error"]["details"],
        json!({"budget": "cost_per_tenant_day", "spent": "0.05", "limit": "0.05", "currency": "USD"})
    );
    // Another tenant has its own day.
    assert!(!is_over(&asks(&fleet, "c").tenant("acme").wait().await));
    // A key that is answered costs nothing.
    let requests = server.asked("large").await;
    // A newer version's budget holds at once, with what was spent before.
    fleet
        .apply(&manifest(&server, 2, "{ cost_per_run: \"0.02\" }"))
        .await;
    until_so("the newer version to hold", async || {
        let answer = asks(&fleet, "b").wait().await;
        assert!(is_over(&answer), "it has spent two cents");
        answer["tool_version"] == 2
    })
    .await;
    let fresh = asks(&fleet, "d").key("turn-1").wait().await;
    assert!(!is_over(&fresh));
    let again = asks(&fleet, "d").key("turn-1").wait().await;
    assert_eq!(again["replayed"], true);
    assert_eq!(server.asked("large").await, requests + 1);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_stream_that_is_given_up_after_it_was_heard_counts() {
    let witness = Witness::start().await;
    let text = "word ".repeat(200);
    let server = server(
        &json!({"answer": {"text": text}, "chunk": 50, "fault": {"kind": "hang", "at": 4_000}}),
    );
    let tools = [manifest(&server, 1, "{ cost_per_run: \"0.1\" }")];
    let fleet = Fleet::start(Spec::with(tools)).await;
    // It takes no count away from the vendor, either.
    let request = json!({"stream": true, "stream_options": null, "messages": [{"role": "user", "content": "hello"}]});
    let asks = || {
        let call = fleet.submit("ask_model", &request);
        let call = call.header("Toolfleet-Run", "run-1");
        call.header("Toolfleet-Session", "s")
            .header("Toolfleet-Deadline-Ms", "2500")
    };
    let late = asks().wait().await;
    assert_eq!(late["state"], "failed", "{}", *late);
    let row = "SELECT code, output_tokens > 50 AS counted, estimated, cost > 0.05 AS dear FROM toolfleet.model_calls WHERE call_id = $1";
    let rows = fleet.rows(row, late.call_id()).await;
    println!("{rows:?}");
    assert_eq!(
        (&rows[0]["counted"], &rows[0]["estimated"], &rows[0]["dear"]),
        (&json!(true), &json!(true), &json!(true)),
        "{rows:?}"
    );
    assert!(is_over(&asks().wait().await));
    let log = server.log().await;
    let sent: Value = serde_json::from_str(log[0]["raw"].as_str().unwrap()).unwrap();
    assert_eq!(sent["stream_options"], json!({"include_usage": true}));
    invariants::hold(&fleet, &witness).await;
}
