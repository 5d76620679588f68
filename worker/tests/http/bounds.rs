//! Time and size: nothing runs past its attempt, nothing is read past its limit.

use std::time::Duration;

use fleet::outcome::Outcome;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use worker::executors::{AttemptContext, Stop};

use crate::{
    context, manifest, posting, prepare, run,
    server::{Reply, Server, answer, json as json_answer},
    word,
};

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000000\r\n\r\n";

#[tokio::test]
async fn a_tool_that_does_not_answer_is_left_at_the_deadline() {
    let dripping = Reply::Drip(HEAD.to_vec());
    for reply in [Reply::Hang, dripping] {
        let server = Server::start(move |_| reply.clone()).await;
        for effect in ["read", "once"] {
            let started = Instant::now();
            let prepared = prepare(&posting(effect, &server.url("/")), &json!({})).unwrap();
            let outcome = prepared
                .run(context(Duration::from_millis(300)))
                .await
                .outcome;
            assert_eq!(word(&outcome), ("unknown", Some("timeout")));
            assert!(
                started.elapsed() < Duration::from_secs(2),
                "{:?}",
                started.elapsed()
            );
        }
        server.until(|seen| seen.ended == 2).await;
    }
}

#[tokio::test]
async fn stopping_an_attempt_closes_its_connection() {
    for (taken_back, code) in [(true, "cancelled"), (false, "timeout")] {
        let server = Server::start(|_| Reply::Hang).await;
        let drain = CancellationToken::new();
        let context = AttemptContext {
            stop: Stop::under(drain.clone()),
            ..context(Duration::from_secs(60))
        };
        let stop = context.stop.clone();
        let manifest = posting("once", &server.url("/"));
        let running = prepare(&manifest, &json!({})).unwrap().run(context);
        let stopping = async {
            server.until(|seen| seen.requests.len() == 1).await;
            if taken_back {
                stop.cancel();
            } else {
                drain.cancel();
            }
        };
        let both = async { tokio::join!(running, stopping).0 };
        let outcome = tokio::time::timeout(Duration::from_secs(10), both)
            .await
            .unwrap()
            .outcome;
        assert_eq!(word(&outcome), ("unknown", Some(code)));
        server.until(|seen| seen.ended == 1).await;
    }
}

#[tokio::test]
async fn an_attempt_that_is_over_sends_nothing() {
    let server = Server::start(|_| Reply::Hang).await;
    let manifest = posting("once", &server.url("/"));
    let stopped = context(Duration::from_secs(60));
    stopped.stop.cancel();
    for (context, code) in [(stopped, "cancelled"), (context(Duration::ZERO), "timeout")] {
        let outcome = prepare(&manifest, &json!({}))
            .unwrap()
            .run(context)
            .await
            .outcome;
        assert_eq!(word(&outcome), ("not_started", Some(code)));
    }
    assert_eq!(server.seen().connections, 0);
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_not_read_to_its_end() {
    let chunked = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n".to_vec();
    for head in [HEAD.to_vec(), chunked] {
        let server = Server::start(move |_| Reply::Flood(head.clone())).await;
        let limited = |effect| {
            manifest(
                effect,
                json!({"method": "POST", "url": server.url("/")}),
                json!({"output_limit": "64KiB"}),
            )
        };
        let outcome = run(&limited("read"), json!({})).await;
        assert_eq!(
            word(&outcome),
            ("definite_failure", Some("output_too_large"))
        );
        let outcome = run(&limited("once"), json!({})).await;
        assert_eq!(word(&outcome), ("applied", Some("output_too_large")));
        let Outcome::Applied { result, .. } = outcome else {
            panic!("it is applied")
        };
        let kept = result.get();
        assert!(kept.len() < 20_000 && kept.ends_with("x… [cut]\""));
        server.until(|seen| seen.ended == 2).await;
        // What the kernel's buffers swallow is not ours; a client that read on would take it all.
        assert!(
            server.seen().flooded < 40_000_000,
            "{} bytes",
            server.seen().flooded
        );
    }
}

#[tokio::test]
async fn an_answer_of_exactly_the_limit_is_read() {
    for (size, flaw) in [(1_000, None), (1_001, Some("output_too_large"))] {
        let body = format!("{:?}", "x".repeat(size - 2));
        let server = Server::start(move |_| Reply::Bytes(json_answer(200, &body))).await;
        let http = json!({"method": "POST", "url": server.url("/")});
        let outcome = run(
            &manifest("once", http, json!({"output_limit": 1_000})),
            json!({}),
        )
        .await;
        assert_eq!(word(&outcome), ("applied", flaw), "{size}");
    }
}

#[tokio::test]
async fn a_refusal_without_an_end_is_still_a_refusal() {
    let head = b"HTTP/1.1 409 Conflict\r\ncontent-type: application/json\r\n\r\n".to_vec();
    let flood = Server::start({
        let head = head.clone();
        move |_| Reply::Flood(head.clone())
    })
    .await;
    let drip = Server::start(move |_| Reply::Drip(head.clone())).await;
    for server in [flood, drip] {
        let prepared = prepare(&posting("once", &server.url("/")), &json!({})).unwrap();
        let outcome = prepared
            .run(context(Duration::from_millis(500)))
            .await
            .outcome;
        assert_eq!(word(&outcome), ("definite_failure", Some("tool_error")));
    }
}

#[tokio::test]
async fn headers_without_an_end_are_not_read() {
    let many: String = (0..200)
        .map(|number| format!("x-{number}: 1\r\n"))
        .collect();
    let long = format!("x-long: {}\r\n", "x".repeat(1_000_000));
    for headers in [many, long] {
        let server =
            Server::start(move |_| Reply::BytesThenClose(answer(200, &headers, "{}"))).await;
        let outcome = run(&posting("once", &server.url("/")), json!({})).await;
        assert_eq!(word(&outcome), ("unknown", Some("unavailable")));
    }
}
