//! Who listens hears that the tools have changed that are for them, and nothing else.

use std::time::Duration;

use fleet::{store::tokens, tokens::Scope};
use fleet_tests::{
    event_source::EventSource,
    fleet::{Fleet, Spec},
    web::WebRequest,
    witness::Witness,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Client, error, legacy, modern, result};
use crate::tokens::{known, token, with};

const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const CHANGED: &str = "notifications/tools/list_changed";
const ID: &str = "io.modelcontextprotocol/subscriptionId";

fn listening(client: Client, id: &str, filter: &Value) -> WebRequest {
    let params = format!(r#""notifications":{filter}"#);
    client.request(id, "subscriptions/listen", &params, "")
}

async fn next(stream: &mut EventSource) -> Value {
    loop {
        let block = stream.next().await.expect("the stream goes on");
        if !block.data.is_empty() {
            return block.json();
        }
    }
}

#[tokio::test]
async fn who_listens_hears_of_changed_tools_under_the_id_of_the_request() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let all = token(&fleet, "all", "default", &[Scope::Call], "*").await;
    let some = token(&fleet, "some", "default", &[Scope::Call], "look*").await;
    let reader = token(&fleet, "reader", "default", &[Scope::Read], "*").await;
    known(web, &reader).await;
    let discovered = with(modern(web).request("1", "server/discover", "", ""), &all)
        .send()
        .await;
    assert_eq!(
        result(&discovered)["capabilities"]["tools"]["listChanged"],
        true
    );

    let tools = json!({"toolsListChanged": true, "promptsListChanged": true});
    let mut streams = Vec::new();
    for (held, id, filter) in [
        (&all, "7", &tools),
        (&some, "\"s\"", &tools),
        (&all, "8", &json!({"promptsListChanged": true})),
        // Who can call none is told of none.
        (&reader, "9", &tools),
    ] {
        let mut stream = EventSource::open(with(listening(modern(web), id, filter), held)).await;
        assert_eq!(stream.head.header("Content-Type"), "text/event-stream");
        assert_eq!(stream.head.header("X-Accel-Buffering"), "no");
        let first = next(&mut stream).await;
        assert_eq!(first["method"], ACKNOWLEDGED, "{first}");
        let own: Value = serde_json::from_str(id).unwrap();
        assert_eq!(first["params"]["_meta"][ID], own);
        let agreed = match filter["toolsListChanged"] {
            Value::Bool(true) => json!({"toolsListChanged": true}),
            _ => json!({}),
        };
        assert_eq!(first["params"]["notifications"], agreed);
        streams.push((stream, own));
    }
    // A pause changes no tool, though the bell rings.
    fleet.ring().await;
    fleet.apply(&witness.tool("other", "read")).await;
    let (stream, id) = &mut streams[0];
    let changed = next(stream).await;
    assert_eq!(
        (&changed["method"], &changed["params"]["_meta"][ID]),
        (&json!(CHANGED), &*id)
    );
    // Who may not use it hears of the next one.
    fleet.apply(&witness.tool("look_too", "read")).await;
    assert_eq!(next(stream).await["method"], CHANGED);
    let (stream, id) = &mut streams[1];
    let changed = next(stream).await;
    assert_eq!(
        (&changed["method"], &changed["params"]["_meta"][ID]),
        (&json!(CHANGED), &*id)
    );
    fleet.retire("other").await;
    assert_eq!(next(&mut streams[0].0).await["method"], CHANGED);
    for (stream, _) in &mut streams {
        let more = timeout(Duration::from_secs(2), next(stream)).await;
        assert!(more.is_err(), "{more:?}");
    }

    // Whose token is revoked hears nothing more; who stays is told when the gateway stops.
    let mut connection = fleet.database.connect().await;
    tokens::revoke(&mut connection, some.id(), "ann", "a test")
        .await
        .unwrap();
    fleet.ring().await;
    let (mut revoked, _) = streams.remove(1);
    assert!(
        revoked
            .rest()
            .await
            .iter()
            .all(|block| block.data.is_empty())
    );
    gateway.ask_to_stop();
    for (mut stream, id) in streams {
        let last = next(&mut stream).await;
        assert_eq!(last["id"], id, "{last}");
        assert_eq!(
            (&last["result"]["resultType"], &last["result"]["_meta"][ID]),
            (&json!("complete"), &id)
        );
        assert!(stream.next().await.is_none());
    }
    gateway.until_left().await;
}

#[tokio::test]
async fn a_subscription_has_a_filter_and_a_place() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet
        .gateway(&["--streams-max", "1", "--streams-each-max", "1"])
        .await;
    for filter in [
        json!(1),
        json!([]),
        json!({"toolsListChanged": 1}),
        json!(null),
    ] {
        let answer = listening(modern(web), "1", &filter).send().await;
        assert_eq!(error(&answer), (200, -32602), "{filter}");
    }
    let none = modern(web)
        .request("1", "subscriptions/listen", "", "")
        .send()
        .await;
    assert_eq!(error(&none), (200, -32602));
    let older = listening(legacy(web), "1", &json!({})).send().await;
    assert_eq!(error(&older), (200, -32601));
    let mut one = EventSource::open(listening(
        modern(web),
        "1",
        &json!({"toolsListChanged": true}),
    ))
    .await;
    assert_eq!(next(&mut one).await["method"], ACKNOWLEDGED);
    let refused = listening(modern(web), "2", &json!({})).send().await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (429, "rate_limited"),
        "{}",
        refused.text()
    );
    drop(one);
    gateway.drain().await;
}
