//! Who may do what over MCP: a token on each method, its tools, and its tenant.

use fleet::{ids::CallId, tokens::Scope};
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    web::{Web, WebRequest},
    witness::Witness,
};
use serde_json::json;

use super::{error, legacy, modern, result, said};
use crate::tokens::{Held, is, known, token, told, with};

#[tokio::test]
async fn each_method_wants_a_token_and_a_call_one_that_may_call() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let scopes = [
        Scope::Call,
        Scope::Read,
        Scope::Approve,
        Scope::Settle,
        Scope::Admin,
    ];
    let requests = || -> Vec<(&str, WebRequest, &[Scope])> {
        let lookers: &[Scope] = &[Scope::Call, Scope::Read];
        let get = format!(r#"{{"call_id":"{}"}}"#, CallId::generate());
        vec![
            (
                "discover",
                modern(web).request("1", "server/discover", "", ""),
                lookers,
            ),
            (
                "list",
                modern(web).request("1", "tools/list", "", ""),
                lookers,
            ),
            (
                "list",
                legacy(web).request("1", "tools/list", "", ""),
                lookers,
            ),
            (
                "initialize",
                legacy(web).request("1", "initialize", r#""protocolVersion":"2025-11-25""#, ""),
                lookers,
            ),
            ("ping", legacy(web).request("1", "ping", "", ""), lookers),
            ("unknown", legacy(web).request("1", "x", "", ""), lookers),
            (
                "get",
                modern(web).calling("toolfleet_get", &get, ""),
                lookers,
            ),
            (
                "call",
                modern(web).calling("look", r#"{"what":"a"}"#, ""),
                &[Scope::Call],
            ),
            (
                "call",
                legacy(web).calling("look", r#"{"what":"a"}"#, ""),
                &[Scope::Call],
            ),
            (
                "nothing",
                modern(web).calling("nothing", "{}", ""),
                &[Scope::Call],
            ),
        ]
    };
    for (name, request, _) in requests() {
        let nobody = request.clone().send().await;
        assert_eq!(told(&nobody), is(401, "unauthenticated"), "{name}");
        assert!(nobody.header("WWW-Authenticate").starts_with("Bearer"));
        let wrong = request
            .header("Authorization", "Bearer tf_x_y")
            .send()
            .await;
        assert!([401, 429].contains(&wrong.status), "{name}");
    }
    for scope in scopes {
        let held = token(&fleet, scope.as_str(), "default", &[scope], "*").await;
        known(web, &held).await;
        for (name, request, may) in requests() {
            let answer = with(request, &held).send().await;
            let is_forbidden = told(&answer) == is(403, "forbidden");
            assert_eq!(
                is_forbidden,
                !may.contains(&scope),
                "{scope} {name}: {}",
                answer.text()
            );
        }
        let elsewhere = modern(web).request("1", "tools/list", "", "");
        let elsewhere = with(elsewhere, &held).header("Toolfleet-Tenant", "beta");
        assert_eq!(elsewhere.send().await.status, 403);
    }
    assert_eq!(witness.asked("a"), 2);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

/// The tools that this token is shown, the same in both revisions.
async fn names(web: Web, held: &Held) -> Vec<String> {
    let mut listed = Vec::new();
    for client in [modern(web), legacy(web)] {
        let answer = with(client.request("1", "tools/list", "", ""), held);
        let tools = result(&answer.send().await)["tools"].clone();
        let tools = tools.as_array().unwrap().iter();
        let names = tools.map(|tool| tool["name"].as_str().unwrap().to_owned());
        listed.push(names.collect::<Vec<_>>());
    }
    assert_eq!(listed[0], listed[1]);
    listed.remove(0)
}

#[tokio::test]
async fn a_token_is_shown_the_tools_that_it_can_call_and_no_others() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read"), witness.tool("charge", "once")];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let all = ["charge", "look", "toolfleet_get"];
    for (name, scopes, tools, shown) in [
        ("reader", &[Scope::Read][..], "*", &all[2..]),
        ("caller", &[Scope::Call][..], "*", &all[..]),
        ("both", &[Scope::Call, Scope::Read][..], "*", &all[..]),
        ("looker", &[Scope::Call][..], "look", &all[1..]),
    ] {
        let held = token(&fleet, name, "default", scopes, tools).await;
        known(web, &held).await;
        assert_eq!(names(web, &held).await, shown, "{name}");
        for tool in ["look", "charge"] {
            let request = modern(web).calling(tool, r#"{"what":"a"}"#, "");
            let answer = with(request, &held).send().await;
            let is_called = answer.status == 200 && answer.json()["error"].is_null();
            assert_eq!(is_called, shown.contains(&tool), "{name} {tool}");
        }
    }
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn another_tools_and_another_tenants_call_is_one_that_does_not_exist() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read"), witness.tool("charge", "once")];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let ann = token(&fleet, "ann", "acme", &[Scope::Call], "*").await;
    let bob = token(&fleet, "bob", "beta", Scope::ALL, "*").await;
    let looker = token(
        &fleet,
        "looker",
        "acme",
        &[Scope::Call, Scope::Read],
        "look",
    )
    .await;
    for held in [&ann, &bob, &looker] {
        known(web, held).await;
    }
    let client = modern(web);
    let done = with(client.calling("charge", r#"{"what":"a"}"#, ""), &ann)
        .send()
        .await;
    let id = said(&result(&done))["id"].as_str().unwrap().to_owned();
    let get = async |id: &str, held| {
        let arguments = json!({ "call_id": id, "wait_s": 1 }).to_string();
        let answer = with(client.calling("toolfleet_get", &arguments, ""), held)
            .send()
            .await;
        (answer.status, answer.body)
    };
    let nobodys = CallId::generate().to_string();
    let unknown = get(&nobodys, &bob).await;
    assert!(String::from_utf8_lossy(&unknown.1).contains("not_found"));
    assert_eq!(get(&id, &bob).await, unknown);
    assert_eq!(get(&id, &looker).await, get(&nobodys, &looker).await);
    assert_ne!(get(&id, &ann).await, unknown);

    // A tool that the token is not for is listed nowhere, and called as one that there is not.
    assert_eq!(names(web, &looker).await, ["look", "toolfleet_get"]);
    let foreign = with(client.calling("charge", r#"{"what":"b"}"#, ""), &looker)
        .send()
        .await;
    assert_eq!(error(&foreign), (200, -32_602));
    let nothing = with(client.calling("nothing", r#"{"what":"b"}"#, ""), &ann)
        .send()
        .await;
    let same = |text: String| text.replace("nothing", "charge");
    assert_eq!(foreign.text(), same(nothing.text()));
    assert_eq!(witness.asked("b"), 0);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
