//! How many connections and bodies a gateway has at a time: of strangers, of a token, and in all.

use std::time::{Duration, Instant};

use fleet::{
    store::tokens::{self, TokenRevoked},
    tokens::Scope,
};
use fleet_tests::{
    fleet::{Fleet, Spec, counter},
    wait::{LONG, until_so},
    web::{Web, WebAnswer},
    witness::{Reply, Witness},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::tokens::{Held, is, known, token, told, with};

const MIB: usize = 1024 * 1024;

/// One request on a connection that stays open, by this token, and its answer; `None` where the connection ends without one.
async fn asks(connection: &mut TcpStream, web: Web, held: Option<&Held>) -> Option<WebAnswer> {
    let request = web.get("/v1/tools/none");
    let request = match held {
        Some(held) => with(request, held),
        None => request,
    };
    let text = String::from_utf8(request.to_bytes()).unwrap();
    let kept = text.replace("Connection: close\r\n", "");
    connection.write_all(kept.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    loop {
        let mut piece = [0; 4096];
        match connection.read(&mut piece).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => answer.extend_from_slice(&piece[..read]),
        }
        if let Some(whole) = WebAnswer::read(&answer) {
            let length: usize = whole.header("Content-Length").parse().unwrap();
            if whole.body.len() >= length {
                return Some(whole);
            }
        }
    }
}

/// Whether the other end closes the connection within this time.
async fn is_closed_within(connection: &mut TcpStream, time: Duration) -> bool {
    let mut rest = Vec::new();
    timeout(time, connection.read_to_end(&mut rest))
        .await
        .is_ok()
}

async fn open(web: Web) -> TcpStream {
    TcpStream::connect(web.address).await.unwrap()
}

#[tokio::test]
async fn a_token_has_so_many_connections_and_others_have_theirs() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let flags = ["--auth", "tokens", "--connections-each-max", "3"];
    let (mut gateway, web) = fleet.gateway(&flags).await;
    let greedy = token(&fleet, "greedy", "default", &[Scope::Read], "*").await;
    let other = token(&fleet, "other", "default", &[Scope::Read], "*").await;
    for held in [&greedy, &other] {
        known(web, held).await;
    }
    let mut kept = Vec::new();
    until_so("three connections to be the token's", async || {
        let mut connection = open(web).await;
        let answer = asks(&mut connection, web, Some(&greedy)).await.unwrap();
        if told(&answer) == is(404, "unknown_tool") {
            kept.push(connection);
        }
        kept.len() == 3
    })
    .await;
    let mut further = open(web).await;
    let answer = asks(&mut further, web, Some(&greedy)).await.unwrap();
    assert_eq!(told(&answer), is(429, "rate_limited"), "{}", answer.text());
    assert_eq!(answer.header("Connection"), "close");
    assert!(is_closed_within(&mut further, Duration::from_secs(5)).await);
    let mut others = open(web).await;
    let answer = asks(&mut others, web, Some(&other)).await.unwrap();
    assert_eq!(answer.status, 404, "{}", answer.text());
    // Those that it has go on, and one that ends leaves its place.
    let answer = asks(&mut kept[0], web, Some(&greedy)).await.unwrap();
    assert_eq!(answer.status, 404, "{}", answer.text());
    drop(kept.pop());
    until_so("the place to be free", async || {
        let mut connection = open(web).await;
        let answer = asks(&mut connection, web, Some(&greedy)).await;
        answer.is_some_and(|answer| answer.status == 404)
    })
    .await;
    drop((kept, others));
    gateway.drain().await;
}

