//! The routes of a model and their breakers, over the whole fleet.

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    models::ModelServer,
    wait::until_so,
    witness::Witness,
};
use serde_json::{Value, json};

use crate::{
    model_calls::toolfleet,
    models::{manifest, said},
};

/// Waits until the breaker of this model is in this state.
async fn until_breaker(fleet: &Fleet, model: &str, state: &str) {
    let sql = "SELECT state FROM toolfleet.breakers WHERE tool = 'ask_model' AND split_part(target, ' ', 2) = $1";
    until_so("the breaker of a route", async || {
        let found: Option<String> = sqlx::query_scalar(sql)
            .bind(model)
            .fetch_optional(&fleet.database.pool)
            .await
            .unwrap();
        found.as_deref() == Some(state)
    })
    .await;
}

async fn ask(fleet: &Fleet, text: &str) -> Value {
    let answer = fleet.submit("ask_model", &said(text)).wait().await;
    (*answer).clone()
}

#[tokio::test]
async fn a_route_that_fails_is_passed_over_by_every_call_and_probed() {
    let witness = Witness::start().await;
    let server = ModelServer::start(
        &json!({"rules": [
            {"match": {"model": "large"}, "fault": {"kind": "status", "status": 503}, "times": 4},
            {"match": {"text": "both"}, "fault": {"kind": "status", "status": 503}},
            {"answer": {"text": "hello"}},
        ]}),
        &[],
    );
    let more =
        "breaker: { calls: 4, failures: 50%, window: 60s, open: 2s, open_max: 2s, probes: 1 }\n";
    let fleet = Fleet::start(Spec::with([manifest(&server, more)])).await;
    for _ in 0..4 {
        let answer = ask(&fleet, "hello").await;
        assert_eq!(answer["result"]["route"], "spare", "{answer}");
        let tried = json!([{"route": "main", "code": "unavailable", "status": 503}]);
        assert_eq!(answer["result"]["tried"], tried);
    }
    until_breaker(&fleet, "large", "open").await;
    until_so("the route to be passed over", async || {
        let answer = ask(&fleet, "hello").await;
        assert_eq!(answer["state"], "succeeded", "{answer}");
        answer["result"]["tried"] == json!([{"route": "main", "code": "breaker_open"}])
    })
    .await;
    // Its time is over: a call probes it, and it answers.
    until_so("the route to be asked again", async || {
        ask(&fleet, "hello").await["result"]["route"] == "main"
    })
    .await;
    until_breaker(&fleet, "large", "closed").await;

    // Both: calls end before an attempt.
    until_so("calls to end at the gate", async || {
        let answer = ask(&fleet, "both").await;
        assert_eq!(answer["state"], "failed", "{answer}");
        answer["error"]["code"] == "circuit_open" && answer["attempts"] == 0
    })
    .await;
    let asked = (server.asked("large").await, server.asked("small").await);
    let answer = ask(&fleet, "both").await;
    if answer["attempts"] == 0 {
        assert_eq!(
            (server.asked("large").await, server.asked("small").await),
            asked,
            "nothing is sent while both are open"
        );
    }
    invariants::hold(&fleet, &witness).await;
}

/// What the doctor says of the routes of models.
async fn routes_by_doctor(fleet: &Fleet) -> Value {
    let said = toolfleet(fleet, &["doctor", "--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    let checks = said["checks"].as_array().unwrap();
    let routes = checks.iter().find(|check| check["check"] == "model_routes");
    routes.unwrap().clone()
}

#[tokio::test]
async fn a_route_whose_key_is_wrong_is_named_by_the_doctor_until_it_is_right() {
    let witness = Witness::start().await;
    let server = ModelServer::start(
        &json!({"rules": [
            {"match": {"model": "large"}, "fault": {"kind": "status", "status": 401}, "times": 2},
            {"answer": {"text": "hello"}},
        ]}),
        &[],
    );
    let fleet = Fleet::start(Spec::with([manifest(&server, "")])).await;
    assert_eq!(routes_by_doctor(&fleet).await["status"], "ok");
    for _ in 0..2 {
        assert_eq!(ask(&fleet, "hello").await["result"]["route"], "spare");
        let found = routes_by_doctor(&fleet).await;
        assert_eq!(found["status"], "warn", "{found}");
        let what = found["found"].as_str().unwrap();
        assert!(
            what.contains("ask_model, route main (large): status 401 at "),
            "{what}"
        );
        assert!(!what.contains("spare"), "{what}");
    }
    assert_eq!(ask(&fleet, "hello").await["result"]["route"], "main");
    assert_eq!(routes_by_doctor(&fleet).await["status"], "ok");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn what_a_model_is_asked_may_have_a_mebibyte_and_no_other_tool() {
    let witness = Witness::start().await;
    let server = ModelServer::start(&json!({"rules": [{"answer": {"text": "hello"}}]}), &[]);
    let tools = [manifest(&server, ""), witness.tool("look", "read")];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let text = "x".repeat(1024 * 1024 - 60);
    let answer = ask(&fleet, &text).await;
    assert_eq!(answer["state"], "succeeded", "{answer}");
    let sent = server.log().await.pop().unwrap();
    assert!(sent["raw"].as_str().unwrap().contains(&text));
    let many = vec![json!({"role": "user", "content": "x"}); 20_000];
    let many = fleet.submit("ask_model", &json!({ "messages": many }));
    let many = many.wait().await;
    assert_eq!(many["state"], "succeeded", "{}", *many);

    let over = fleet.submit_bytes("ask_model", " ".repeat(1024 * 1024 + 1));
    assert_eq!(over.wait().await.code(), "payload_too_large");
    let other = fleet.submit("look", &json!({"what": "x".repeat(256 * 1024)}));
    assert_eq!(other.wait().await.code(), "payload_too_large");
    invariants::hold(&fleet, &witness).await;
}
