//! Whose calls stand in the inboxes: those of the tools of a token, and of all tenants for who looks after them.

use fleet::tokens::Scope;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::json;

use super::browser::Browser;
use crate::tokens::{is, known, token, told, with};

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
    let admin = token(
        &fleet,
        "ada",
        "*",
        &[Scope::Read, Scope::Admin, Scope::Call],
        "*",
    )
    .await;
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

    // Calls of operators are theirs: who looks at all tenants sees them with `admin` alone.
    witness.always("b", Reply::DoneThenHang);
    let own = web
        .post("/v1/call/charge", r#"{"what":"b"}"#)
        .header("Toolfleet-Tenant", "_operator")
        .header("Idempotency-Key", "b");
    let own = with(own, &admin).send().await.json();
    assert_eq!(own["state"], "in_doubt", "{own}");
    let own = own["call_id"].as_str().unwrap();
    let story = format!("/v1/history/{own}");
    // Nor does the place of a next page tell of them, or that a text is in one.
    for path in ["/v1/history?limit=1", "/v1/history?limit=1&text=b"] {
        let hidden = of_all(path, &operator).await.json();
        assert!(!hidden.to_string().contains(own), "{path}: {hidden}");
    }
    let counted = of_all("/v1/overview", &operator).await.json();
    assert_eq!(counted["open"]["in_doubt"], json!(null), "{counted}");
    let counted = of_all("/v1/overview", &admin).await.json();
    assert_eq!(counted["open"]["in_doubt"], 1, "{counted}");
    for path in ["/v1/doubts", "/v1/history", &story] {
        let seen = of_all(path, &admin).await.text();
        let hidden = of_all(path, &operator).await.text();
        assert!(seen.contains(own), "{path}: {seen}");
        assert!(!hidden.contains(own), "{path}: {hidden}");
    }
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
