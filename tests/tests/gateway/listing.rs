//! Many calls at once, and the list of tools.

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    witness::Witness,
};
use serde_json::{Value, json};

use crate::calls::call;

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
        json!(true),
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

#[tokio::test]
async fn an_unlisted_tool_is_told_to_programs_and_called_by_its_name() {
    let witness = Witness::start().await;
    let unlisted = witness.tool("inner", "read") + "visibility: unlisted\n";
    let hidden = witness.tool("peek", "read") + "visibility: hidden\n";
    let fleet = Fleet::start(Spec::with([unlisted, hidden])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let names = |listed: Value| -> Vec<String> {
        let tools = listed["tools"].as_array().unwrap().iter();
        tools
            .map(|tool| {
                let name = tool.get("name").unwrap_or(&tool["function"]["name"]);
                name.as_str().unwrap().to_owned()
            })
            .collect()
    };
    for format in ["openai", "openai&strict=true", "anthropic", "mcp"] {
        let listed = web.get(&format!("/v1/tools?format={format}")).send().await;
        assert_eq!(names(listed.json()), ["peek"], "{format}");
        let one = web.get(&format!("/v1/tools/inner?format={format}"));
        let one = one.send().await;
        assert_eq!((one.status, one.code()), (404, "unknown_tool".to_owned()));
        assert!(one.text().contains("format=full"), "{}", one.text());
    }
    let listed = web.get("/v1/tools").send().await;
    assert_eq!(names(listed.json()), ["inner", "peek"]);
    let one = web.get("/v1/tools/inner").send().await;
    assert_eq!(one.json()["visibility"], "unlisted", "{}", one.text());
    let done = call(web, "inner", "a", &[]).await;
    assert_eq!(done.status, 200, "{}", done.text());
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn the_history_is_read_page_by_page_by_who_may_see_it() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read"), witness.tool("charge", "once")];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let mut made = Vec::new();
    for what in ["a", "b", "c"] {
        let run = ("Toolfleet-Run", "r");
        let done = call(web, "look", what, &[run]).await;
        made.push(done.header("Toolfleet-Call-Id").to_owned());
    }
    made.reverse();
    let ids = |page: &Value| -> Vec<String> {
        let calls = page["calls"].as_array().unwrap().iter();
        calls
            .map(|call| call["call_id"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = web.get("/v1/history?run=r&limit=2").send().await;
    assert_eq!(first.status, 200, "{}", first.text());
    let first = first.json();
    assert_eq!(ids(&first), made[..2]);
    let before = first["before"].as_str().unwrap();
    let second = web.get(&format!("/v1/history?run=r&limit=2&before={before}"));
    let second = second.send().await.json();
    assert_eq!(
        (ids(&second), &second["before"]),
        (made[2..].to_vec(), &Value::Null)
    );
    for (query, count) in [
        ("tool=look", 3),
        ("tool=charge", 0),
        ("state=succeeded", 3),
        ("state=failed", 0),
        ("session=s", 0),
        ("since=2020-01-01T00:00:00Z", 3),
        ("until=2020-01-01T00:00:00Z", 0),
    ] {
        let found = web.get(&format!("/v1/history?{query}")).send().await;
        assert_eq!(ids(&found.json()).len(), count, "{query}: {}", found.text());
    }
    let others = web.get("/v1/history").header("Toolfleet-Tenant", "acme");
    assert!(ids(&others.send().await.json()).is_empty());
    let story = web.get(&format!("/v1/history/{}", made[0])).send().await;
    let told = story.json();
    assert_eq!(
        told["call"]["args"],
        json!({"what": "c"}),
        "{}",
        story.text()
    );
    assert_eq!(told["attempts"].as_array().unwrap().len(), 1);
    assert!(told["events"].as_array().unwrap().len() >= 2);
    let foreign = web.get(&format!("/v1/history/{}", made[0]));
    let foreign = foreign.header("Toolfleet-Tenant", "acme").send().await;
    let nobodys = fleet::ids::CallId::generate();
    let unknown = web.get(&format!("/v1/history/{nobodys}")).send().await;
    assert_eq!(
        (unknown.status, unknown.code()),
        (404, "not_found".to_owned())
    );
    assert_eq!(
        (foreign.status, foreign.body),
        (unknown.status, unknown.body)
    );
    for query in [
        "stat=failed",
        "state=done",
        "tool=A",
        "since=yesterday",
        "limit=0",
        "limit=1001",
        "before=x",
        "run=a.b",
        "tool=a&tool=b",
    ] {
        let refused = web.get(&format!("/v1/history?{query}")).send().await;
        let told = (refused.status, refused.code());
        assert_eq!(told, (400, "invalid_arguments".to_owned()), "{query}");
    }
    gateway.drain().await;
}
