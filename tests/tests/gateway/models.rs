//! Models for the vendors' own packages: a call of a chat tool by its vendor's request, answered with the bare reply or the vendor's error.

use fleet::tokens::Scope;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    models::ModelServer,
    process::Process,
    web::{Web, WebAnswer, WebRequest},
    witness::Witness,
};
use serde_json::{Value, json};

use crate::tokens::{Held, known, token, with};

/// Of each protocol: what a tool of it is called, where its requests go, and its errors stand.
pub(crate) const PROTOCOLS: [(&str, &str); 3] = [
    ("openai_chat", "/v1/chat/completions"),
    ("openai_responses", "/v1/responses"),
    ("anthropic", "/v1/messages"),
];

/// A tool of this protocol, of its name.
fn manifest(server: &ModelServer, protocol: &str, path: &str, more: &str) -> String {
    let url = server.url(path);
    // One attempt, unless a test wants more.
    let retry = match more.contains("retry:") {
        true => "",
        false => "retry: { max_attempts: 1 }",
    };
    format!(
        r#"
name: {protocol}
version: 1
description: Answers a conversation.
effect: read
executor:
  chat:
    protocol: {protocol}
    routes:
      - {{ name: main, url: "{url}", model: large, price: {{ currency: USD, input: "2.50", output: "10" }} }}
      - {{ name: spare, url: "{url}", model: small }}
{retry}
{more}"#
    )
}

pub(crate) struct Scene {
    pub(crate) server: ModelServer,
    witness: Witness,
    fleet: Fleet,
    gateway: Process,
    pub(crate) web: Web,
}

impl Scene {
    pub(crate) async fn start(rules: Value, more: &str, flags: &[&str]) -> Self {
        let server = ModelServer::start(&json!({ "rules": rules }), &[]);
        let witness = Witness::start().await;
        let mut tools: Vec<String> = PROTOCOLS
            .iter()
            .map(|(protocol, path)| manifest(&server, protocol, path, more))
            .collect();
        tools.push(witness.tool("look", "read"));
        let fleet = Fleet::start(Spec::with(tools)).await;
        let (gateway, web) = fleet.gateway(flags).await;
        Self {
            server,
            witness,
            fleet,
            gateway,
            web,
        }
    }

    pub(crate) async fn end(mut self) {
        invariants::hold(&self.fleet, &self.witness).await;
        self.gateway.drain().await;
    }
}

/// A request of this protocol for the tool of this name.
pub(crate) fn body(protocol: &str, model: &str, words: &str) -> Value {
    let said = json!([{"role": "user", "content": words}]);
    match protocol {
        "openai_responses" => json!({"model": model, "input": words}),
        "anthropic" => json!({"model": model, "max_tokens": 100, "messages": said}),
        _chat => json!({"model": model, "messages": said}),
    }
}

fn ask(web: Web, protocol: &str, path: &str, words: &str) -> WebRequest {
    web.post(path, body(protocol, protocol, words).to_string())
}

/// What an error says in the shape of its vendor: type, code and message.
pub(crate) fn error(protocol: &str, answer: &WebAnswer) -> (String, String, String) {
    assert_eq!(
        answer.header("X-Should-Retry"),
        "false",
        "{}",
        answer.text()
    );
    let body = answer.json();
    if protocol == "anthropic" {
        assert_eq!(body["type"], "error", "{body}");
        assert!(body.get("request_id").is_some(), "{body}");
    }
    let said = |name: &str| body["error"][name].as_str().unwrap_or_default().to_owned();
    (said("type"), said("code"), said("message"))
}

