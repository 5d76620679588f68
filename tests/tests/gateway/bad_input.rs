//! What no program of good will asks for, line by line, at every endpoint: each gets a typed answer, and nothing becomes of it.

use fleet::{
    ids::CallId,
    store::tokens::{TokenRevoked, revoke},
    tokens::Scope,
};
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until,
    web::{Web, WebAnswer, WebRequest},
    witness::Witness,
};
use tokio::io::AsyncReadExt;

use crate::{
    every::{Example, answering, endpoints},
    tokens::{Held, is, known, token, token_for, told, with},
};

pub(crate) async fn started(
    flags: &[&str],
) -> (Witness, Fleet, fleet_tests::process::Process, Web) {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (gateway, web) = fleet.gateway(flags).await;
    (witness, fleet, gateway, web)
}

pub(crate) fn nobodys() -> String {
    CallId::generate().to_string()
}

/// Sends it again while the address has sent too many wrong tokens in this second.
async fn patiently(request: WebRequest) -> WebAnswer {
    until("an answer about the token", async || {
        let answer = request.clone().send().await;
        (answer.status != 429).then_some(answer)
    })
    .await
}

#[tokio::test]
async fn who_is_not_known_or_may_not_gets_no_further_at_any_endpoint() {
    let (witness, fleet, mut gateway, web) = started(&["--auth", "tokens"]).await;
    let acme = token(&fleet, "ann", "acme", Scope::ALL, "*").await;
    let gone = token(&fleet, "gone", "acme", Scope::ALL, "*").await;
    let brief = token_for(&fleet, "brief", "acme", Scope::ALL, "*", Some(5_000)).await;
    let settler = token(&fleet, "settler", "acme", &[Scope::Settle], "*").await;
    let clerk = token(&fleet, "clerk", "acme", &[Scope::Approve], "*").await;
    for held in [&acme, &gone, &brief, &settler, &clerk] {
        known(web, held).await;
    }
    let mut connection = fleet.database.connect().await;
    let revoked = revoke(&mut connection, &gone.id, "ann", "a test").await;
    assert!(matches!(revoked.unwrap(), TokenRevoked::Now(_)));
    fleet.ring().await;
    for over in [&gone, &brief] {
        until("the token to be over", async || {
            let answer = with(web.get("/v1/tools"), over).send().await;
            (answer.status == 401).then_some(())
        })
        .await;
    }
    // A secret may have one of these, too.
    let secret = |held: &Held| held.text.splitn(3, '_').nth(2).unwrap().to_owned();
    let start = acme.text.strip_suffix(&secret(&acme)).unwrap();
    let of_another = format!("{start}{}", secret(&gone));
    let cut = format!("{start}{}", &secret(&acme)[1..]);
    let unknown = fleet::tokens::NewSecret::generate();
    let bearer = |text: &str| format!("Bearer {text}");
    let strangers = [
        (None, 401),
        (Some("Basic YTpi".to_owned()), 401),
        (Some("Bearer".to_owned()), 401),
        (Some(bearer("")), 401),
        (Some(bearer("tf_x_y")), 401),
        (Some(acme.text.clone()), 401),
        (Some(bearer(unknown.expose())), 401),
        (Some(bearer(&of_another)), 401),
        (Some(bearer(&cut)), 401),
        (Some(bearer(&gone.text)), 401),
        (Some(bearer(&brief.text)), 401),
    ];
    let mut tried = 0;
    let asking: Vec<Example> = endpoints(&nobodys())
        .into_iter()
        .filter(|one| one.asks)
        .collect();
    for endpoint in &asking {
        for (authorization, status) in &strangers {
            // The body never comes: nothing of it is waited for.
            let mut request = endpoint.without_its_body(web);
            if let Some(authorization) = authorization {
                request = request.header("Authorization", authorization);
            }
            let answer = patiently(request).await;
            let line = endpoint.line();
            assert_eq!(told(&answer), is(*status, "unauthenticated"), "{line}");
            assert!(answer.header("WWW-Authenticate").starts_with("Bearer"));
            assert_eq!(answer.header("Toolfleet-Answer"), "gateway");
            tried += 1;
        }
        let twice = with(with(endpoint.without_its_body(web), &acme), &acme);
        assert_eq!(told(&patiently(twice).await), is(401, "unauthenticated"));
        let foreign = with(endpoint.without_its_body(web), &acme);
        let foreign = patiently(foreign.header("Toolfleet-Tenant", "beta")).await;
        assert_eq!(told(&foreign), is(403, "forbidden"), "{}", endpoint.line());
        // Of these two at least one has not the scope.
        let mut forbidden = 0;
        for other in [&settler, &clerk] {
            let answer = patiently(with(endpoint.request(web), other)).await;
            forbidden += usize::from(told(&answer) == is(403, "forbidden"));
        }
        assert!(forbidden >= 1, "{}", endpoint.line());
        tried += 4;
    }
    println!("{tried} requests at {} endpoints", asking.len());
    assert_eq!(witness.asked("bad"), 0);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn no_endpoint_is_reached_by_a_strange_name_or_from_a_strange_page() {
    let flags = [
        "--allowed-hosts",
        "tools.example",
        "--cors-origin",
        "https://app.example",
    ];
    let (witness, fleet, mut gateway, web) = started(&flags).await;
    let hosts = [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1:80@evil",
        "tools.example.",
        "tools.example:x",
        "",
    ];
    let origins = [
        "null",
        "HTTPS://APP.EXAMPLE",
        "https://app.example:8443",
        "http://app.example",
        "https://app.example.evil.example",
        "http://localhost:1",
    ];
    let lines = hosts.map(|host| ("Host", host));
    let lines: Vec<(&str, &str)> = lines
        .into_iter()
        .chain(origins.map(|origin| ("Origin", origin)))
        .collect();
    let all = answering(&nobodys());
    let mut tried = 0;
    for endpoint in &all {
        for (name, value) in &lines {
            let request = endpoint.without_its_body(web).header(name, value);
            let refused = request.send().await;
            let line = endpoint.line();
            assert_eq!(
                told(&refused),
                is(403, "forbidden"),
                "{name}: {value} {line}"
            );
            // Whoever waits to be told to go on is not told so.
            let expecting = endpoint.without_its_body(web).header(name, value);
            let expecting = expecting.header("Expect", "100-continue");
            let mut answer = Vec::new();
            let mut connection = expecting.open().await;
            drop(connection.read_to_end(&mut answer).await);
            assert!(
                answer.starts_with(b"HTTP/1.1 403"),
                "{name}: {value} {line}"
            );
            tried += 2;
        }
        let twice = endpoint.without_its_body(web);
        let twice = twice
            .header("Host", "localhost")
            .header("Host", "evil.example");
        assert!([400, 403].contains(&twice.send().await.status));
        let old = format!("{} {} HTTP/1.0\r\n\r\n", endpoint.method, endpoint.path);
        let old = web.bytes(old.as_bytes()).await.unwrap();
        assert_eq!(told(&old), is(403, "forbidden"), "{}", endpoint.line());
        tried += 2;
    }
    println!("{tried} requests at {} endpoints", all.len());
    assert_eq!(witness.asked("bad"), 0);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn every_path_query_and_method_that_is_none_is_refused_by_name() {
    let (witness, fleet, mut gateway, web) = started(&[]).await;
    let all = answering(&nobodys());
    let mut tried = 0;
    let long = "a".repeat(8_000);
    for endpoint in &all {
        for name in [
            "a%2Fb", "..%2F..", "%00", "a%00", "%ff", "%C3%28", "a.b", "A", "*", "%2A", "a%20b",
            "%", "%zz", &long,
        ] {
            let Some(path) = endpoint.named(name) else {
                continue;
            };
            let answer = endpoint.at(web, &path).send().await;
            // What is wrong with a secret in a URL is not said.
            let secrets = ["{token}", "/signed"];
            let is_secret = secrets.iter().any(|part| endpoint.template.contains(part));
            let expected: &[u16] = match is_secret {
                true => &[404],
                false => &[400],
            };
            assert!(
                expected.contains(&answer.status),
                "{path:.60}: {}",
                answer.text()
            );
            tried += 1;
        }
        for query in [
            "x=1",
            "tool=a&tool=b",
            "%ff=1",
            "limit=%00",
            "limit=1&limit=1",
            "tools=2",
        ] {
            let path = endpoint.path.split('?').next().unwrap();
            let path = format!("{path}?{query}");
            let answer = endpoint.at(web, &path).send().await;
            assert_eq!(told(&answer), is(400, "invalid_arguments"), "{path}");
            tried += 1;
        }
        for languages in [&["fr"][..], &["EN"], &[""], &["en", "zh"]] {
            let mut request = endpoint.request(web);
            for language in languages {
                request = request.header("Toolfleet-Language", language);
            }
            let answer = request.send().await;
            assert_eq!(
                told(&answer),
                is(400, "header_invalid"),
                "{}",
                endpoint.line()
            );
            tried += 1;
        }
        let same = all.iter().filter(|one| one.template == endpoint.template);
        let methods: Vec<&str> = same.map(|one| one.method.as_str()).collect();
        for method in ["PUT", "DELETE", "PATCH", "TRACE", "BREW", "OPTIONS"] {
            if methods.contains(&method) {
                continue;
            }
            let line = format!("{method} {} HTTP/1.1", endpoint.path);
            let answer = web.request(&line).send().await;
            assert_eq!(told(&answer), is(405, "not_found"), "{line}");
            let allow = answer.header("Allow");
            assert!(allow.contains(&endpoint.method), "{line}: {allow}");
            tried += 1;
        }
    }
    println!("{tried} requests at {} endpoints", all.len());
    assert_eq!(witness.asked("bad"), 0);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

/// Bodies that no endpoint takes, and the code that each gets where it is read as JSON.
fn bodies() -> Vec<(Vec<u8>, &'static str)> {
    let of = |text: &str, code| (text.as_bytes().to_vec(), code);
    vec![
        of("[]", "invalid_arguments"),
        of("\"text\"", "invalid_arguments"),
        of("9007199254740993", "invalid_arguments"),
        of("{", "truncated_arguments"),
        of("{\"what\":\"a", "truncated_arguments"),
        of("{\"what\":\"a\"}x", "malformed_json"),
        of("{what:1}", "malformed_json"),
        of("\u{feff}{}", "malformed_json"),
        (b"{\"what\":\"\xff\"}".to_vec(), "invalid_unicode"),
        (
            format!("{{\"what\":{}{}}}", "[".repeat(5_000), "]".repeat(5_000)).into_bytes(),
            "depth_exceeded",
        ),
    ]
}

/// Bodies with two values for one name, one of which each endpoint reads, and with numbers that no program of doubles keeps.
const DOUBLED: [&str; 4] = [
    r#"{"what":"bad","what":"bad"}"#,
    r#"{"do":"list","do":"list"}"#,
    r#"{"token":"x.y","result":1,"result":1}"#,
    r#"{"note":"n","not\u0065":"n","args_hash":"0"}"#,
];

#[tokio::test]
async fn every_body_that_is_none_is_refused_by_name() {
    let (witness, fleet, mut gateway, web) = started(&[]).await;
    let posts: Vec<Example> = answering(&nobodys())
        .into_iter()
        .filter(Example::is_post)
        .collect();
    let mut tried = 0;
    for endpoint in &posts {
        let is_check = endpoint.template.ends_with("/check");
        // A verdict is what is asked for there.
        let code = |answer: &WebAnswer| (answer.status, answer.code());
        let refused = |code: &str| (if is_check { 200 } else { 400 }, code.to_owned());
        let read = bodies();
        let read = read.into_iter().filter(|_| !endpoint.takes_anything());
        for (body, expected) in read {
            // The calls of a batch are parsed one by one.
            // Of a message of MCP only what stands around its parameters.
            // Of a request of a vendor only what its members are.
            let of_many = [
                "/v1/batch",
                "/v1/turns",
                "/mcp",
                "/v1/chat/completions",
                "/v1/responses",
                "/v1/messages",
            ];
            let is_of_many =
                of_many.contains(&endpoint.path.as_str()) || endpoint.path.ends_with("/outputs");
            let is_deep_batch = expected == "depth_exceeded" && is_of_many;
            let expected = if is_deep_batch {
                "invalid_arguments"
            } else {
                expected
            };
            let answer = web.post(&endpoint.path, body.clone()).send().await;
            let begin = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
            assert_eq!(
                code(&answer),
                refused(expected),
                "{}: {begin}: {}",
                endpoint.line(),
                answer.text()
            );
            tried += 1;
        }
        for body in DOUBLED.iter().filter(|_| !endpoint.takes_anything()) {
            let answer = web.post(&endpoint.path, *body).send().await;
            let (status, code) = code(&answer);
            assert_eq!(status, refused("").0, "{body}");
            let codes = ["duplicate_key", "invalid_arguments"];
            assert!(
                codes.contains(&code.as_str()),
                "{}: {body}: {}",
                endpoint.line(),
                answer.text()
            );
            tried += 1;
        }
        for encoding in ["gzip", "br", "deflate", "identity, gzip", "x"] {
            let request = endpoint.request(web).header("Content-Encoding", encoding);
            assert_eq!(
                told(&request.send().await),
                is(415, "header_invalid"),
                "{encoding}"
            );
            tried += 1;
        }
        let large = web
            .request(&endpoint.line())
            .header("Content-Length", "1000000000");
        assert_eq!(told(&large.send().await), is(413, "payload_too_large"));
        tried += 1;
    }
    println!("{tried} requests at {} endpoints", posts.len());
    assert_eq!(witness.asked("bad"), 0);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

/// A token of one tenant, at everything that names a call: another tenant's call is answered as one that there never was, to the byte.
#[tokio::test]
async fn a_foreign_id_is_answered_as_an_unknown_one_at_every_endpoint() {
    let (witness, fleet, mut gateway, web) = started(&["--auth", "tokens"]).await;
    let acme = token(&fleet, "ann", "acme", Scope::ALL, "*").await;
    let beta = token(&fleet, "bob", "beta", Scope::ALL, "*").await;
    for held in [&acme, &beta] {
        known(web, held).await;
    }
    let made = with(web.post("/v1/call/look", r#"{"what":"a"}"#), &acme)
        .header("Idempotency-Key", "k")
        .send()
        .await;
    let call = made.header("Toolfleet-Call-Id").to_owned();
    let asks = async |endpoint: &Example, held: &Held| {
        let answer = with(endpoint.request(web), held).send().await;
        (answer.status, answer.text())
    };
    let mut tried = 0;
    for (its, none) in answering(&call).iter().zip(&answering(&nobodys())) {
        if !its.path.contains(&call) {
            continue;
        }
        let (foreign, unknown) = (asks(its, &beta).await, asks(none, &beta).await);
        assert_eq!(unknown.0, 404, "{}: {}", none.line(), unknown.1);
        assert_eq!(foreign, unknown, "{}", its.line());
        // Who has not the token of a call learns not even that it is there.
        if !its.template.ends_with("/output") {
            assert_ne!(asks(its, &acme).await, unknown, "{}", its.line());
        }
        tried += 1;
    }
    // A key is its tenant's, too.
    let by_key = "/v1/calls?tool=look&idempotency_key=k";
    let foreign = with(web.get(by_key), &beta).send().await;
    let unknown = with(web.get("/v1/calls?tool=look&idempotency_key=l"), &beta);
    let unknown = unknown.send().await;
    assert_eq!((foreign.status, foreign.body), (404, unknown.body));
    println!("{tried} endpoints that name a call");
    assert!(tried >= 7, "{tried}");
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
