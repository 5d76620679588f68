//! Who asks: tokens, what each allows, and what becomes of one that is revoked.

use std::time::{Duration, Instant};

use fleet::{
    ids::CallId,
    store::tokens::{self, NewToken, TokenRevoked},
    tokens::{NewSecret, Scope},
};
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    web::{Web, WebAnswer, WebRequest},
    witness::{Reply, Witness},
};
use serde_json::json;

/// A token of this name.
pub(crate) struct Held {
    pub(crate) id: String,
    pub(crate) text: String,
}

impl Held {
    /// Its id.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }
}

pub(crate) async fn token(
    fleet: &Fleet,
    name: &str,
    tenant: &str,
    scopes: &[Scope],
    tool: &str,
) -> Held {
    token_for(fleet, name, tenant, scopes, tool, None).await
}

/// The same for so many milliseconds.
pub(crate) async fn token_for(
    fleet: &Fleet,
    name: &str,
    tenant: &str,
    scopes: &[Scope],
    tool: &str,
    for_ms: Option<i64>,
) -> Held {
    let secret = NewSecret::generate();
    let tenant = (tenant != "*").then(|| tenant.parse().unwrap());
    let new = NewToken {
        secret: &secret,
        name,
        tenant: tenant.as_ref(),
        scopes,
        tools: &[tool.to_owned()],
        actor: "ann",
        note: "a test",
        for_ms,
    };
    let mut connection = fleet.database.connect().await;
    tokens::create(&mut connection, &new).await.unwrap();
    fleet.ring().await;
    Held {
        id: secret.id().to_owned(),
        text: secret.expose().to_owned(),
    }
}

pub(crate) fn with(request: WebRequest, token: &Held) -> WebRequest {
    request.header("Authorization", &format!("Bearer {}", token.text))
}

/// Waits until a gateway has read a token.
pub(crate) async fn known(web: Web, token: &Held) {
    until_so("the token to be known", async || {
        let status = with(web.get("/v1/tools"), token).send().await.status;
        ![401, 429, 503].contains(&status)
    })
    .await;
}

pub(crate) fn told(answer: &WebAnswer) -> (u16, String) {
    (answer.status, answer.code())
}