#[tokio::test]
async fn the_answer_is_the_bare_reply_and_a_key_is_not_paid_twice() {
    let exact = json!({"big": 9_007_199_254_740_993_u64});
    let rules = json!([
        {"match": {"text": "busy", "model": "large"}, "fault": {"kind": "status", "status": 429}},
        {"answer": {"text": "Hello.", "extra": exact}},
    ]);
    let scene = Scene::start(rules, "", &[]).await;
    let web = scene.web;
    for (at, (protocol, path)) in PROTOCOLS.iter().enumerate() {
        let key = format!("turn-{protocol}");
        let request = ask(web, protocol, path, "hello").header("Idempotency-Key", &key);
        let first = request.clone().send().await;
        assert_eq!(first.status, 200, "{}", first.text());
        assert_eq!(first.header("Content-Type"), "application/json");
        assert_eq!(first.header("X-Should-Retry"), "");
        assert!(
            first.text().contains("9007199254740993"),
            "{}",
            first.text()
        );
        let headers = ["Toolfleet-Answer", "Toolfleet-Route", "Toolfleet-State"];
        let headers = headers.map(|name| first.header(name));
        assert_eq!(headers, ["call", "main", "succeeded"]);
        assert!(first.header("Toolfleet-Cost").ends_with(" USD"));
        let id = first.header("Toolfleet-Call-Id");
        let vendors = if *protocol == "anthropic" {
            "Request-Id"
        } else {
            "X-Request-Id"
        };
        assert_eq!(first.header(vendors), id);
        // As it stands in the result of the call.
        let kept = scene.fleet.get(&json!({ "call_id": id })).await;
        let kept = String::from_utf8_lossy(&kept.bytes).into_owned();
        assert!(
            kept.contains(&format!("\"reply\":{}", first.text())),
            "{kept}"
        );

        let again = request.send().await;
        assert_eq!(
            (again.body == first.body, again.header("Toolfleet-Call-Id")),
            (true, id)
        );
        assert_eq!(
            scene.server.asked("large").await,
            2 * at + 1,
            "a repeated key is not paid twice"
        );
        let other = ask(web, protocol, path, "other").header("Idempotency-Key", &key);
        let other = other.send().await;
        assert_eq!(
            (other.status, error(protocol, &other).1.as_str()),
            (409, "idempotency_key_reused")
        );

        let busy = ask(web, protocol, path, "busy").send().await;
        assert_eq!(
            (busy.status, busy.header("Toolfleet-Route")),
            (200, "spare")
        );
        assert_eq!(busy.header("Toolfleet-Cost"), "");
    }
    // What was sent is what the vendor got, but for the model.
    let sent = r#"{"messages":[{"role":"user","content":"hello","n":1.10,"m":9007199254740993}],"model":"openai_chat","seed":1E2}"#;
    assert_eq!(
        web.post("/v1/chat/completions", sent).send().await.status,
        200
    );
    let log = scene.server.log().await;
    let raw = log.last().unwrap()["raw"].to_string();
    for digits in ["1.10", "9007199254740993", "1E2", "large"] {
        assert!(raw.contains(digits), "{raw}");
    }
    scene.end().await;
}

#[tokio::test]
async fn a_failed_call_is_an_error_of_its_vendor_that_nobody_sends_again() {
    let rules = json!([
        {"match": {"text": "wrong"}, "fault": {"kind": "status", "status": 422, "message": "No such field."}},
        {"match": {"text": "busy"}, "fault": {"kind": "status", "status": 429}},
        {"match": {"text": "key"}, "fault": {"kind": "status", "status": 401}},
        {"match": {"text": "broken"}, "fault": {"kind": "status", "status": 500}},
        {"match": {"text": "garbage"}, "fault": {"kind": "garbage"}},
        {"answer": {"text": "Hello."}},
    ]);
    let scene = Scene::start(rules, "", &[]).await;
    for (protocol, path) in PROTOCOLS {
        for (words, status, kinds, code, requests) in [
            ("wrong", 422, ["invalid_request_error"; 2], "tool_error", 1),
            ("busy", 429, ["rate_limit_error"; 2], "unavailable", 2),
            ("key", 502, ["server_error", "api_error"], "unavailable", 2),
            (
                "broken",
                500,
                ["server_error", "api_error"],
                "unavailable",
                2,
            ),
            (
                "garbage",
                500,
                ["server_error", "api_error"],
                "output_invalid",
                2,
            ),
        ] {
            let before = scene.server.log().await.len();
            let failed = ask(scene.web, protocol, path, words).send().await;
            let kind = kinds[usize::from(protocol == "anthropic")];
            let (told, its, message) = error(protocol, &failed);
            assert_eq!(
                (failed.status, told.as_str(), its.as_str()),
                (status, kind, code),
                "{protocol} {words}: {}",
                failed.text()
            );
            let id = failed.header("Toolfleet-Call-Id");
            assert!(!id.is_empty() && message.contains(id), "{message}");
            assert_eq!(failed.header("Toolfleet-Answer"), "call");
            let requests_made = scene.server.log().await.len() - before;
            assert_eq!(
                requests_made, requests,
                "{protocol} {words}: each route once"
            );
        }
    }
    scene.end().await;
}