#[tokio::test]
async fn a_connection_is_a_strangers_again_when_its_last_request_had_no_token() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let flags = ["--auth", "tokens", "--strangers-max", "2"];
    let (mut gateway, web) = fleet.gateway(&flags).await;
    let held = token(&fleet, "known", "default", &[Scope::Read], "*").await;
    until_so("the token to be known", async || {
        let request = with(web.get("/v1/tools/none"), &held);
        request.try_send().await.is_some_and(|it| it.status == 404)
    })
    .await;
    let mut all = Vec::new();
    until_so("three connections to be known", async || {
        let mut connection = open(web).await;
        // Those before may be on their way out.
        let answer = asks(&mut connection, web, Some(&held)).await;
        all.extend(answer.map(|_answer| connection));
        all.len() == 3
    })
    .await;
    let mut stays = Vec::new();
    for connection in &mut all {
        let answer = asks(connection, web, None).await.unwrap();
        assert_eq!(answer.status, 401, "{}", answer.text());
        stays.push(answer.header("Connection") != "close");
    }
    assert_eq!(stays, [true, true, false]);
    assert!(is_closed_within(&mut all[2], Duration::from_secs(5)).await);
    let answer = asks(&mut all[1], web, Some(&held)).await.unwrap();
    assert_eq!(answer.status, 404, "{}", answer.text());
    drop(all);
    gateway.drain().await;
}

#[tokio::test]
async fn many_connections_that_come_at_once_and_say_who_asks_are_all_served() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let flags = ["--auth", "tokens", "--strangers-max", "2"];
    let (mut gateway, web) = fleet.gateway(&flags).await;
    let held = token(&fleet, "known", "default", &[Scope::Read], "*").await;
    known(web, &held).await;
    let mut all = Vec::new();
    for _ in 0..64 {
        all.push(open(web).await);
    }
    // All are known at the end, none was closed.
    let asking = all
        .iter_mut()
        .map(|connection| asks(connection, web, Some(&held)));
    let answers = futures_util::future::join_all(asking).await;
    let served = answers.iter().flatten().filter(|it| it.status == 404);
    assert_eq!(served.count(), 64);
    drop(all);
    gateway.drain().await;
}

#[tokio::test]
async fn idle_connections_of_a_revoked_token_are_closed_within_two_seconds() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let gone = token(&fleet, "gone", "default", &[Scope::Read], "*").await;
    let stays = token(&fleet, "stays", "default", &[Scope::Read], "*").await;
    for held in [&gone, &stays] {
        known(web, held).await;
    }
    let (mut idle, mut other) = (open(web).await, open(web).await);
    assert!(asks(&mut idle, web, Some(&gone)).await.is_some());
    assert!(asks(&mut other, web, Some(&stays)).await.is_some());
    let mut connection = fleet.database.connect().await;
    let revoked = tokens::revoke(&mut connection, gone.id(), "ann", "a test").await;
    assert!(matches!(revoked.unwrap(), TokenRevoked::Now(_)));
    fleet.ring().await;
    let began = Instant::now();
    assert!(is_closed_within(&mut idle, Duration::from_secs(2)).await);
    println!("closed after {:?}", began.elapsed());
    let answer = asks(&mut other, web, Some(&stays)).await.unwrap();
    assert_eq!(answer.status, 404, "{}", answer.text());
    drop(other);
    gateway.drain().await;
}

#[tokio::test]
async fn strangers_bodies_have_a_part_of_the_room_and_ten_seconds() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let half = format!("{{\"result\":\"{}", "x".repeat(6 * MIB));
    let head = |length: usize| {
        format!(
            "POST /v1/completions/x HTTP/1.1\r\nHost: {}\r\nContent-Length: {length}\r\n\r\n",
            web.address
        )
    };
    let began = Instant::now();
    let mut first = web.open((head(7 * MIB) + &half).as_bytes()).await;
    until_so("the second to have no room", async || {
        let mut second = web.open(head(7 * MIB).as_bytes()).await;
        // It may be closed before all of it is sent.
        drop(second.write_all(&half.as_bytes()[..2 * MIB]).await);
        let mut answer = Vec::new();
        let read = second.read_to_end(&mut answer);
        drop(timeout(Duration::from_secs(1), read).await);
        let answer = WebAnswer::read(&answer);
        answer
            .is_some_and(|it| told(&it) == is(503, "overloaded") && it.header("Retry-After") == "1")
    })
    .await;
    // A small one is none of these.
    let small = web.post("/v1/completions/x", "{\"result\":1}").send().await;
    assert_eq!(told(&small), is(404, "not_found"), "{}", small.text());
    let mut answer = Vec::new();
    drop(first.read_to_end(&mut answer).await);
    let answer = WebAnswer::read(&answer).unwrap();
    assert_eq!(told(&answer), is(408, "truncated_arguments"));
    let took = began.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    gateway.drain().await;
}

