//! How tools are run, for operators: versions with their manifests, and the MCP servers.

use fleet::{
    manifest::{AnyManifest, parse_any},
    store::mcp_servers,
    tokens::Scope,
};
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::Witness,
};
use serde_json::json;

use super::browser::Browser;
use crate::tokens::{Held, is, known, token, told, with};

const PIN: &str = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// Applies a server that nobody calls, and a tool of it.
async fn apply_of_server(fleet: &Fleet) {
    let server = json!({"kind": "mcp_server", "name": "tracker", "version": 1,
        "transport": {"http": {"url": "http://127.0.0.1:9/mcp"}}});
    let Ok(AnyManifest::McpServer(server)) = parse_any(&server.to_string()) else {
        panic!("{server}")
    };
    let mut connection = fleet.database.connect().await;
    let applied = mcp_servers::apply(&mut connection, &server, "test").await;
    applied.expect("apply a server");
    let tool = json!({"name": "create_issue", "version": 1, "description": "Creates an issue in the tracker.", "effect": "once",
        "input_schema": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}, "output": "content",
        "executor": {"mcp": {"server": "tracker", "tool": "create-issue", "pin": PIN}}});
    fleet.apply(&tool.to_string()).await;
}

#[tokio::test]
async fn operators_see_what_each_version_has_changed_and_tenants_do_not() {
    let witness = Witness::start().await;
    let first = witness.tool("look", "read");
    let fleet = Fleet::start(Spec::with([first.clone()]).shipped().roles()).await;
    let second = first
        .replace("version: 1", "version: 2")
        .replace("Leaves a trace", "Leaves <b>a</b> trace")
        + "timeout: 7s\n";
    fleet.apply(&second).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let scopes = [Scope::Call, Scope::Read, Scope::Admin];
    let operator = token(&fleet, "ann", "*", &scopes, "*").await;
    let of_tenant = token(&fleet, "bob", "default", &scopes, "*").await;
    let of_others = token(&fleet, "cat", "*", &scopes, "pay_*").await;
    for held in [&operator, &of_tenant, &of_others] {
        known(web, held).await;
    }
    let path = "/v1/tools/look/versions";
    let ask = async |path: &str, held| with(web.get(path), held).send().await;
    let found = ask(path, &operator).await;
    assert_eq!(found.status, 200, "{}", found.text());
    let found = found.json();
    let numbers: Vec<_> = found["versions"].as_array().unwrap().iter().collect();
    assert_eq!([&numbers[0]["version"], &numbers[1]["version"]], [2, 1]);
    assert_eq!(numbers[0]["manifest"]["timeout"], "7s");
    assert_eq!(found["before"], json!(null));
    // A string may be empty, and its property has no description.
    let warned = found["warnings"].as_array().unwrap();
    let path_of = |warning: &serde_json::Value| warning["path"].as_str().map(ToOwned::to_owned);
    let of_what = "/input_schema/properties/what";
    assert!(
        warned
            .iter()
            .any(|one| path_of(one).is_some_and(|path| path.starts_with(of_what))),
        "{found}"
    );
    let page = ask("/v1/tools/look/versions?limit=1", &operator)
        .await
        .json();
    assert_eq!(page["before"], 2);
    let older = ask("/v1/tools/look/versions?before=2", &operator)
        .await
        .json();
    assert_eq!(
        (&older["versions"][0]["version"], &older["warnings"]),
        (&json!(1), &json!([]))
    );
    // A chosen tenant makes no difference: tools are the fleet's.
    let chosen = with(web.get(path), &operator).header("Toolfleet-Tenant", "acme");
    assert_eq!(chosen.send().await.status, 200);
    for (path, held, refusal) in [
        (path, &of_tenant, is(403, "forbidden")),
        ("/v1/servers", &of_tenant, is(403, "forbidden")),
        (path, &of_others, is(403, "forbidden")),
        ("/v1/servers", &of_others, is(403, "forbidden")),
        (
            "/v1/tools/none/versions",
            &operator,
            is(404, "unknown_tool"),
        ),
        (
            "/v1/tools/Look/versions",
            &operator,
            is(400, "invalid_tool_name"),
        ),
        (
            "/v1/tools/look/versions?limit=0",
            &operator,
            is(400, "invalid_arguments"),
        ),
    ] {
        assert_eq!(told(&ask(path, held).await), refusal, "{path}");
    }
    assert_eq!(
        ask("/v1/servers", &operator).await.json(),
        json!({"servers": []})
    );
    apply_of_server(&fleet).await;
    let servers = ask("/v1/servers", &operator).await.json();
    let tracker = &servers["servers"][0];
    assert_eq!(
        (&tracker["server"], &tracker["transport"]),
        (&json!("tracker"), &json!("http"))
    );
    let its = json!([{"tool": "create_issue", "version": 1, "named": "create-issue", "pin": PIN}]);
    assert_eq!(tracker["tools"], its, "{servers}");

    let shown = async |held: &Held| {
        let browser = Browser::signed_in(web, &held.text).await;
        browser.page("/console/tools/look").await
    };
    let of_operator = shown(&operator).await;
    for part in [
        "id=\"lint\"",
        "<code>/timeout</code>",
        "&quot;7s&quot;",
        "<code>/description</code>",
        "&lt;b&gt;a",
    ] {
        assert!(of_operator.contains(part), "no {part} in {of_operator}");
    }
    let browser = Browser::signed_in(web, &operator.text).await;
    until_so("the door to have the new tool", async || {
        browser
            .page("/console/tools")
            .await
            .contains("MCP: <code>tracker</code> (pinned)")
    })
    .await;
    assert!(
        browser
            .page("/console/tools/create_issue")
            .await
            .contains(PIN)
    );
    let of_tenant = shown(&of_tenant).await;
    assert!(!of_tenant.contains("id=\"versions\"") && of_tenant.contains("id=\"playground\""));
    gateway.drain().await;
    invariants::hold(&fleet, &witness).await;
}