#[tokio::test]
async fn a_call_that_failed_in_every_attempt_has_the_status_of_the_last_one() {
    let rules = json!([
        {"match": {"text": "busy"}, "fault": {"kind": "status", "status": 429}},
        {"match": {"text": "gone"}, "fault": {"kind": "drop"}},
        {"match": {"text": "hang"}, "fault": {"kind": "hang"}},
        {"answer": {"text": "Hello."}},
    ]);
    let more = "timeout: 500ms\nretry: { base: 10ms, cap: 20ms }\n";
    let scene = Scene::start(rules, more, &[]).await;
    for (protocol, path) in PROTOCOLS {
        for (words, statuses, kinds) in [
            ("busy", [429; 2], ["rate_limit_error"; 2]),
            ("gone", [503, 529], ["server_error", "overloaded_error"]),
            ("hang", [504; 2], ["server_error", "timeout_error"]),
        ] {
            let failed = ask(scene.web, protocol, path, words).send().await;
            let at = usize::from(protocol == "anthropic");
            let (kind, code, _) = error(protocol, &failed);
            assert_eq!(
                (failed.status, kind.as_str(), code.as_str()),
                (statuses[at], kinds[at], "retries_exhausted"),
                "{protocol} {words}: {}",
                failed.text()
            );
        }
    }
    scene.end().await;
}

#[tokio::test]
async fn a_budget_that_is_spent_is_a_limit_as_others() {
    let rules = json!([{"answer": {"text": "Hello."}}]);
    let scene = Scene::start(rules, "budget: { calls_per_run: 1 }\n", &[]).await;
    for (protocol, path) in PROTOCOLS {
        let of_run = || ask(scene.web, protocol, path, "hello").header("Toolfleet-Run", "run-1");
        assert_eq!(of_run().send().await.status, 200);
        let spent = of_run().send().await;
        let (kind, code, _) = error(protocol, &spent);
        assert_eq!(
            (spent.status, kind.as_str(), code.as_str()),
            (429, "rate_limit_error", "budget_exceeded"),
            "{}",
            spent.text()
        );
    }
    scene.end().await;
}

#[tokio::test]
async fn a_large_reply_is_answered_whole() {
    let text = "A long answer. ".repeat(2_000);
    let rules = json!([{"answer": {"text": text}}]);
    let more = "large_result: {over: 2KiB, preview: 256B}\n";
    let scene = Scene::start(rules, more, &[]).await;
    for (protocol, path) in PROTOCOLS {
        let key = format!("k-{protocol}");
        let request = ask(scene.web, protocol, path, "hello").header("Idempotency-Key", &key);
        let first = request.clone().send().await;
        assert_eq!(first.status, 200, "{}", first.text());
        assert!(first.text().contains(&text), "{} bytes", first.body.len());
        assert_eq!(first.header("Toolfleet-Route"), "main");
        let id = first.header("Toolfleet-Call-Id");
        let told = scene.fleet.get(&json!({ "call_id": id })).await;
        assert!(told["result"]["$result"].is_string(), "{}", *told);
        assert_eq!(request.send().await.body, first.body);
    }
    scene.end().await;
}

#[tokio::test]
async fn a_token_is_the_key_and_what_it_is_not_for_is_no_model() {
    let rules = json!([{"answer": {"text": "Hello."}}]);
    let scene = Scene::start(rules, "", &["--auth", "tokens"]).await;
    let web = scene.web;
    let caller = token(&scene.fleet, "caller", "acme", &[Scope::Call], "*").await;
    let reader = token(&scene.fleet, "reader", "acme", &[Scope::Read], "*").await;
    let other = token(&scene.fleet, "other", "acme", &[Scope::Call], "look").await;
    for held in [&caller, &reader, &other] {
        known(web, held).await;
    }
    let key = |request: WebRequest, held: &Held| request.header("X-Api-Key", &held.text);
    for (protocol, path) in PROTOCOLS {
        let of = |held: &Held| with(ask(web, protocol, path, "hello"), held);
        assert_eq!(of(&caller).send().await.status, 200);
        let sent = key(ask(web, protocol, path, "hello"), &caller);
        // What packages send beside it says nothing.
        let sent = sent
            .header("X-Stainless-Retry-Count", "0")
            .header("Anthropic-Version", "2023-06-01")
            .header("Anthropic-Beta", "x");
        assert_eq!(sent.send().await.status, 200);
        let told = |answer: WebAnswer| (answer.status, error(protocol, &answer).1);
        for (request, status, code) in [
            (ask(web, protocol, path, "hello"), 401, "unauthenticated"),
            (
                ask(web, protocol, path, "hello").header("X-Api-Key", "sk-x"),
                401,
                "unauthenticated",
            ),
            // `Authorization` counts.
            (
                key(
                    ask(web, protocol, path, "hello").header("Authorization", "Bearer x"),
                    &caller,
                ),
                401,
                "unauthenticated",
            ),
            (
                key(key(ask(web, protocol, path, "hello"), &caller), &caller),
                401,
                "unauthenticated",
            ),
            (of(&reader), 403, "forbidden"),
            (
                of(&caller).header("Toolfleet-Tenant", "beta"),
                403,
                "forbidden",
            ),
            (of(&other), 404, "unknown_tool"),
            (
                with(web.request(&format!("GET {path} HTTP/1.1")), &caller),
                405,
                "not_found",
            ),
            (
                with(
                    web.post(path, body(protocol, "nothing", "hello").to_string()),
                    &caller,
                ),
                404,
                "unknown_tool",
            ),
            (
                with(
                    web.post(path, body(protocol, "gpt-4.1", "hello").to_string()),
                    &caller,
                ),
                404,
                "unknown_tool",
            ),
            (
                with(
                    web.post(path, body(protocol, "look", "hello").to_string()),
                    &caller,
                ),
                404,
                "unknown_tool",
            ),
        ] {
            assert_eq!(
                told(request.send().await),
                (status, code.to_owned()),
                "{protocol}"
            );
        }
        // A tool of another protocol.
        for (another, _) in PROTOCOLS.iter().filter(|(another, _)| *another != protocol) {
            let request = with(
                web.post(path, body(protocol, another, "hello").to_string()),
                &caller,
            );
            assert_eq!(told(request.send().await), (404, "unknown_tool".to_owned()));
        }
    }
    // No key anywhere else.
    let elsewhere = key(web.get("/v1/tools"), &caller).send().await;
    assert_eq!(elsewhere.status, 401);
    let query = web.post(
        "/v1/messages?beta=true",
        body("anthropic", "anthropic", "hello").to_string(),
    );
    assert_eq!(key(query, &caller).send().await.status, 200);
    scene.end().await;
}

