//! Models: a call of one is a call.

use std::process::Command;

use fleet_tests::{
    fleet::{Fleet, Spec, built},
    invariants,
    models::ModelServer,
    witness::Witness,
};
use serde_json::{Value, json};

/// A tool with two models of the stand-in.
fn manifest(server: &ModelServer, more: &str) -> String {
    let url = server.url("/v1/chat/completions");
    format!(
        r#"
name: ask_model
version: 1
description: Answers a conversation.
effect: read
executor:
  chat:
    protocol: openai_chat
    routes:
      - {{ name: main, url: "{url}", model: large, price: {{ currency: USD, input: "2.50", output: "10" }} }}
      - {{ name: spare, url: "{url}", model: small }}
    fixed: {{ max_completion_tokens: 100 }}
retry: {{ strategy: fixed, max_attempts: 2, base: 10ms }}
{more}"#
    )
}

fn said(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}]})
}

/// What a person sees of a call.
#[expect(clippy::print_stdout, reason = "it is what this is run for")]
fn show(fleet: &Fleet, call: &str) -> String {
    let mut command = Command::new(built("fleet_tests_toolfleet"));
    command.args(["calls", "show", call]);
    let shown = command.env("DATABASE_URL", &fleet.database.url).output();
    let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
    println!("{shown}");
    shown
}

#[tokio::test]
async fn a_model_is_paid_once_for_a_key_and_another_one_answers_in_its_place() {
    let witness = Witness::start().await;
    let server = ModelServer::start(
        &json!({"rules": [
            {"match": {"text": "busy", "model": "large"}, "fault": {"kind": "status", "status": 429}},
            {"match": {"text": "broken"}, "fault": {"kind": "status", "status": 503}, "times": 2},
            {"answer": {"text": "Hello from the script."}},
        ]}),
        &[],
    );
    let fleet = Fleet::start(Spec::with([manifest(&server, "")])).await;

    let call = fleet.submit("ask_model", &said("hello")).key("turn-1");
    let first = call.clone().wait().await;
    assert_eq!(first["state"], "succeeded", "{}", *first);
    let result = &first["result"];
    assert_eq!(
        result["reply"]["choices"][0]["message"]["content"],
        "Hello from the script."
    );
    assert_eq!(
        (&result["route"], &result["finish"], &result["tried"]),
        (&json!("main"), &json!("stop"), &json!([]))
    );
    let again = call.wait().await;
    assert_eq!(again["replayed"], true, "{}", *again);
    assert_eq!(again.first_bytes(), first.first_bytes());
    assert_eq!(
        server.asked("large").await,
        1,
        "a repeated key is not paid twice"
    );
    let shown = show(&fleet, &first.call_id().to_string());
    assert!(
        shown.contains("ask_model") && shown.contains("Hello from the script."),
        "{shown}"
    );

    // Another route within the same attempt.
    let busy = fleet.submit("ask_model", &said("busy")).wait().await;
    let tried = json!([{"route": "main", "code": "unavailable", "status": 429}]);
    assert_eq!(
        (&busy["result"]["route"], &busy["result"]["tried"]),
        (&json!("spare"), &tried)
    );
    assert_eq!(busy["attempts"], 1);
    assert_eq!(
        (server.asked("large").await, server.asked("small").await),
        (2, 1)
    );

    // Both fail once: the next attempt begins at the first again.
    let broken = fleet.submit("ask_model", &said("broken")).wait().await;
    assert_eq!(
        (&broken["result"]["route"], &broken["attempts"]),
        (&json!("main"), &json!(2))
    );
    assert_eq!(
        (server.asked("large").await, server.asked("small").await),
        (4, 2)
    );
    let attempts = fleet.attempts(broken.call_id()).await;
    assert_eq!(
        attempts[0]["error"]["code"], "unavailable",
        "{}",
        attempts[0]
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn what_this_release_does_not_do_is_refused_without_an_attempt() {
    let witness = Witness::start().await;
    let server = ModelServer::start(&json!({"rules": [{"answer": {"text": "hello"}}]}), &[]);
    let fleet = Fleet::start(Spec::with([manifest(&server, "")])).await;
    for (member, value) in [
        ("stream", json!(true)),
        ("background", json!(true)),
        ("conversation", json!("conv_1")),
        ("tools", json!([{"type": "web_search"}])),
    ] {
        let mut request = said("hello");
        request[member] = value;
        let refused = fleet.submit("ask_model", &request).wait().await;
        assert_eq!(refused.code(), "invalid_arguments", "{}", *refused);
        assert_eq!(
            (&refused["state"], &refused["attempts"]),
            (&json!("failed"), &json!(0))
        );
        assert_eq!(
            refused["error"]["suggestion"], "fix_arguments",
            "{}",
            *refused
        );
    }
    // The door asks for the messages.
    let refused = fleet.submit("ask_model", &json!({"input": "hello"}));
    let refused = refused.wait().await;
    assert_eq!(
        (refused.code(), &refused["state"]),
        ("invalid_arguments", &json!("refused"))
    );
    assert_eq!(server.log().await.len(), 0);
    invariants::hold(&fleet, &witness).await;
}