#[tokio::test]
async fn a_batch_with_too_much_in_it_is_413_whatever_is_too_much() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("look", "read")]).max_payload(8 * 1024 * 1024);
    let fleet = Fleet::start(spec).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    // All that a batch may have, which with its headers is more than one message carries.
    let around = r#"{"calls":[{"tool":"look","args":{"what":""}}]}"#;
    let text = "x".repeat(8 * MIB - around.len());
    let whole = around.replace("\"\"", &format!("\"{text}\""));
    assert_eq!(whole.len(), 8 * MIB);
    let whole = web.post("/v1/batch", whole).header("Toolfleet-Run", "r");
    let answer = whole.send().await;
    assert_eq!(
        told(&answer),
        is(413, "payload_too_large"),
        "{}",
        answer.text()
    );
    for (calls, one) in [(1_001, "{}"), (2 * MIB, "0")] {
        let batch = format!("{{\"calls\":[{}]}}", vec![one; calls].join(","));
        let answer = web.post("/v1/batch", batch).send().await;
        let text = answer.text();
        assert_eq!(told(&answer), is(413, "payload_too_large"), "{text}");
        assert!(text.contains(&format!("{calls} calls")), "{text}");
    }
    // Nobody looks at what is said behind so many fields, so it is not passed on.
    let many = "\"a\":0,".repeat(1_000);
    for batch in [
        format!("{{{many}\"calls\":[]}}"),
        format!("{{\"calls\":[{{{many}\"tool\":\"look\"}}]}}"),
        format!("{{\"calls\":[{{\"meta\":{{{many}\"principal\":\"root\"}}}}]}}"),
    ] {
        let answer = web.post("/v1/batch", batch).send().await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert_eq!(answer.header("Toolfleet-Answer"), "gateway");
    }
    assert_eq!(witness.look(|seen| seen.requests.len()), 0);
    gateway.drain().await;
}

/// The bytes of an answer that nobody reads go at the cost of who does not read, and of nobody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_nobody_reads_do_not_fill_the_memory() {
    const UNREAD: &str = r#"toolfleet_refused_connections_total{reason="unread"}"#;
    // The kernel takes up to 4 MiB of an answer itself.
    const LARGE: usize = 6 * MIB;
    let witness = Witness::start().await;
    witness.always("large", Reply::Body(format!("\"{}\"", "z".repeat(LARGE))));
    let tool = witness.tool("look", "read") + "output_limit: 8000000\n";
    let fleet = Fleet::start(Spec::with([tool]).max_payload(8 * 1024 * 1024)).await;
    let flags = ["--auth", "tokens", "--answers-max-mib", "16"];
    let (mut gateway, web) = fleet.gateway(&flags).await;
    let deaf = token(&fleet, "deaf", "default", &[Scope::Call], "*").await;
    let other = token(&fleet, "other", "default", &[Scope::Call], "*").await;
    for held in [&deaf, &other] {
        known(web, held).await;
    }
    let call = with(web.post("/v1/call/look", r#"{"what": "large"}"#), &deaf);
    let call = call.send().await;
    assert_eq!(call.status, 200, "{}", call.text());
    let path = format!("/v1/calls/{}", call.header("Toolfleet-Call-Id"));

    let mut kept = Vec::new();
    while counter(UNREAD) == 0.0 && kept.len() < 40 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut connection = socket.connect(web.address).await.unwrap();
        let asking = with(web.get(&path), &deaf).to_bytes();
        connection.write_all(&asking).await.unwrap();
        // Its first byte has come, so the rest of it waits.
        connection.readable().await.unwrap();
        kept.push(connection);
        let answer = with(web.post("/v1/call/look", r#"{"what": "large"}"#), &other);
        let answer = answer.send().await;
        assert_eq!((answer.status, answer.body.len() > LARGE), (200, true));
    }
    assert!(counter(UNREAD) > 0.0, "{} connections", kept.len());
    // The first one is that which waits for the longest.
    let mut rest = Vec::new();
    let read = timeout(LONG, kept[0].read_to_end(&mut rest)).await;
    assert!(read.is_ok() && rest.len() < LARGE, "{}", rest.len());
    drop(kept);
    gateway.drain().await;
}