#[tokio::test]
async fn bodies_that_are_no_requests_are_refused_in_the_words_of_the_vendor() {
    let rules = json!([{"answer": {"text": "Hello."}}]);
    let scene = Scene::start(rules, "", &[]).await;
    let web = scene.web;
    for (protocol, path) in PROTOCOLS {
        let good = body(protocol, protocol, "hello");
        let with = |name: &str, value: Value| {
            let mut changed = good.clone();
            changed[name] = value;
            changed.to_string()
        };
        let doubled = good.to_string().replacen('{', "{\"seed\":1,\"seed\":2,", 1);
        let twice = good.to_string().replacen('{', "{\"model\":\"look\",", 1);
        let long = with("more", json!("x".repeat(2 * 1024 * 1024)));
        for (sent, status, code) in [
            ("nothing".to_owned(), 400, "malformed_json"),
            (String::new(), 400, "malformed_json"),
            ("[]".to_owned(), 400, "invalid_arguments"),
            ("{}".to_owned(), 400, "invalid_arguments"),
            (with("model", json!(7)), 400, "invalid_arguments"),
            (with("model", json!(["a"])), 400, "invalid_arguments"),
            (
                with("model", json!("a\r\nX-Injected: 1")),
                404,
                "unknown_tool",
            ),
            (with("stream", json!("yes")), 400, "invalid_arguments"),
            (doubled, 400, "duplicate_key"),
            (twice, 400, "duplicate_key"),
            (long, 413, "payload_too_large"),
            (with("background", json!(true)), 400, "invalid_arguments"),
            (
                json!({"model": protocol}).to_string(),
                400,
                "invalid_arguments",
            ),
        ] {
            let answer = web.post(path, sent.clone()).send().await;
            let told = (answer.status, error(protocol, &answer).1);
            assert_eq!(
                told,
                (status, code.to_owned()),
                "{protocol}: {sent:.60}: {}",
                answer.text()
            );
        }
        for (name, value, code) in [
            ("Idempotency-Key", "a b", "invalid_idempotency_key"),
            ("Idempotency-Key", "turn_1", "header_invalid"),
            ("Toolfleet-Session", "a\"b", "invalid_id"),
            ("Toolfleet-Rnu", "x", "header_invalid"),
            ("Toolfleet-On-Disconnect", "x", "header_invalid"),
            ("Toolfleet-Deadline-Ms", "0", "deadline_invalid"),
        ] {
            let answer = ask(web, protocol, path, "hello")
                .header(name, value)
                .send()
                .await;
            let (_, told, _) = error(protocol, &answer);
            let expected = [code, "header_invalid"];
            assert!(
                answer.status == 400 && expected.contains(&told.as_str()),
                "{name}: {}",
                answer.text()
            );
        }
    }
    assert_eq!(scene.server.log().await.len(), 0, "nothing was asked");
    scene.end().await;
}
