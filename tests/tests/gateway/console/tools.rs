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
    witness::{Reply, Witness},
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

#[tokio::test]
async fn a_token_of_some_tools_sees_its_calls_behind_any_number_of_others() {
    let witness = Witness::start().await;
    let tools = ["pay_out", "payrout"].map(|name| {
        let tool = witness.tool(name, "once");
        format!("{tool}timeout: 300ms\n")
    });
    let agreed = format!(
        "{}approval: {{by: operator}}\n",
        witness.tool("pay_back", "once")
    );
    let fleet = Fleet::start(
        Spec::with(tools.into_iter().chain([agreed]))
            .shipped()
            .roles(),
    )
    .await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let all = token(&fleet, "ann", "default", Scope::ALL, "*").await;
    // What a pattern of SQL would take for any letter is one.
    let some = token(&fleet, "bob", "default", Scope::ALL, "pay_*").await;
    for held in [&all, &some] {
        known(web, held).await;
    }
    let make = async |tool: &str, key: &str, wait: &str| {
        witness.always(key, Reply::DoneThenHang);
        let call = web.post(
            &format!("/v1/call/{tool}"),
            json!({"what": key}).to_string(),
        );
        let call = call.header("Idempotency-Key", key).header("Prefer", wait);
        with(call, &all).send().await
    };
    for (tool, key) in [("payrout", "a"), ("payrout", "b"), ("pay_out", "c")] {
        let answer = make(tool, key, "wait=20").await.json();
        assert_eq!(answer["state"], "in_doubt", "{answer}");
    }
    make("pay_back", "d", "respond-async").await;
    let first = async |path: &str, held| with(web.get(path), held).send().await.json();
    let doubts = first("/v1/doubts?limit=1", &some).await;
    assert_eq!(
        (&doubts["doubts"][0]["tool"], &doubts["more"]),
        (&json!("pay_out"), &json!(true))
    );
    let doubts = first("/v1/doubts", &some).await;
    assert_eq!(
        doubts["doubts"].as_array().map(Vec::len),
        Some(1),
        "{doubts}"
    );
    assert_eq!(
        first("/v1/doubts?limit=1", &all).await["doubts"][0]["tool"],
        "payrout"
    );
    until_so("the call to wait", async || {
        first("/v1/waiting", &some).await["waiting"][0]["tool"] == "pay_back"
    })
    .await;
    gateway.drain().await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn who_looks_after_all_tenants_sees_and_settles_what_is_in_doubt_of_any() {
    let witness = Witness::start().await;
    let tool = witness.tool("charge", "once") + "timeout: 300ms\n";
    let fleet = Fleet::start(Spec::with([tool]).shipped().roles()).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let operator = token(
        &fleet,
        "ann",
        "*",
        &[Scope::Read, Scope::Settle, Scope::Call],
        "*",
    )
    .await;
    let admin = token(&fleet, "ada", "*", &[Scope::Read, Scope::Admin], "*").await;
    let of_tenant = token(&fleet, "bob", "beta", Scope::ALL, "*").await;
    for held in [&operator, &admin, &of_tenant] {
        known(web, held).await;
    }
    witness.always("a", Reply::DoneThenHang);
    let made = web
        .post("/v1/call/charge", r#"{"what":"a"}"#)
        .header("Toolfleet-Tenant", "acme");
    let made = with(made.header("Idempotency-Key", "a"), &operator)
        .send()
        .await
        .json();
    assert_eq!(made["state"], "in_doubt", "{made}");
    let call = made["call_id"].as_str().unwrap();
    let ask = async |path: &str, held| with(web.get(path), held).send().await;
    let of_all = async |path: &str, held| {
        let all = with(web.get(path), held).header("Toolfleet-Tenant", "*");
        all.send().await
    };
    for path in ["/v1/doubts", "/v1/history", "/v1/overview"] {
        let (all, other) = (
            of_all(path, &operator).await.json(),
            ask(path, &of_tenant).await.json(),
        );
        let text = if path == "/v1/overview" {
            "in_doubt"
        } else {
            call
        };
        assert!(all.to_string().contains(text), "{path}: {all}");
        assert!(!other.to_string().contains(text), "{path}: {other}");
    }
    let path = format!("/v1/history/{call}");
    assert_eq!(
        of_all(&path, &operator).await.json()["call"]["tenant"],
        "acme"
    );
    assert_eq!(told(&ask(&path, &of_tenant).await), is(404, "not_found"));
    // Without that it is of `default`, and nobody else reaches further than its token.
    assert_eq!(told(&ask(&path, &operator).await), is(404, "not_found"));
    assert_eq!(
        told(&of_all(&path, &of_tenant).await),
        is(400, "invalid_tenant")
    );
    assert_eq!(
        told(&of_all("/v1/tools", &operator).await),
        is(400, "invalid_tenant")
    );
    // From the inbox of all, on the subject of the call's own tenant.
    let browser = Browser::signed_in(web, &operator.text).await;
    let inbox = browser.page("/console/doubts").await;
    let settle = format!("/console/calls/{call}/settle?tenant=acme");
    assert!(
        inbox.contains(&settle) && inbox.contains("<code>acme</code>"),
        "{inbox}"
    );
    let page = browser.page(&format!("/console/calls/{call}")).await;
    assert!(page.contains(&settle), "{page}");
    let verdict = [("outcome", "applied"), ("note", "the bank has it")];
    let settled = browser.send(&settle, &verdict).await;
    assert_eq!(settled.status, 303, "{}", settled.text());
    assert!(
        browser
            .page(settled.header("Location"))
            .await
            .contains("class=\"done\"")
    );
    // The same verdict by another is told with who was first.
    let again = browser.send(&settle, &verdict).await;
    assert!(
        browser
            .page(again.header("Location"))
            .await
            .contains("<strong>ann")
    );
    assert!(browser.page("/console").await.contains("<code>acme</code>"));

    // What operators ask servers is theirs.
    let look = web
        .post("/v1/call/charge", r#"{"what":"b"}"#)
        .header("Toolfleet-Tenant", "_operator");
    let refused = with(look, &operator).send().await;
    assert_eq!(told(&refused), is(403, "forbidden"));
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
