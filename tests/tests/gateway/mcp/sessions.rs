//! Clients of older revisions are asked in their session, over the stream of the call.

use std::time::Duration;

use fleet::{ids::CallId, tokens::Scope};
use fleet_tests::{
    event_source::EventSource,
    fleet::{Fleet, Spec},
    invariants,
    web::{Web, WebAnswer, WebRequest},
    witness::Witness,
};
use serde_json::{Value, json};

use super::{LEGACY, error, legacy, modern, result, said, texts};
use crate::tokens::{known, token, with};

pub(super) const ELICITS: &str = r#"{"elicitation":{}}"#;

pub(super) fn beginning(web: Web, capabilities: &str) -> WebRequest {
    let params = format!(
        r#""protocolVersion":"{LEGACY}","capabilities":{capabilities},"clientInfo":{{"name":"t","version":"1"}}"#
    );
    legacy(web).request("0", "initialize", &params, "")
}

/// A session of a client that can be asked this.
pub(super) async fn begun(web: Web, capabilities: &str) -> String {
    let answer = beginning(web, capabilities).send().await;
    assert_eq!(result(&answer)["protocolVersion"], LEGACY);
    let id = answer.header("Mcp-Session-Id").to_owned();
    assert!(id.bytes().all(|byte| (0x21..=0x7e).contains(&byte)), "{id}");
    id
}

pub(super) fn calling(web: Web, session: &str, tool: &str, what: &str) -> WebRequest {
    let arguments = json!({ "what": what }).to_string();
    let request = legacy(web).calling(tool, &arguments, "");
    request.header("Mcp-Session-Id", session)
}

/// What a client answers to a request of the server.
fn responding(web: Web, session: &str, response: &Value) -> WebRequest {
    web.post("/mcp", response.to_string())
        .header("Content-Type", "application/json")
        .header("Accept", "application/json, text/event-stream")
        .header("MCP-Protocol-Version", LEGACY)
        .header("Mcp-Session-Id", session)
}

/// The notification of a client that does not want the answer to this request.
pub(super) fn cancelling(web: Web, session: &str, id: &Value) -> WebRequest {
    let said =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    responding(web, session, &said)
}