pub(crate) fn is(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

/// Every endpoint that wants to know who asks, with a body that it would take.
pub(crate) fn endpoints(call: &str) -> Vec<(&'static str, String, String, &'static [Scope])> {
    let of = |verb: &str| format!("/v1/calls/{call}/{verb}");
    let decision = json!({"args_hash": "x", "note": "n"}).to_string();
    vec![
        (
            "POST",
            "/v1/call/look".into(),
            r#"{"what":"a"}"#.into(),
            &[Scope::Call],
        ),
        (
            "POST",
            "/v1/batch".into(),
            r#"{"calls":[{"tool":"look","args":{"what":"a"}}]}"#.into(),
            &[Scope::Call],
        ),
        (
            "GET",
            format!("/v1/calls/{call}"),
            String::new(),
            &[Scope::Call, Scope::Read],
        ),
        (
            "GET",
            "/v1/calls?tool=look&idempotency_key=k".into(),
            String::new(),
            &[Scope::Call, Scope::Read],
        ),
        ("POST", of("cancel"), "{}".into(), &[Scope::Call]),
        (
            "POST",
            of("settle"),
            json!({"outcome": "applied", "note": "n"}).to_string(),
            &[Scope::Settle],
        ),
        (
            "POST",
            of("output"),
            json!({"token": "x.y", "result": 1}).to_string(),
            &[Scope::Call],
        ),
        ("POST", of("approve"), decision.clone(), &[Scope::Approve]),
        ("POST", of("deny"), decision, &[Scope::Approve]),
        (
            "POST",
            // It lacks a key, which is looked at behind the scope.
            "/v1/turns".into(),
            r#"{"calls":[{"tool":"look","args":{"what":"a"}}]}"#.into(),
            &[Scope::Call],
        ),
        (
            "GET",
            format!("/v1/turns/turn_{}", "0".repeat(32)),
            String::new(),
            &[Scope::Call, Scope::Read],
        ),
        (
            "GET",
            format!("/v1/turns/turn_{}/events", "0".repeat(32)),
            String::new(),
            &[Scope::Call, Scope::Read],
        ),
        (
            "POST",
            format!("/v1/turns/turn_{}/outputs", "0".repeat(32)),
            json!({"outputs": [{"call_id": call, "result": 1}]}).to_string(),
            &[Scope::Call],
        ),
        (
            "GET",
            // Refused for another reason than its scope: a stream does not end.
            "/v1/sessions/s/events?style=none".into(),
            String::new(),
            &[Scope::Read],
        ),
        (
            "POST",
            // It names no model, which is looked at behind the scope.
            "/v1/chat/completions".into(),
            "{}".into(),
            &[Scope::Call],
        ),
        (
            "POST",
            "/v1/responses".into(),
            "{}".into(),
            &[Scope::Call],
        ),
        (
            "POST",
            "/v1/messages".into(),
            "{}".into(),
            &[Scope::Call],
        ),
        ("POST", "/v1/files".into(), "a".into(), &[Scope::Call]),
        (
            "GET",
            "/v1/files/0193a1b2-c3d4-7e5f-8a6b-0123456789ab".into(),
            String::new(),
            &[Scope::Call, Scope::Read],
        ),
        (
            "DELETE",
            "/v1/files/0193a1b2-c3d4-7e5f-8a6b-0123456789ab".into(),
            String::new(),
            &[Scope::Call],
        ),
        (
            "GET",
            "/v1/tools".into(),
            String::new(),
            &[Scope::Call, Scope::Read],
        ),
        (
            "GET",
            "/v1/tools/look".into(),
            String::new(),
            &[Scope::Call, Scope::Read],
        ),
        (
            "POST",
            "/v1/tools/look/check".into(),
            r#"{"what":"a"}"#.into(),
            &[Scope::Call, Scope::Read],
        ),
        (
            "POST",
            "/mcp".into(),
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#.into(),
            &[Scope::Call, Scope::Read],
        ),
        (
            "DELETE",
            "/mcp".into(),
            String::new(),
            &[Scope::Call, Scope::Read],
        ),
        (
            "GET",
            "/v1/openapi.json?tools=1".into(),
            String::new(),
            &[Scope::Call, Scope::Read],
        ),
        (
            "GET",
            "/v1/history?tool=look".into(),
            String::new(),
            &[Scope::Read],
        ),
        (
            "GET",
            format!("/v1/history/{call}"),
            String::new(),
            &[Scope::Read],
        ),
        (
            "POST",
            "/v1/control".into(),
            r#"{"do":"list"}"#.into(),
            &[Scope::Admin],
        ),
        (
            "GET",
            "/v1/control?tool=look".into(),
            String::new(),
            &[Scope::Read, Scope::Admin],
        ),
        (
            "GET",
            "/v1/interceptors?tool=look".into(),
            String::new(),
            &[Scope::Read, Scope::Admin],
        ),
        (
            "GET",
            "/v1/overview".into(),
            String::new(),
            &[Scope::Read],
        ),
        (
            "GET",
            "/v1/usage".into(),
            String::new(),
            &[Scope::Read],
        ),
        (
            "GET",
            "/v1/doubts?limit=1".into(),
            String::new(),
            &[Scope::Read, Scope::Settle],
        ),
        (
            "GET",
            "/v1/waiting?limit=1".into(),
            String::new(),
            &[Scope::Read, Scope::Approve],
        ),
        (
            "GET",
            format!("/v1/history/{call}/why"),
            String::new(),
            &[Scope::Read],
        ),
        (
            "GET",
            "/v1/breakers?tool=look".into(),
            String::new(),
            &[Scope::Read, Scope::Admin],
        ),
        (
            "GET",
            "/v1/limits?tool=look".into(),
            String::new(),
            &[Scope::Read, Scope::Admin],
        ),
    ]
}

pub(crate) fn request(web: Web, method: &str, path: &str, body: &str) -> WebRequest {
    match method {
        "POST" => web.post(path, body),
        _ => web.request(&format!("{method} {path} HTTP/1.1")),
    }
}

#[tokio::test]
async fn every_endpoint_wants_a_token_that_holds_and_has_its_scope() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let full = token(&fleet, "full", "default", Scope::ALL, "*").await;
    known(web, &full).await;
    let body = r#"{"what":"a"}"#;
    let made = with(web.post("/v1/call/look", body), &full).send().await;
    assert_eq!(made.status, 200, "{}", made.text());
    let call = made.header("Toolfleet-Call-Id").to_owned();
    let mut tried = 0;
    for scope in Scope::ALL {
        let one = token(&fleet, scope.as_str(), "default", &[*scope], "*").await;
        known(web, &one).await;
        for (method, path, body, scopes) in endpoints(&call) {
            let answer = with(request(web, method, &path, &body), &one).send().await;
            let is_forbidden = told(&answer) == is(403, "forbidden");
            assert_eq!(
                is_forbidden,
                !scopes.contains(scope),
                "{scope} {method} {path}: {}",
                answer.text()
            );
            tried += 1;
        }
    }
    let mut wrong = full.text.clone();
    wrong.replace_range(
        wrong.len() - 1..,
        if wrong.ends_with('A') { "B" } else { "A" },
    );
    for (method, path, body, _) in endpoints(&call) {
        let plain = || request(web, method, &path, &body);
        let basic = plain().header("Authorization", "Basic YTpi");
        let doubled = with(with(plain(), &full), &full);
        for nobody in [plain(), basic, doubled] {
            let answer = nobody.send().await;
            assert_eq!(told(&answer), is(401, "unauthenticated"), "{method} {path}");
            assert!(answer.header("WWW-Authenticate").starts_with("Bearer"));
            tried += 1;
        }
        until_so("a wrong token to be answered as one", async || {
            let given = plain().header("Authorization", &format!("Bearer {wrong}"));
            let answer = given.send().await;
            assert!([401, 429].contains(&answer.status), "{}", answer.text());
            answer.status == 401
        })
        .await;
        tried += 1;
    }
    println!("{tried} requests");
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_token_is_for_its_tenant_and_its_tools_and_names_who_asks() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("look", "read"),
        witness.tool("charge", "once") + "timeout: 300ms\n",
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let acme = token(&fleet, "bob@acme", "acme", Scope::ALL, "*").await;
    let looker = token(&fleet, "looker", "acme", Scope::ALL, "lo*").await;
    let any = token(&fleet, "any", "*", Scope::ALL, "*").await;
    for held in [&acme, &looker, &any] {
        known(web, held).await;
    }
    witness.always("doubt", Reply::DoneThenHang);
    let charge = web
        .post("/v1/call/charge", r#"{"what":"doubt"}"#)
        .header("Idempotency-Key", "k");
    let doubt = with(charge, &acme).send().await;
    assert_eq!(
        doubt.header("Toolfleet-State"),
        "in_doubt",
        "{}",
        doubt.text()
    );
    let call = doubt.header("Toolfleet-Call-Id").to_owned();
    let row = fleet.call(call.parse().unwrap()).await;
    assert_eq!(row["tenant"], "acme");
    let meta = witness.look(|seen| seen.requests[0].header("toolfleet-meta").to_owned());
    assert_eq!(meta, r#"{"principal":"bob@acme"}"#);

    // Another tenant, another tool: as what does not exist.
    let foreign = with(web.get("/v1/tools"), &acme).header("Toolfleet-Tenant", "beta");
    assert_eq!(told(&foreign.send().await), is(403, "forbidden"));
    let refused = with(web.post("/v1/call/charge", "{}"), &looker)
        .send()
        .await;
    assert_eq!(told(&refused), is(403, "forbidden"));
    let batch =
        json!({"calls": [{"tool": "look", "args": {"what": "x"}}, {"tool": "charge", "args": {}}]});
    let refused = with(web.post("/v1/batch", batch.to_string()), &looker)
        .send()
        .await;
    assert_eq!(told(&refused), is(403, "forbidden"), "{}", refused.text());
    let listed = with(web.get("/v1/tools?format=mcp"), &looker)
        .send()
        .await
        .json();
    assert_eq!(listed["tools"].as_array().unwrap().len(), 1, "{listed}");
    let nobodys = CallId::generate().to_string();
    let by_call = endpoints(&call).into_iter().zip(endpoints(&nobodys));
    for ((method, path, body, _), (_, other, ..)) in
        by_call.filter(|(one, _)| one.1.contains(&call))
    {
        let hidden = with(request(web, method, &path, &body), &looker)
            .send()
            .await;
        let unknown = with(request(web, method, &other, &body), &looker)
            .send()
            .await;
        let of_another = with(request(web, method, &path, &body), &any).send().await;
        assert_eq!(
            told(&unknown),
            is(404, "not_found"),
            "{method} {path}: {}",
            unknown.text()
        );
        for same in [hidden, of_another] {
            assert_eq!(
                (same.status, &same.body),
                (404, &unknown.body),
                "{method} {path}"
            );
        }
    }

    // Decided in the name of the token, and of nobody else.
    let settle = format!("/v1/calls/{call}/settle");
    let own = json!({"outcome": "applied", "note": "n", "actor": "root"}).to_string();
    let refused = with(web.post(&settle, own), &acme).send().await;
    assert_eq!(told(&refused), is(400, "invalid_arguments"));
    let settled = json!({"outcome": "applied", "note": "n"}).to_string();
    let settled = with(web.post(&settle, settled), &acme).send().await;
    assert_eq!(
        settled.header("Toolfleet-State"),
        "succeeded",
        "{}",
        settled.text()
    );
    let events = fleet.events(call.parse().unwrap()).await;
    let actor = events.last().unwrap()["actor"].as_str().unwrap().to_owned();
    assert!(actor.starts_with("bob@acme ("), "{actor}");
    // A token of every tenant names the one that it means.
    let own = with(web.get(&format!("/v1/calls/{call}")), &any);
    let own = own.header("Toolfleet-Tenant", "acme").send().await;
    assert_eq!(own.status, 200);
    let mine = json!({"calls": [{"tool": "look", "args": {"what": "y"}, "meta": {"x": 1E2}}]});
    let batch = with(web.post("/v1/batch", mine.to_string()), &looker)
        .send()
        .await;
    assert_eq!(batch.status, 200, "{}", batch.text());
    witness.until_asked("y", 1).await;
    let meta = witness.look(|seen| {
        let asked = seen.requests.iter().find(|request| request.what == "y");
        asked.unwrap().header("toolfleet-meta").to_owned()
    });
    assert!(meta.contains(r#""principal":"looker""#), "{meta}");
    gateway.drain().await;
}

#[tokio::test]
async fn a_revoked_token_is_refused_by_every_gateway_within_two_seconds() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut first, one) = fleet.gateway(&["--auth", "tokens"]).await;
    let (mut second, other) = fleet.gateway(&["--auth", "tokens"]).await;
    let held = token(&fleet, "gone", "default", &[Scope::Call], "*").await;
    for web in [one, other] {
        known(web, &held).await;
    }
    let mut connection = fleet.database.connect().await;
    let revoked = tokens::revoke(&mut connection, &held.id, "ann", "a test").await;
    assert!(matches!(revoked.unwrap(), TokenRevoked::Now(_)));
    // No bell: each looks by itself.
    let began = Instant::now();
    for web in [one, other] {
        until_so("the token to be refused", async || {
            with(web.get("/v1/tools"), &held).send().await.status == 401
        })
        .await;
    }
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    first.drain().await;
    second.drain().await;
}

#[tokio::test]
async fn the_eleventh_wrong_token_of_a_second_is_told_to_come_later() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let good = token(&fleet, "good", "default", &[Scope::Call], "*").await;
    known(web, &good).await;
    let stranger = Held {
        id: String::new(),
        text: NewSecret::generate().expose().to_owned(),
    };
    until_so("a 429", async || {
        let answer = with(web.get("/v1/tools"), &stranger).send().await;
        assert!(stranger.id.is_empty() && [401, 429].contains(&answer.status));
        let is_bounded = told(&answer) == is(429, "rate_limited");
        assert!(!is_bounded || answer.header("Retry-After") == "1");
        is_bounded
    })
    .await;
    // One that holds is not refused for those of others from its address.
    for _ in 0..30 {
        let wrong = with(web.get("/v1/tools"), &stranger).send();
        let right = with(web.get("/v1/tools"), &good).send();
        let (wrong, right) = tokio::join!(wrong, right);
        assert!([401, 429].contains(&wrong.status), "{}", wrong.text());
        assert_eq!(right.status, 200, "{}", right.text());
    }
    gateway.drain().await;
}
