//! What a request is asked before its body is read, and what no program of good will sends.

use std::time::{Duration, Instant};

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    web::{Web, WebAnswer},
    witness::Witness,
};
use tokio::io::AsyncReadExt;

const ARGS: &str = r#"{"what":"a"}"#;

#[tokio::test]
async fn hosts_and_origins_that_are_not_expected_are_turned_away_before_the_body_is_read() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let flags = [
        "--allowed-hosts",
        "tools.example",
        "--cors-origin",
        "https://app.example",
    ];
    let (mut gateway, web) = fleet.gateway(&flags).await;
    for host in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1:80@evil",
        "",
    ] {
        for path in ["/v1/call/look", "/v1/completions/x", "/nowhere"] {
            // A body that never comes.
            let request = web
                .request(&format!("POST {path} HTTP/1.1"))
                .header("Host", host)
                .header("Content-Length", "10");
            let answer = request.send().await;
            assert_eq!(
                (answer.status, answer.code()),
                (403, "forbidden".to_owned()),
                "{host} {path}"
            );
            for (name, value) in [
                ("Cache-Control", "no-store"),
                ("Vary", "origin"),
                ("X-Content-Type-Options", "nosniff"),
            ] {
                assert_eq!(answer.header(name), value, "{host} {path}");
            }
        }
    }
    for origin in [
        "null",
        "HTTPS://APP.EXAMPLE",
        "https://app.example:8443",
        "http://localhost:1",
        "https://evil.example",
    ] {
        let request = web
            .request("POST /v1/call/look HTTP/1.1")
            .header("Origin", origin)
            .header("Content-Length", "10");
        let answer = request.send().await;
        assert_eq!(
            (answer.status, answer.code()),
            (403, "forbidden".to_owned()),
            "{origin}"
        );
    }
    // Before HTTP/1.1 nobody had to say whom they want.
    let old = web.bytes(b"GET /v1/tools HTTP/1.0\r\n\r\n").await.unwrap();
    assert_eq!(old.status, 403);
    let old = web
        .bytes(b"GET /v1/tools HTTP/1.0\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(old.status, 200);
    for host in ["tools.example", "TOOLS.EXAMPLE:443", "localhost", "[::1]:9"] {
        let answer = web.get("/v1/tools").header("Host", host).send().await;
        assert_eq!(answer.status, 200, "{host}");
    }

    // A page that is listed may ask, and read what it needs; cookies are no part of it.
    let page = web
        .post("/v1/call/look", ARGS)
        .header("Origin", "https://app.example")
        .send()
        .await;
    assert_eq!(page.status, 200, "{}", page.text());
    assert_eq!(
        page.header("Access-Control-Allow-Origin"),
        "https://app.example"
    );
    assert!(
        page.header("Access-Control-Expose-Headers")
            .contains("Toolfleet-State")
    );
    assert_eq!(page.header("Access-Control-Allow-Credentials"), "");
    let asking = web
        .request("OPTIONS /v1/call/look HTTP/1.1")
        .header("Origin", "https://app.example")
        .header("Access-Control-Request-Method", "POST")
        .header("Access-Control-Request-Headers", "idempotency-key");
    let asking = asking.send().await;
    assert_eq!(asking.status, 204);
    assert!(
        asking
            .header("Access-Control-Allow-Headers")
            .contains("Idempotency-Key")
    );
    let strange = web
        .request("OPTIONS /v1/call/look HTTP/1.1")
        .header("Origin", "https://evil.example")
        .header("Access-Control-Request-Method", "POST");
    let strange = strange.send().await;
    assert_eq!(strange.status, 403);
    assert_eq!(strange.header("Access-Control-Allow-Origin"), "");
    let own = format!("http://{}", web.address);
    let own = web.post("/v1/call/look", ARGS).header("Origin", &own);
    assert_eq!(own.send().await.status, 200);
    assert_eq!(witness.asked("a"), 2);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

async fn post(web: Web, headers: &[(&str, &str)], body: &[u8]) -> WebAnswer {
    let mut request = web.post("/v1/call/look", body);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.send().await
}

#[tokio::test]
async fn every_bad_request_gets_a_typed_answer() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let large = format!("{{\"what\":\"{}\"}}", "x".repeat(256 * 1024));
    let told = |answer: WebAnswer| (answer.status, answer.code());
    let is = |status, code: &str| (status, code.to_owned());
    let gzip = [("Content-Encoding", "gzip")];
    assert_eq!(
        told(post(web, &gzip, b"\x1f\x8b").await),
        is(415, "header_invalid")
    );
    assert_eq!(
        told(post(web, &[], large.as_bytes()).await),
        is(413, "payload_too_large")
    );
    // The same, and it does not say how long it is.
    let chunked = format!("{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    let answer = post(web, &[("Transfer-Encoding", "chunked")], chunked.as_bytes()).await;
    assert_eq!(told(answer), is(413, "payload_too_large"));
    let small = format!("{:x}\r\n{ARGS}\r\n0\r\n\r\n", ARGS.len());
    let answer = post(web, &[("Transfer-Encoding", "chunked")], small.as_bytes()).await;
    assert_eq!(answer.status, 200);
    for (name, value, code) in [
        ("Toolfleet-On-Disconnect", "perhaps", "header_invalid"),
        ("Toolfleet-Tenant", "a.b", "invalid_tenant"),
        ("Toolfleet-Tenant", "*", "invalid_tenant"),
        (
            "Toolfleet-Meta",
            r#"{"principal":"root"}"#,
            "header_invalid",
        ),
        ("Idempotency-Key", "a b", "invalid_idempotency_key"),
        ("Toolfleet-Run", "a.>", "header_invalid"),
    ] {
        let answer = post(web, &[(name, value)], ARGS.as_bytes()).await;
        assert_eq!(told(answer), is(400, code), "{name}: {value}");
    }
    for (line, status, code) in [
        ("GET /v1/call/look HTTP/1.1", 405, "not_found"),
        ("PUT /v1/call/look HTTP/1.1", 405, "not_found"),
        ("DELETE /v1/calls/x HTTP/1.1", 405, "not_found"),
        ("GET /v1 HTTP/1.1", 404, "not_found"),
        ("GET /v2/tools HTTP/1.1", 404, "not_found"),
        ("GET /v1/calls HTTP/1.1", 400, "invalid_arguments"),
        ("GET /v1/calls?tool=look HTTP/1.1", 400, "invalid_arguments"),
        ("GET /v1/calls/x?wait_ms=1 HTTP/1.1", 400, "invalid_id"),
        (
            "GET /v1/calls/01980000-0000-7000-8000-000000000000?wait_ms=300001 HTTP/1.1",
            400,
            "invalid_arguments",
        ),
        (
            "GET /v1/calls/01980000-0000-7000-8000-000000000000?wait_ms=-1 HTTP/1.1",
            400,
            "invalid_arguments",
        ),
        ("POST /v1/call/a%2Fb HTTP/1.1", 400, "invalid_tool_name"),
        ("POST /v1/call/a%00 HTTP/1.1", 400, "invalid_tool_name"),
        ("POST /v1/call/Look HTTP/1.1", 400, "invalid_tool_name"),
        ("POST /v1/call/a.b HTTP/1.1", 400, "invalid_tool_name"),
        ("POST /v1/call/look?x=1 HTTP/1.1", 400, "invalid_arguments"),
    ] {
        let answer = web.request(line).send().await;
        assert_eq!(answer.header("Toolfleet-Answer"), "gateway", "{line}");
        assert_eq!(told(answer), is(status, code), "{line}");
    }
    let allow = web.request("GET /v1/call/look HTTP/1.1").send().await;
    assert_eq!(allow.header("Allow"), "POST");
    // In the language that it asks for.
    let chinese = web.get("/v1/nowhere").header("Toolfleet-Language", "zh");
    let chinese = chinese.send().await.json()["error"]["message"].to_string();
    assert!(chinese.contains("没有这个接口"), "{chinese}");
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn what_is_no_http_ends_its_connection_and_nothing_else() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&["--strangers-max", "8"]).await;
    let host = format!("Host: {}\r\n", web.address);
    let many: String = (0..10_000).map(|n| format!("X-{n}: y\r\n")).collect();
    for (bytes, status) in [
        (
            format!(
                "POST /v1/call/look HTTP/1.1\r\n{host}Content-Length: 5\r\nContent-Length: 6\r\n\r\n{ARGS}"
            ),
            Some(400),
        ),
        (
            format!(
                "POST /v1/call/look HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\nzz\r\n"
            ),
            Some(400),
        ),
        (
            format!("GET /v1/tools HTTP/1.1\r\n{host}{many}\r\n"),
            Some(431),
        ),
        (
            format!(
                "GET /v1/tools HTTP/1.1\r\n{host}X: {}\r\n\r\n",
                "y".repeat(100_000)
            ),
            Some(431),
        ),
        ("\0\0\0\0\r\n\r\n".to_owned(), Some(400)),
    ] {
        let answer = web.bytes(bytes.as_bytes()).await;
        let found = answer.map(|answer| answer.status);
        // A connection that is closed while bytes are on their way may take the answer with it.
        assert!(
            found == status || found.is_none(),
            "{:.80}: {found:?}",
            bytes
        );
    }
    // A length and chunks at once: whichever counts, the rest is no second request.
    let smuggled = format!(
        "POST /v1/call/look HTTP/1.1\r\n{host}Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/tools HTTP/1.1\r\n{host}\r\n"
    );
    let mut connection = web.open(smuggled.as_bytes()).await;
    let mut told = Vec::new();
    drop(connection.read_to_end(&mut told).await);
    let answers = String::from_utf8_lossy(&told)
        .matches("HTTP/1.1 200")
        .count();
    assert_eq!(answers, 0, "{}", String::from_utf8_lossy(&told));
    assert_eq!(witness.asked("a"), 0);
    let alive = web.get("/v1/tools").send().await;
    assert_eq!(alive.status, 200);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_head_that_does_not_come_ends_its_connection_and_strangers_are_bounded() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&["--strangers-max", "3"]).await;
    let began = Instant::now();
    let mut slow = Vec::new();
    for _ in 0..3 {
        slow.push(web.open(b"POST /v1/call/look HTTP/1.1\r\nHost: loc").await);
    }
    // Their places are taken, so the next one is closed after a moment; until a place is free again.
    fleet_tests::wait::until_so("the fourth to be turned away", async || {
        web.get("/v1/tools").try_send().await.is_none()
    })
    .await;
    for connection in &mut slow {
        let mut told = Vec::new();
        drop(connection.read_to_end(&mut told).await);
    }
    let took = began.elapsed();
    assert!(
        took >= Duration::from_secs(9) && took < Duration::from_secs(20),
        "{took:?}"
    );
    fleet_tests::wait::until_so("a place to be free again", async || {
        web.get("/v1/tools").try_send().await.is_some()
    })
    .await;
    gateway.drain().await;
}
