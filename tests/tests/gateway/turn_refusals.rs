//! Calls that a turn has told as refused: they stay so, in the same words, also when the stream of events has forgotten the turn.

use fleet_tests::{
    event_source::{EventSource, text},
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    web::Web,
    witness::Witness,
};
use serde_json::{Value, json};

use crate::turns::{look, output, turn, whole};

fn late(what: &str) -> Value {
    json!({"tool": "late", "args": {"what": what}})
}

/// Applies a tool, and waits until calls of it are accepted.
async fn apply(fleet: &Fleet, web: Web, witness: &Witness) {
    fleet.apply(&witness.tool("late", "once")).await;
    until_so("calls of the tool are accepted", async || {
        let call = web.post("/v1/call/late", json!({"what": "first"}).to_string());
        let call = call.header("Idempotency-Key", "first").send().await;
        call.code() != "unknown_tool"
    })
    .await;
}

#[tokio::test]
async fn a_call_without_its_form_refuses_the_turn_and_leaves_its_key_free() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    for (call, code, path) in [
        (
            json!({"tool": "look", "arguments": {}}),
            "invalid_arguments",
            "/calls/1/arguments",
        ),
        (
            json!({"name": "look", "args": {}}),
            "invalid_arguments",
            "/calls/1/name",
        ),
        (
            json!({"tool": "look"}),
            "invalid_arguments",
            "/calls/1/args",
        ),
        (
            json!({"tool": "a b", "args": {}}),
            "invalid_tool_name",
            "/calls/1/tool",
        ),
        (
            json!({"tool": "look", "args": {}, "deadline_ms": 0}),
            "deadline_invalid",
            "/calls/1/deadline_ms",
        ),
    ] {
        let refused = turn(web, "k", &json!({"calls": [look("a"), call]})).await;
        let error = refused.json()["error"].clone();
        assert_eq!((refused.status, error["code"].as_str()), (400, Some(code)));
        assert_eq!(error["path"], path, "{error}");
    }
    assert_eq!(witness.asked("a"), 0);
    let taken = turn(web, "k", &json!({"calls": [look("a")]})).await;
    assert_eq!(taken.status, 202, "{}", taken.text());
    whole(web, taken.json()["turn_id"].as_str().unwrap(), "", None).await;
    // Its headers are judged also where no call is left to be sent.
    let refused = json!({"calls": [{"tool": "none", "args": {}}]});
    assert_eq!(turn(web, "n", &refused).await.status, 202);
    for header in ["Toolfleet-Run", "Toolfleet-Session"] {
        let again = web.post("/v1/turns", refused.to_string());
        let again = again.header("Idempotency-Key", "n").header(header, "{}");
        let again = again.send().await;
        assert_eq!((again.status, &*again.code()), (400, "header_invalid"));
    }
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_refusal_reads_the_same_at_every_repetition_and_says_what_a_turn_can_do() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let (mut second, other) = fleet.gateway(&[]).await;
    let wrong = json!({"tool": "look", "args": {"waht": "a"}});
    let asked = json!({"calls": [look("a"), wrong]});
    let made = turn(web, "k", &asked).await.json();
    let refusal = &made["items"][1];
    let message = refusal["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("in a new turn with a key of its own"),
        "{message}"
    );
    assert!(!message.contains("same idempotency key"), "{message}");
    let again = turn(other, "k", &asked).await.json();
    assert_eq!(again["items"][1].to_string(), refusal.to_string());
    let items = output(&whole(web, made["turn_id"].as_str().unwrap(), "", None).await);
    let told = items[1]["error"].to_string();
    assert!(told.contains("in a new turn"), "{told}");

    // Streamed at once to who wants that.
    let request = other.post("/v1/turns", asked.to_string());
    let request = request.header("Idempotency-Key", "k");
    let request = request.header("Accept", "text/event-stream");
    let mut streamed = EventSource::open(request).await;
    assert_eq!(streamed.head.status, 200);
    let id = made["turn_id"].as_str().unwrap();
    assert_eq!(streamed.head.header("Location"), format!("/v1/turns/{id}"));
    let story = whole(web, id, "", None).await;
    assert_eq!(text(&streamed.rest().await), text(&story));
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
    second.drain().await;
}

#[tokio::test]
async fn a_call_that_was_told_as_refused_is_not_run_when_the_stream_has_forgotten_its_turn() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let asked = json!({"calls": [look("a"), late("b")]});
    let made = turn(web, "k", &asked).await.json();
    assert_eq!(made["items"][1]["error"]["code"], "unknown_tool", "{made}");
    let id = made["turn_id"].as_str().unwrap();
    whole(web, id, "", None).await;
    apply(&fleet, web, &witness).await;
    let jetstream = async_nats::jetstream::new(fleet.client.clone());
    let stream = jetstream.get_stream("TOOLFLEET_EVENTS").await.unwrap();
    stream.purge().await.unwrap();
    // A moment ago it may have been on its way.
    let early = turn(web, "k", &asked).await;
    assert_eq!(
        (early.status, early.code()),
        (503, "unavailable".to_owned())
    );
    age(&fleet).await;
    let again = turn(web, "k", &asked).await;
    assert_eq!(again.status, 202, "{}", again.text());
    let again = again.json();
    assert_eq!(again["items"][0]["replayed"], true, "{again}");
    assert_eq!(again["items"][1]["state"], "refused", "{again}");
    assert_eq!(again["items"][1]["error"]["code"], "not_found", "{again}");
    let items = output(&whole(web, id, "", None).await);
    assert!(items[1]["error"].to_string().contains("refused"), "{items}");
    let third = turn(web, "k", &asked).await.json();
    assert_eq!(third["items"][1].to_string(), again["items"][1].to_string());
    assert_eq!((witness.asked("a"), witness.asked("b")), (1, 0));
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

/// Its gateway was killed before it could say which calls the turn has, so nobody was told of the other one.
#[tokio::test]
async fn a_turn_that_was_not_made_to_its_end_is_made_by_the_same_request() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let asked = json!({"calls": [look("a"), late("b")]});
    let made = turn(web, "k", &asked).await.json();
    let id = made["turn_id"].as_str().unwrap();
    whole(web, id, "", None).await;
    apply(&fleet, web, &witness).await;
    let jetstream = async_nats::jetstream::new(fleet.client.clone());
    let stream = jetstream.get_stream("TOOLFLEET_EVENTS").await.unwrap();
    let header = format!("*.v1.*.event.{id}.turn");
    stream.purge().filter(header).await.unwrap();
    let again = turn(web, "k", &asked).await;
    assert_eq!(again.status, 202, "{}", again.text());
    let items = output(&whole(web, id, "", None).await);
    assert_eq!(items[1]["error"], Value::Null, "{items}");
    assert_eq!((witness.asked("a"), witness.asked("b")), (1, 1));
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

/// Two minutes go by for all calls. The history refuses it unless it is forced.
async fn age(fleet: &Fleet) {
    fleet
        .sql("ALTER TABLE toolfleet.finished_calls DISABLE TRIGGER insert_only")
        .await;
    fleet
        .sql("UPDATE toolfleet.finished_calls SET accepted_at = accepted_at - interval '2 minutes'")
        .await;
    fleet
        .sql("ALTER TABLE toolfleet.finished_calls ENABLE TRIGGER insert_only")
        .await;
}
