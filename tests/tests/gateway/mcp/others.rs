//! What another token of the same tenant can do with a call whose id it knows: look at it, and decide nothing.

use fleet::tokens::Scope;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    witness::Witness,
};
use serde_json::{Value, json};

use super::{
    modern, result, said,
    tasks::{takes_tasks, task_of},
};
use crate::tokens::{Held, known, token, with};

#[tokio::test]
async fn two_tokens_of_one_name_are_one_principal() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let mut calls = Vec::new();
    for (name, replayed) in [("ann", false), ("ann", true), ("bob", false)] {
        let held = token(&fleet, name, "acme", &[Scope::Call], "*").await;
        known(web, &held).await;
        let request = modern(web).calling("charge", r#"{"what":"a"}"#, "");
        let answer = result(&with(request, &held).send().await);
        assert_eq!(said(&answer)["replayed"], replayed, "{name} {answer}");
        calls.push(said(&answer)["id"].clone());
    }
    assert_eq!(calls[0], calls[1]);
    assert_ne!(calls[0], calls[2]);
    assert_eq!(witness.applied("a"), 2);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn only_who_made_a_call_says_yes_to_it_as_its_caller() {
    let witness = Witness::start().await;
    let guarded =
        witness.tool("charge", "once") + "approval: {by: caller}\nmcp: {task: preferred}\n";
    let fleet = Fleet::start(Spec::with([guarded])).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let ann = token(&fleet, "ann", "acme", &[Scope::Call], "*").await;
    let bob = token(&fleet, "bob", "acme", &[Scope::Call], "*").await;
    let reader = token(&fleet, "reader", "acme", &[Scope::Read], "*").await;
    for held in [&ann, &bob, &reader] {
        known(web, held).await;
    }
    let client = takes_tasks(web);
    let params = r#""name":"charge","arguments":{"what":"a"}"#;
    let made = client
        .request("tools/call", params)
        .header("Mcp-Name", "charge");
    let task = task_of(&result(&with(made, &ann).send().await));
    let of_task = async |held: &Held, method: &str, more: &str| {
        let params = format!(r#""taskId":"{task}"{more}"#);
        let request = client.request(method, &params).header("Mcp-Name", &task);
        result(&with(request, held).send().await)
    };
    let asked = of_task(&ann, "tasks/get", "").await;
    assert_eq!(asked["status"], "input_required", "{asked}");
    let name = asked["inputRequests"].as_object().unwrap().keys().next();
    let name = name.unwrap().clone();
    let yes = json!({name: {"action": "accept", "content": {"decision": "approve"}}});
    let yes = format!(r#","inputResponses":{yes}"#);

    // Another token is asked nothing, and its answer is as one to a question that is not there.
    let shown = of_task(&bob, "tasks/get", "").await;
    assert_eq!(shown["status"], "working", "{shown}");
    assert!(shown.get("inputRequests").is_none(), "{shown}");
    let passed_over = of_task(&bob, "tasks/update", &yes).await;
    assert_eq!(passed_over["resultType"], "complete", "{passed_over}");
    let awaiting = async |held: &Held| -> Value {
        let looked = with(web.get(&format!("/v1/calls/{task}")), held);
        let looked = looked.send().await.json();
        assert_eq!(looked["state"], "awaiting_client", "{looked}");
        looked["awaiting"].clone()
    };
    // Nor has it the token with which it could do so over HTTP.
    for held in [&bob, &reader] {
        let awaiting = awaiting(held).await;
        assert!(awaiting.get("token").is_none(), "{awaiting}");
        assert_eq!(awaiting["principal"], "ann", "{awaiting}");
    }
    assert!(awaiting(&ann).await["token"].is_string());
    assert_eq!(witness.asked("a"), 0);

    of_task(&ann, "tasks/update", &yes).await;
    fleet.until_state(task.parse().unwrap(), "succeeded").await;
    assert_eq!(witness.applied("a"), 1);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
