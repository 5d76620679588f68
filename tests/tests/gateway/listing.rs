//! Many calls at once, and the list of tools.

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    witness::Witness,
};
use serde_json::json;

#[tokio::test]
async fn a_batch_is_answered_as_over_nats_each_call_at_its_place() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read"), witness.tool("charge", "once")];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let batch = json!({"calls": [
        {"tool": "charge", "args": {"what": "a"}, "idempotency_key": "a"},
        {"tool": "charge", "args": {"what": "b"}},
        {"tool": "nothing", "args": {}},
        {"tool": "look", "args": {"what": "c"}, "meta": {"x": 1}},
    ]});
    let answer = web
        .post("/v1/batch", batch.to_string())
        .header("Toolfleet-Run", "r")
        .send()
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("Toolfleet-Answer"), "door");
    let items = answer.json()["items"].clone();
    let states: Vec<&str> = items
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["queued", "refused", "refused", "queued"]);
    assert_eq!(items[1]["error"]["code"], "missing_idempotency_key");
    for place in [0, 3] {
        let id = items[place]["call_id"].as_str().unwrap();
        let ended = web.get(&format!("/v1/calls/{id}?wait_ms=20000"));
        assert_eq!(ended.send().await.status, 200);
    }
    for (body, code, status) in [
        (r#"{"calls":[]}"#.to_owned(), "invalid_arguments", 400),
        ("{".to_owned(), "truncated_arguments", 400),
        (
            json!({"calls": [{"tool": "look", "args": {"what": "x"}, "meta": {"principal": "root"}}]})
                .to_string(),
            "header_invalid",
            400,
        ),
    ] {
        let refused = web.post("/v1/batch", body.clone()).send().await;
        assert_eq!((refused.status, refused.code()), (status, code.to_owned()), "{body}");
    }
    assert_eq!((witness.asked("a"), witness.asked("x")), (1, 0));
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn tools_are_listed_as_over_nats_in_every_format() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read"), witness.tool("charge", "once")];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    for format in ["openai", "anthropic", "mcp", "full"] {
        let listed = web.get(&format!("/v1/tools?format={format}")).send().await;
        let over_nats = fleet
            .ask("toolfleet.v1.default.tools", &json!({ "format": format }))
            .await;
        assert_eq!(
            (listed.status, &listed.body[..]),
            (200, &over_nats.bytes[..])
        );
        let one = web.get(&format!("/v1/tools/look?format={format}"));
        let one = one.send().await.json();
        let all = over_nats["tools"].as_array().unwrap();
        assert!(all.contains(&one), "{format}: {one}");
    }
    let strict = web.get("/v1/tools?format=openai&strict=true").send().await;
    assert_eq!(
        strict.json()["tools"][0]["function"]["strict"],
        json!(false),
        "{}",
        strict.text()
    );
    for (path, status, code) in [
        ("/v1/tools?format=xml", 400, "invalid_arguments"),
        ("/v1/tools?fromat=mcp", 400, "invalid_arguments"),
        ("/v1/tools?format=mcp&strict=true", 400, "invalid_arguments"),
        ("/v1/tools/nothing", 404, "unknown_tool"),
        ("/v1/tools/a%2Fb", 400, "invalid_tool_name"),
        ("/v1/tools/a%00", 400, "invalid_tool_name"),
        ("/v1/tools/%ff", 400, "invalid_tool_name"),
        ("/v1/tools/a/b", 404, "not_found"),
    ] {
        let refused = web.get(path).send().await;
        assert_eq!(
            (refused.status, refused.code()),
            (status, code.to_owned()),
            "{path}"
        );
    }
    gateway.drain().await;
}
