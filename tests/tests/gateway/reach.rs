//! What a token of some tools does not reach by other ways: answers of other tools in its arguments, controls of other tools, and what is
//! the turns' own.

use fleet::{ids::CallId, tokens::Scope};
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

use crate::tokens::{is, known, token, told, with};

#[tokio::test]
async fn a_token_of_some_tools_does_not_reach_the_others_through_answers_and_controls() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read"), witness.tool("secret", "read")];
    let fleet = Fleet::start(Spec::with(tools).shipped().roles()).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let scopes = [Scope::Call, Scope::Read, Scope::Admin];
    let all = token(&fleet, "ann", "default", &scopes, "*").await;
    let some = token(&fleet, "bob", "default", &scopes, "loo*").await;
    for held in [&all, &some] {
        known(web, held).await;
    }
    let made = with(web.post("/v1/call/secret", r#"{"what":"a"}"#), &all);
    let made = made.send().await.json();
    assert_eq!(made["state"], "succeeded", "{made}");
    let secrets = made["call_id"].as_str().unwrap();

    let nobodys = CallId::generate().to_string();
    let refers = |id: &str| json!({"what": {"$result": id, "path": "/nowhere"}});
    let ways = |id: &str| {
        let args = refers(id);
        [
            ("/v1/call/look", args.clone()),
            ("/v1/tools/look/check", args.clone()),
            (
                "/v1/batch",
                json!({"calls": [{"tool": "look", "args": args}]}),
            ),
            (
                "/v1/turns",
                json!({"calls": [{"tool": "look", "args": args}]}),
            ),
        ]
    };
    for ((path, foreign), (_, unknown)) in ways(secrets).into_iter().zip(ways(&nobodys)) {
        let ask = async |body: &Value, held| {
            let request = web.post(path, body.to_string());
            let request = request.header("Idempotency-Key", &nobodys);
            with(request, held).send().await
        };
        let foreign_told = ask(&foreign, &some).await;
        assert_eq!(told(&foreign_told), is(400, "invalid_arguments"), "{path}");
        let text = foreign_told.text();
        assert!(text.contains("no such result"), "{path}: {text}");
        assert_eq!(text, ask(&unknown, &some).await.text(), "{path}");
        if path != "/v1/turns" {
            let text = ask(&foreign, &all).await.text();
            assert!(!text.contains("no such result"), "{path}: {text}");
        }
    }
    // Nor through the messages of a conversation.
    for id in [secrets, &nobodys] {
        let goes_on = json!({"what": "a", "messages": [{"$call": id}, {"role": "user"}]});
        let refused = with(web.post("/v1/call/look", goes_on.to_string()), &some);
        let refused = refused.send().await;
        assert_eq!(told(&refused), is(400, "invalid_arguments"));
        assert!(refused.text().contains("no such result"));
    }
    // Of its own tools it does.
    let own = with(web.post("/v1/call/look", r#"{"what":"a"}"#), &some);
    let own = own.send().await.json();
    let refers = refers(own["call_id"].as_str().unwrap());
    let leads = with(web.post("/v1/call/look", refers.to_string()), &some);
    let text = leads.send().await.text();
    assert!(text.contains("leads nowhere"), "{text}");

    let control = async |wish: Value| {
        let request = web.post("/v1/control", wish.to_string());
        told(&with(request, &some).send().await)
    };
    for wish in [
        json!({"do": "pause", "tool": "secret", "tenant": "default", "note": "n"}),
        json!({"do": "pause", "tenant": "default", "note": "n"}),
        json!({"do": "purge", "tool": "secret", "note": "n"}),
        json!({"do": "unset", "control_id": 1, "note": "n"}),
        json!({"do": "resume", "control_id": 1, "tool": "look", "note": "n"}),
        json!({"do": "list"}),
    ] {
        assert_eq!(control(wish.clone()).await, is(403, "forbidden"), "{wish}");
    }
    let own = json!({"do": "pause", "tool": "look", "tenant": "default", "note": "n"});
    assert_eq!(control(own).await.0, 200);
    gateway.drain().await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn keys_and_sessions_of_the_gateways_own_are_its_alone() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "none"]).await;
    // Of a turn, and of a request over MCP: who could take it would have another's write refused.
    for begins in ["turn_", "mcp-"] {
        let name = format!("{begins}{}", "0".repeat(32));
        for header in ["Idempotency-Key", "Toolfleet-Session"] {
            let call = web.post("/v1/call/look", r#"{"what":"a"}"#);
            let call = call.header(header, &name).send().await;
            assert_eq!(told(&call), is(400, "header_invalid"), "{header}");
        }
        for field in ["idempotency_key", "session"] {
            let batch = json!({"calls": [{"tool": "look", "args": {"what": "a"}, field: name}]});
            let batch = web.post("/v1/batch", batch.to_string()).send().await;
            assert_eq!(told(&batch), is(400, "header_invalid"), "{field}");
        }
    }
    gateway.drain().await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn the_history_does_not_tell_the_id_of_an_attempt_that_runs() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "none"]).await;
    witness.always("slow", Reply::DoneWhenReleased);
    let call = web.post("/v1/call/look", r#"{"what":"slow"}"#);
    let call = call.header("Prefer", "respond-async").send().await.json();
    let id: CallId = call["call_id"].as_str().unwrap().parse().unwrap();
    let path = format!("/v1/history/{id}");
    until_so("it to run", async || {
        let story = web.get(&path).send().await.json();
        story["call"]["state"] == "running"
    })
    .await;
    let story = web.get(&path).send().await.json();
    let events = story["events"].as_array().unwrap();
    assert!(events.iter().any(|event| event["to_state"] == "running"));
    let rows = events.iter().chain(story["attempts"].as_array().unwrap());
    for row in rows {
        assert_eq!(row["attempt_id"], json!(null), "{row}");
    }
    witness.release("slow");
    fleet.until_state(id, "succeeded").await;
    gateway.drain().await;
    invariants::hold(&fleet, &witness).await;
}