async fn respond(web: Web, session: &str, id: &Value, result: &Value) -> WebAnswer {
    let response = json!({"jsonrpc": "2.0", "id": id, "result": result});
    responding(web, session, &response).send().await
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
async fn a_client_is_asked_over_the_stream_of_its_call_and_answers_in_its_session() {
    let witness = Witness::start().await;
    let guarded = witness.tool("charge", "once") + "approval: {by: caller}\n";
    let fleet = Fleet::start(Spec::with([guarded, witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let session = begun(web, ELICITS).await;
    // What asks nothing is answered with JSON.
    let plain = calling(web, &session, "look", "plain").send().await;
    assert_eq!(plain.header("Content-Type"), "application/json");
    assert_eq!(said(&result(&plain))["state"], "succeeded");

    for (what, action, expected) in [
        (
            "yes",
            json!({"action": "accept", "content": {"decision": "approve"}}),
            ("succeeded", Value::Null),
        ),
        (
            "no",
            json!({"action": "decline"}),
            ("failed", json!("denied")),
        ),
    ] {
        let mut stream = EventSource::open(calling(web, &session, "charge", what)).await;
        assert_eq!(stream.head.header("Content-Type"), "text/event-stream");
        let asked = next(&mut stream).await;
        assert_eq!(asked["method"], "elicitation/create", "{asked}");
        assert!(
            asked["params"]["message"].as_str().unwrap().contains(what),
            "{asked}"
        );
        assert!(!asked.to_string().contains("token"), "{asked}");
        // An answer to a question of nobody is passed over.
        let nobodys = respond(web, &session, &json!("toolfleet-99"), &action).await;
        assert_eq!((nobodys.status, nobodys.body.len()), (202, 0));
        let taken = respond(web, &session, &asked["id"], &action).await;
        assert_eq!((taken.status, taken.body.len()), (202, 0));
        let last = next(&mut stream).await;
        assert_eq!(last["id"], 1, "{last}");
        let call = said(&last["result"]);
        assert_eq!(
            (&call["state"], &call["error"]["code"]),
            (&json!(expected.0), &expected.1),
            "{last}"
        );
        assert!(stream.next().await.is_none());
    }
    assert_eq!((witness.applied("yes"), witness.asked("no")), (1, 0));

    // Who cannot answer, or closes the form, is told who decides; the call waits on.
    for (what, response) in [
        ("error", json!({"error": {"code": -32601, "message": "no"}})),
        ("closed", json!({"result": {"action": "cancel"}})),
    ] {
        let mut stream = EventSource::open(calling(web, &session, "charge", what)).await;
        let asked = next(&mut stream).await;
        let mut response = response;
        response["jsonrpc"] = json!("2.0");
        response["id"] = asked["id"].clone();
        assert_eq!(
            responding(web, &session, &response).send().await.status,
            202
        );
        let last = next(&mut stream).await;
        assert!(
            texts(&last["result"])[0].contains("Nothing has happened yet"),
            "{last}"
        );
        let call: CallId = said(&last["result"])["id"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        fleet.until_state(call, "awaiting_client").await;
    }

    // Whose connection breaks while it is asked is asked again by the same request, about the same call.
    let mut stream = EventSource::open(calling(web, &session, "charge", "left")).await;
    let lost = next(&mut stream).await;
    drop(stream);
    let mut stream = EventSource::open(calling(web, &session, "charge", "left")).await;
    let asked = next(&mut stream).await;
    assert_ne!(asked["id"], lost["id"]);
    let yes = json!({"action": "accept", "content": {"decision": "approve"}});
    respond(web, &session, &asked["id"], &yes).await;
    let last = next(&mut stream).await;
    let call = said(&last["result"]);
    assert_eq!(
        (&call["state"], &call["replayed"]),
        (&json!("succeeded"), &json!(true)),
        "{last}"
    );
    let nobody = CallId::generate();
    let rows = "SELECT state FROM toolfleet.calls WHERE call_id <> $1 AND args->>'what' = 'left'";
    assert_eq!(fleet.rows(rows, nobody).await.len(), 1);
    // Who cancels its request while it is asked takes its call back, and hears no more.
    let mut stream = EventSource::open(calling(web, &session, "charge", "taken_back")).await;
    next(&mut stream).await;
    let taken = cancelling(web, &session, &json!(1)).send().await;
    assert_eq!((taken.status, taken.body.len()), (202, 0));
    assert!(stream.next().await.is_none());
    let rows = rows.replace("'left'", "'taken_back'");
    fleet_tests::wait::until_so("the call to be cancelled", async || {
        fleet.rows(&rows, nobody).await[0]["state"] == "cancelled"
    })
    .await;

    // A gateway that stops leaves it waiting.
    let mut stream = EventSource::open(calling(web, &session, "charge", "kept")).await;
    next(&mut stream).await;
    gateway.ask_to_stop();
    let last = next(&mut stream).await;
    let call: CallId = said(&last["result"])["id"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    gateway.until_left().await;
    assert_eq!(fleet.call(call).await["state"], "awaiting_client");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_session_is_of_one_token_and_lost_when_it_is_ended() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let ann = token(&fleet, "ann", "default", &[Scope::Call], "*").await;
    let bob = token(&fleet, "bob", "default", &[Scope::Call], "*").await;
    known(web, &bob).await;
    let begin = async |capabilities| {
        let answer = with(beginning(web, capabilities), &ann).send().await;
        answer.header("Mcp-Session-Id").to_owned()
    };
    // Who can be asked nothing needs none.
    assert_eq!(begin("{}").await, "");
    let session = begin(r#"{"roots":{}}"#).await;
    let other = begin(ELICITS).await;
    assert!(!session.is_empty() && session != other);
    let named = |request: WebRequest, session: &str| request.header("Mcp-Session-Id", session);
    let list = || legacy(web).request("1", "tools/list", "", "");
    let initialized = || {
        web.post(
            "/mcp",
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        )
        .header("Content-Type", "application/json")
        .header("MCP-Protocol-Version", LEGACY)
    };
    let response = || json!({"jsonrpc": "2.0", "id": "toolfleet-0", "result": {}});
    assert_eq!(with(named(list(), &session), &ann).send().await.status, 200);
    assert_eq!(
        with(named(initialized(), &session), &ann)
            .send()
            .await
            .status,
        202
    );
    assert_eq!(
        with(responding(web, &session, &response()), &ann)
            .send()
            .await
            .status,
        202
    );
    let level = legacy(web).request("1", "logging/setLevel", r#""level":"error""#, "");
    assert_eq!(
        result(&with(named(level, &session), &ann).send().await),
        json!({})
    );
    for (held, session) in [(&bob, session.as_str()), (&ann, "mcp-0"), (&ann, "")] {
        assert_eq!(
            error(&with(named(list(), session), held).send().await),
            (404, -32600)
        );
        assert_eq!(
            error(&with(named(initialized(), session), held).send().await),
            (404, -32600)
        );
        assert_eq!(
            error(
                &with(responding(web, session, &response()), held)
                    .send()
                    .await
            ),
            (404, -32600)
        );
    }
    // A response without a session answers nobody.
    let alone = web
        .post("/mcp", response().to_string())
        .header("Content-Type", "application/json");
    assert_eq!(error(&with(alone, &ann).send().await), (400, -32600));
    // The newest revision knows no sessions.
    let newest = modern(web).request("1", "tools/list", "", "");
    assert_eq!(
        with(named(newest, "whatever"), &ann).send().await.status,
        200
    );

    let end = |session: &str, held| {
        let request = web.request("DELETE /mcp HTTP/1.1");
        with(named(request, session), held).send()
    };
    assert_eq!(end(&session, &bob).await.status, 404);
    assert_eq!(end(&session, &ann).await.status, 204);
    assert_eq!(end(&session, &ann).await.status, 404);
    assert_eq!(
        error(&with(named(list(), &session), &ann).send().await),
        (404, -32600)
    );
    // Who begins anew may still name it.
    let again = with(named(beginning(web, ELICITS), &session), &ann)
        .send()
        .await;
    assert!(again.header("Mcp-Session-Id").starts_with("mcp-"));
    assert_eq!(with(named(list(), &other), &ann).send().await.status, 200);
    tokio::time::timeout(Duration::from_secs(20), gateway.drain())
        .await
        .unwrap();
}
