//! What looks at MCP servers is for operators: every way in, for tenants and for them. No server is needed, for what is asked of one that
//! there is not has been asked.

use fleet::{mcp::OPERATORS, tokens::Scope};
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::Witness,
};
use serde_json::{Value, json};

use crate::{
    mcp::{error, legacy, modern, result},
    tokens::{is, known, token, told, with},
};

const ASKED: &str = r#"{"server":"none"}"#;

fn names(listing: &Value) -> Vec<&str> {
    let tools = listing["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap()).collect()
}

/// A fleet that has it.
async fn fleet(witness: &Witness) -> Fleet {
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let looks = worker::discoverer_of(&"default".parse().unwrap());
    fleet.apply(&serde_json::to_string(&looks).unwrap()).await;
    until_so("it to be known", async || {
        let listing = fleet.ask("toolfleet.v1._operator.tools", &json!({})).await;
        names(&listing).contains(&"mcp_discover")
    })
    .await;
    fleet
}

#[tokio::test]
async fn over_nats_only_the_tenant_of_operators_looks_at_servers() {
    let witness = Witness::start().await;
    let fleet = fleet(&witness).await;
    let asked: Value = serde_json::from_str(ASKED).unwrap();
    let refused = fleet.submit("mcp_discover", &asked).wait().await;
    assert_eq!(
        (refused["state"].as_str(), refused.code()),
        (Some("refused"), "forbidden")
    );
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("toolfleet mcp discover"), "{message}");
    let other_queue = fleet.submit("mcp_discover_eu_1", &asked).wait().await;
    assert_eq!(
        other_queue.code(),
        "forbidden",
        "there is none, and it says nothing of it"
    );
    let checked = fleet
        .ask("toolfleet.v1.default.check.mcp_discover", &asked)
        .await;
    assert_eq!(checked.code(), "forbidden", "{}", *checked);
    let batch = json!({"calls": [{"tool": "mcp_discover", "args": asked}, {"tool": "look", "args": {"what": "a"}}]});
    let batch = fleet.ask("toolfleet.v1.default.batch", &batch).await;
    assert!(batch.to_string().contains("forbidden"), "{}", *batch);
    for format in ["full", "mcp", "openai"] {
        let listing = json!({ "format": format });
        let listing = fleet.ask("toolfleet.v1.default.tools", &listing).await;
        assert!(!listing.to_string().contains("mcp_discover"), "{format}");
    }
    let ran = fleet.submit("mcp_discover", &asked).tenant(OPERATORS);
    let ran = ran.wait().await;
    assert_eq!(
        (ran["state"].as_str(), ran["outcome"].as_str()),
        (Some("failed"), Some("system_error")),
        "{}",
        *ran
    );
    assert!(
        ran.to_string()
            .contains("does not know the MCP server none")
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn over_http_a_token_needs_to_be_for_controls_and_over_mcp_there_is_none() {
    let witness = Witness::start().await;
    let fleet = fleet(&witness).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let acme = token(&fleet, "acme", "acme", Scope::ALL, "*").await;
    let caller = token(&fleet, "caller", "*", &[Scope::Call, Scope::Read], "*").await;
    let ann = token(
        &fleet,
        "ann",
        "*",
        &[Scope::Call, Scope::Read, Scope::Admin],
        "*",
    )
    .await;
    for held in [&acme, &caller, &ann] {
        known(web, held).await;
    }
    let call = || web.post("/v1/call/mcp_discover", ASKED);
    for held in [&acme, &caller, &ann] {
        let answer = with(call(), held).send().await;
        assert_eq!(told(&answer), is(403, "forbidden"), "{}", answer.text());
        assert!(answer.text().contains("toolfleet mcp discover"));
        let check = web.post("/v1/tools/mcp_discover/check", ASKED);
        let check = with(check, held).send().await;
        assert_eq!(told(&check), is(403, "forbidden"), "{}", check.text());
        let listing = with(web.get("/v1/tools"), held).send().await;
        assert_eq!(names(&listing.json()), ["look"]);
        let one = with(web.get("/v1/tools/mcp_discover"), held).send().await;
        assert_eq!(one.status, 404, "{}", one.text());
    }
    let as_operators =
        |request: fleet_tests::web::WebRequest| request.header("Toolfleet-Tenant", OPERATORS);
    for held in [&acme, &caller] {
        for request in [call(), web.get("/v1/tools"), web.get("/v1/history")] {
            let answer = with(as_operators(request), held).send().await;
            assert_eq!(told(&answer), is(403, "forbidden"), "{}", answer.text());
        }
    }
    let ran = with(as_operators(call()), &ann).send().await;
    assert_eq!(ran.status, 200, "{}", ran.text());
    assert!(
        ran.text().contains("does not know the MCP server none"),
        "{}",
        ran.text()
    );

    for client in [modern(web), legacy(web)] {
        for held in [&acme, &ann] {
            for as_whom in [false, true] {
                if as_whom && held.id() == acme.id() {
                    continue;
                }
                let asks = |request| match as_whom {
                    true => with(as_operators(request), held),
                    false => with(request, held),
                };
                let called = asks(client.calling("mcp_discover", ASKED, "")).send().await;
                assert_eq!(error(&called), (200, -32_602), "{}", called.text());
                let listed = asks(client.request("1", "tools/list", "", "")).send().await;
                assert!(!result(&listed).to_string().contains("mcp_discover"));
            }
        }
    }
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
