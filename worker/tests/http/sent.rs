//! What reaches the tool.

use std::time::Duration;

use fleet::{
    call::Language, ids::CallId, outcome::Outcome, secrets::Secrets, wire::trace::TraceContext,
};
use serde_json::{json, value::RawValue};
use worker::executors::Executor;

use crate::{
    context, executor, manifest, posting, prepare, run,
    server::{Reply, Server, json as answer},
    word,
};

async fn accepting() -> Server {
    Server::start(|_| Reply::Bytes(answer(200, "{}"))).await
}

#[tokio::test]
async fn every_request_carries_the_facts_of_its_attempt() {
    let server = accepting().await;
    let call_id = CallId::generate();
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut context = context(Duration::from_secs(20));
    context.call_id = call_id;
    context.attempt = 3;
    context.session = Some("chat-1".parse().unwrap());
    context.meta = Some(RawValue::from_string("{\n\"user\": \"Zoë\"}".to_owned()).unwrap());
    context.trace = TraceContext {
        traceparent: Some(traceparent.to_owned()),
        tracestate: Some("a=1".to_owned()),
        baggage: Some("bad\nline".to_owned()),
    };
    let manifest = posting("once", &server.url("/"));
    let outcome = prepare(&manifest, &json!({}))
        .unwrap()
        .run(context)
        .await
        .outcome;
    assert_eq!(word(&outcome), ("applied", None));

    let requests = server.seen().requests;
    let request = &requests[0];
    let version = concat!("toolfleet/", env!("CARGO_PKG_VERSION"));
    for (name, value) in [
        ("toolfleet-call-id", call_id.to_string().as_str()),
        ("toolfleet-attempt", "3"),
        ("toolfleet-tool", "tool"),
        ("toolfleet-tool-version", "1"),
        ("toolfleet-tenant", "acme"),
        ("toolfleet-session", "chat-1"),
        ("toolfleet-deadline-ms", "1700000000123"),
        ("toolfleet-language", "en"),
        ("toolfleet-meta", r#"{ "user": "Zo\u00eb"}"#),
        ("idempotency-key", "key-1"),
        ("traceparent", traceparent),
        ("tracestate", "a=1"),
        ("user-agent", version),
        ("accept", "application/json"),
        ("content-type", "application/json"),
        ("host", &server.address.to_string()),
    ] {
        assert_eq!(request.header(name), [value], "{name}");
    }
    let remaining: u64 = request.header("toolfleet-remaining-ms")[0].parse().unwrap();
    assert!((10_000..=20_000).contains(&remaining), "{remaining}");
    for absent in [
        "baggage",
        "toolfleet-run",
        "cookie",
        "referer",
        "accept-encoding",
        "transfer-encoding",
    ] {
        assert!(request.header(absent).is_empty(), "{absent}");
    }
}

#[tokio::test]
async fn a_large_integer_arrives_exactly() {
    let server = accepting().await;
    let arguments = serde_json::from_str(r#"{"id": 9007199254740993, "price": 1.10}"#).unwrap();
    let http = json!({"method": "PUT", "url": server.url("/orders/{id}"), "headers": {"x-id": "{id}"},
        "query": {"id": "{id}"}, "body": {"order": {"id": "{id}", "price": "{price}"}}});
    run(&manifest("once", http, json!({})), arguments).await;
    let request = &server.seen().requests[0];
    assert_eq!(
        request.line(),
        "PUT /orders/9007199254740993?id=9007199254740993 HTTP/1.1"
    );
    assert_eq!(request.header("x-id"), ["9007199254740993"]);
    assert_eq!(
        request.body,
        r#"{"order":{"id":9007199254740993,"price":1.10}}"#
    );
}

#[tokio::test]
async fn the_key_is_the_same_in_every_attempt_and_where_the_manifest_wants_it() {
    let server = accepting().await;
    let http = json!({"method": "POST", "url": server.url("/{request_id}"), "query": {"k": "{request_id}"}});
    let idempotency = json!({"idempotency": {"header": "X-Request-Id", "argument": "request_id"}});
    let manifest = manifest("idempotent", http, idempotency);
    for attempt in 1..=2 {
        let mut context = context(Duration::from_secs(20));
        context.attempt = attempt;
        let arguments = json!({"n": 1, "request_id": "forged"});
        prepare(&manifest, &arguments).unwrap().run(context).await;
    }
    let requests = server.seen().requests;
    assert_eq!(requests.len(), 2);
    for request in requests {
        assert_eq!(request.header("idempotency-key"), ["key-1"]);
        assert_eq!(request.header("x-request-id"), ["key-1"]);
        assert_eq!(request.line(), "POST /key-1?k=key-1 HTTP/1.1");
        assert_eq!(request.body, r#"{"n":1,"request_id":"key-1"}"#);
    }
}

#[tokio::test]
async fn a_key_that_would_move_the_url_is_not_sent() {
    let server = accepting().await;
    let http = json!({"method": "POST", "url": server.url("/a/{id}")});
    let manifest = manifest(
        "idempotent",
        http,
        json!({"idempotency": {"argument": "id"}}),
    );
    let mut context = context(Duration::from_secs(20));
    context.idempotency_key = "..".to_owned();
    let outcome = prepare(&manifest, &json!({}))
        .unwrap()
        .run(context)
        .await
        .outcome;
    assert_eq!(word(&outcome), ("not_started", Some("tool_error")));
    assert_eq!(server.seen().connections, 0);
}

#[tokio::test]
async fn no_argument_adds_a_header_or_a_request() {
    let server = accepting().await;
    let hostile = "x\r\nx-evil: 1\r\n\r\nGET /evil HTTP/1.1\r\n";
    let http = json!({"method": "POST", "url": server.url("/a/{v}"), "query": {"q": "{v}"}, "body": {"v": "{v}"}});
    run(
        &manifest("once", http.clone(), json!({})),
        json!({"v": hostile}),
    )
    .await;
    let requests = server.seen().requests;
    assert_eq!((requests.len(), server.seen().connections), (1, 1));
    assert!(
        requests[0].header("x-evil").is_empty(),
        "{}",
        requests[0].head
    );
    assert!(
        requests[0].line().starts_with("POST /a/x%0D%0Ax-evil"),
        "{}",
        requests[0].line()
    );

    let mut in_header = http;
    in_header["headers"] = json!({"x-v": "{v}"});
    let failure = prepare(
        &manifest("once", in_header, json!({})),
        &json!({"v": hostile}),
    )
    .err()
    .unwrap();
    assert_eq!(failure.code.as_str(), "tool_error");
    assert_eq!(server.seen().requests.len(), 1);
}

#[tokio::test]
async fn a_secret_reaches_the_tool_and_no_message() {
    const SECRET: &str = "s3cr3t-value";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("TOKEN"), SECRET).unwrap();
    let secrets = Secrets::new(Some(folder.path().to_owned()));
    let echo = format!(r#"{{"message": "the key {SECRET} is not valid"}}"#);
    let refusing = Server::start(move |_| Reply::Bytes(answer(404, &echo))).await;
    let closing = Server::start(|_| Reply::CloseAtOnce).await;
    let hanging = Server::start(|_| Reply::Hang).await;
    let refused = { Server::start(|_| Reply::Hang).await.url("/") };
    let urls = [
        refusing.url("/"),
        closing.url("/"),
        hanging.url("/"),
        refused,
        "https://name.invalid/".to_owned(),
    ];
    for url in urls {
        let http = json!({"method": "POST", "url": format!("{url}{{private}}"),
            "headers": {"authorization": "secret://TOKEN"}, "query": {"token": "secret://TOKEN"}});
        let manifest = manifest("once", http, json!({}));
        let prepared = executor()
            .prepare(&manifest, &json!({"private": "argument-text"}), &secrets)
            .unwrap();
        let outcome = prepared
            .run(context(Duration::from_millis(500)))
            .await
            .outcome;
        let failure = outcome.failure().expect("each of them fails");
        let told = Language::ALL.iter().map(|language| failure.told(*language));
        let failure = serde_json::to_string(&told.collect::<Vec<_>>()).unwrap();
        for hidden in [SECRET, "argument-text", "token"] {
            assert!(!failure.contains(hidden), "{failure}");
            assert!(!format!("{outcome:?}").contains(hidden), "{outcome:?}");
        }
    }
    let request = &refusing.seen().requests[0];
    assert_eq!(request.header("authorization"), [SECRET]);
    assert_eq!(
        request.line(),
        format!("POST /argument-text?token={SECRET} HTTP/1.1")
    );
}

#[tokio::test]
async fn a_secret_that_a_service_repeats_is_not_in_its_answer() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("TOKEN"), "s3cr3t/value").unwrap();
    let secrets = Secrets::new(Some(folder.path().to_owned()));
    let echo = r#"{"said": "s3cr3t\/value", "of": ["\u00733cr3t/value!", 1.50]}"#;
    let server = Server::start(move |_| Reply::Bytes(answer(200, echo))).await;
    let http = json!({"method": "POST", "url": server.url("/"),
        "headers": {"authorization": "secret://TOKEN"}});
    for (more, told) in [
        (json!({}), r#"{"said":"[secret]","of":["[secret]!",1.50]}"#),
        (
            json!({"redact_results": false}),
            r#"{"said":"s3cr3t/value","of":["s3cr3t/value!",1.50]}"#,
        ),
    ] {
        let manifest = manifest("once", http.clone(), more);
        let prepared = executor().prepare(&manifest, &json!({}), &secrets);
        let ran = prepared.unwrap().run(context(Duration::from_secs(20)));
        let Outcome::Applied { result, flaw: None } = ran.await.outcome else {
            panic!("it answers");
        };
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(result.get()), value(told));
        assert!(result.get().contains("1.50"), "{result}");
    }
}

#[tokio::test]
async fn a_missing_secret_stops_the_attempt_before_the_claim() {
    let http = json!({"method": "POST", "url": "http://127.0.0.1:1/", "headers": {"authorization": "secret://NOT_THERE"}});
    let failure = prepare(&manifest("once", http, json!({})), &json!({}))
        .err()
        .unwrap();
    assert_eq!(failure.code.as_str(), "unavailable");
    assert!(
        failure.message.english().contains("NOT_THERE"),
        "{}",
        failure.message
    );
}

#[tokio::test]
async fn each_write_has_a_connection_of_its_own_and_reads_share_one() {
    for (effect, connections) in [("once", 5), ("idempotent", 5), ("read", 1)] {
        let server = accepting().await;
        let executor = executor();
        let manifest = posting(effect, &server.url("/"));
        for _ in 0..5 {
            let prepared = executor
                .prepare(&manifest, &json!({}), &Secrets::new(None))
                .unwrap();
            assert_eq!(
                word(&prepared.run(context(Duration::from_secs(20))).await.outcome),
                ("applied", None)
            );
        }
        assert_eq!(
            (server.seen().connections, server.seen().requests.len()),
            (connections, 5),
            "{effect}"
        );
    }
}
