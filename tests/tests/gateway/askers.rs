//! Who is asked: a yes of the caller's is for who made the call to say, by the name of its token, whichever way another one takes.

use fleet::tokens::Scope;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    web::{Web, WebAnswer},
    witness::Witness,
};
use serde_json::{Value, json};

use crate::tokens::{Held, known, token, with};

async fn call(web: Web, held: &Held) -> WebAnswer {
    let request = web.post("/v1/call/confirm", r#"{"what": "a"}"#);
    with(request, held)
        .header("Idempotency-Key", "k")
        .send()
        .await
}

async fn hand_in(web: Web, turn: &str, held: &Held, output: &Value) -> Value {
    let body = json!({ "outputs": [output] }).to_string();
    let request = web.post(&format!("/v1/turns/{turn}/outputs"), body);
    with(request, held).send().await.json()
}

#[tokio::test]
async fn another_token_of_the_tenant_says_no_yes_for_who_made_the_call() {
    let witness = Witness::start().await;
    let confirmed = witness.tool("confirm", "once") + "approval: {by: caller}\n";
    let fleet = Fleet::start(Spec::with([confirmed])).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let ann = token(&fleet, "ann", "default", &[Scope::Call], "*").await;
    let bob = token(&fleet, "bob", "default", &[Scope::Call], "*").await;
    for held in [&ann, &bob] {
        known(web, held).await;
    }

    // The same key is the same call, and its token stays with who made it.
    let made = call(web, &ann).await.json();
    let attached = call(web, &bob).await.json();
    assert_eq!(attached["call_id"], made["call_id"], "{attached}");
    assert!(made["awaiting"]["token"].is_string(), "{made}");
    assert!(attached["awaiting"]["token"].is_null(), "{attached}");
    assert_eq!(attached["awaiting"]["principal"], "ann");

    // In a turn the gateway knows the token itself.
    let asked = json!({"calls": [{"tool": "confirm", "args": {"what": "b"}}]});
    let turn = with(web.post("/v1/turns", asked.to_string()), &ann)
        .header("Idempotency-Key", "t")
        .send()
        .await
        .json();
    let id = turn["turn_id"].as_str().unwrap();
    let of_turn = turn["items"][0]["call_id"].as_str().unwrap();
    let waits = with(web.get(&format!("/v1/calls/{of_turn}")), &ann)
        .send()
        .await
        .json();
    let hash = &waits["awaiting"]["args_hash"];
    let yes = json!({"call_id": of_turn, "decision": "approve", "args_hash": hash});
    let refused = hand_in(web, id, &bob, &yes).await;
    assert_eq!(refused["error"]["code"], "forbidden", "{refused}");
    assert_eq!(witness.asked("b"), 0);
    let taken = hand_in(web, id, &ann, &yes).await;
    assert!(taken["error"].is_null(), "{taken}");
    witness.until_asked("b", 1).await;
    assert_eq!(witness.asked("a"), 0);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
