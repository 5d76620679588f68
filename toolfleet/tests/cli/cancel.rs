//! A dispatcher of the release before, which knows no `actor` of a cancel: it is asked again without one.

use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{folder, nats, program, run};

const CALL: &str = "01936c2e-0000-7000-8000-00000000000c";

/// As that release answered: it refused what it did not know.
fn answer(asked: &Value) -> Value {
    if asked.get("actor").is_none() {
        return json!({"call_id": CALL, "state": "cancelled", "result": "cancelled"});
    }
    json!({
        "call_id": null, "tool": "", "state": "refused", "outcome": "business_error", "is_error": true, "effect": "none",
        "error": {"code": "invalid_arguments", "message": "The body must have the form {call_id, and perhaps reason}."}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatcher_that_knows_no_actor_is_asked_again_without_one() {
    let folder = folder();
    let nats = nats(folder.path()).await;
    let client = async_nats::connect(nats.url()).await.unwrap();
    let mut requests = client
        .subscribe("toolfleet.v1.default.cancel")
        .await
        .unwrap();
    client.flush().await.unwrap();
    let mut answering = JoinSet::new();
    answering.spawn(async move {
        while let Some(request) = requests.next().await {
            let asked: Value = serde_json::from_slice(&request.payload).unwrap();
            let told = answer(&asked).to_string();
            let reply = request.reply.unwrap();
            client.publish(reply, told.into()).await.unwrap();
        }
    });
    let mut command = program(&["calls", "cancel", CALL, "--actor", "ann", "--json"]);
    command.env("NATS_URL", nats.url());
    let ran = run(command);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(ran.json()["result"], "cancelled", "{}", ran.out);
    assert!(
        ran.err.contains("recorded `caller` in place of ann"),
        "{}",
        ran.err
    );
    nats.stop().await;
}
