//! What is no request, and who is slow, at every endpoint: the connection ends, and nothing else.

use std::time::{Duration, Instant};

use fleet_tests::{
    invariants,
    web::{Web, WebAnswer},
};
use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    bad_input::{nobodys, started},
    every::{Example, answering},
};

/// A head of this endpoint with these lines.
fn head(endpoint: &Example, web: Web, lines: &str) -> String {
    let (line, address) = (endpoint.line(), web.address);
    format!("{line}\r\nHost: {address}\r\nConnection: close\r\n{lines}\r\n")
}

#[tokio::test]
async fn what_is_no_request_ends_its_connection_at_every_endpoint() {
    let (witness, fleet, mut gateway, web) = started(&["--strangers-max", "512"]).await;
    let many: String = (0..10_000).map(|n| format!("X-{n}: y\r\n")).collect();
    let long = format!("X: {}\r\n", "y".repeat(100_000));
    let chunked = |body: &str| format!("Transfer-Encoding: chunked\r\n\r\n{body}");
    let all = answering(&nobodys());
    let mut tried = 0;
    for endpoint in &all {
        for (lines, status) in [
            ("Content-Length: 5\r\nContent-Length: 6\r\n", 400),
            ("Content-Length: -1\r\n", 400),
            ("Content-Length: 1e3\r\n", 400),
            ("Transfer-Encoding: chunked, identity\r\n", 400),
            ("no colon\r\n", 400),
            ("X y: z\r\n", 400),
            (many.as_str(), 431),
            (long.as_str(), 431),
        ] {
            let bytes = head(endpoint, web, lines);
            let answer = web
                .bytes(bytes.as_bytes())
                .await
                .map(|answer| answer.status);
            // A connection that is closed while bytes are on their way may take the answer with it.
            let is_ended = answer.is_none() || answer == Some(status);
            assert!(is_ended, "{}: {lines:.60}: {answer:?}", endpoint.line());
            tried += 1;
        }
        if !endpoint.is_post() {
            continue;
        }
        for lies in [
            "zz\r\n",
            "5\r\nabc",
            "-1\r\n",
            "ffffffffffffffffff\r\n",
            "3\r\nabcdef\r\n0\r\n\r\n",
        ] {
            let head = head(endpoint, web, "");
            let (head, _end) = head.rsplit_once("\r\n").unwrap();
            let mut connection = web
                .open(format!("{head}{}", chunked(lies)).as_bytes())
                .await;
            drop(connection.shutdown().await);
            let mut answer = Vec::new();
            drop(connection.read_to_end(&mut answer).await);
            let status = WebAnswer::read(&answer).map(|answer| answer.status);
            // A file has to say before how long it is.
            let refused: &[u16] = match endpoint.takes_anything() {
                true => &[400, 411],
                false => &[400],
            };
            let is_refused = status.is_none_or(|status| refused.contains(&status));
            assert!(is_refused, "{}: {lies:?}: {status:?}", endpoint.line());
            tried += 1;
        }
        // Two at once: whichever counts, what follows is no second request.
        let smuggled = head(
            endpoint,
            web,
            "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n",
        );
        let inner = format!(
            "0\r\n\r\nGET /v1/tools HTTP/1.1\r\nHost: {}\r\n\r\n",
            web.address
        );
        let mut connection = web.open(format!("{smuggled}{inner}").as_bytes()).await;
        let mut answers = Vec::new();
        drop(connection.read_to_end(&mut answers).await);
        let text = String::from_utf8_lossy(&answers);
        assert!(text.matches("HTTP/1.1 ").count() <= 1, "{text}");
        assert!(!text.contains("\"tools\":["), "{text}");
        tried += 1;
    }
    println!("{tried} requests at {} endpoints", all.len());
    assert_eq!(web.get("/v1/tools").send().await.status, 200);
    assert_eq!(witness.asked("bad"), 0);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn who_is_slow_is_cut_off_at_every_endpoint() {
    let (witness, fleet, mut gateway, web) = started(&["--strangers-max", "512"]).await;
    let all = answering(&nobodys());
    let slow_heads = all.iter().map(|endpoint| async move {
        let head = head(endpoint, web, "");
        let began = Instant::now();
        let mut connection = web.open(&head.as_bytes()[..head.len() - 2]).await;
        let mut told = Vec::new();
        drop(connection.read_to_end(&mut told).await);
        let took = began.elapsed();
        let is_cut = took >= Duration::from_secs(9) && took < Duration::from_secs(25);
        assert!(is_cut, "{}: {took:?}", endpoint.line());
    });
    let slow_bodies = all
        .iter()
        .filter(|one| one.is_post())
        .map(|endpoint| async move {
            let head = head(endpoint, web, "Content-Length: 100\r\n");
            let began = Instant::now();
            let mut connection = web.open(format!("{head}{{\"a\"").as_bytes()).await;
            let mut told = Vec::new();
            drop(connection.read_to_end(&mut told).await);
            let took = began.elapsed();
            let answer = WebAnswer::read(&told).unwrap();
            let line = endpoint.line();
            assert_eq!(answer.status, 408, "{line}: {}", answer.text());
            assert_eq!(answer.code(), "truncated_arguments");
            // Who does not say who asks has less time.
            let least = if line.contains("/completions/") {
                9
            } else {
                29
            };
            let is_cut =
                took >= Duration::from_secs(least) && took < Duration::from_secs(least + 16);
            assert!(is_cut, "{line}: {took:?}");
        });
    // Bytes without an end come fast enough, and are too many.
    let endless = all
        .iter()
        .filter(|one| one.is_post())
        .map(|endpoint| async move {
            let head = head(endpoint, web, "Transfer-Encoding: chunked\r\n");
            let mut connection = web.open(head.as_bytes()).await;
            let piece = format!("10000\r\n{}\r\n", "x".repeat(0x1_0000));
            let mut sent = 0;
            while sent < 64 * 1024 * 1024 && connection.write_all(piece.as_bytes()).await.is_ok() {
                sent += piece.len();
            }
            assert!(sent < 64 * 1024 * 1024, "{}", endpoint.line());
        });
    tokio::join!(
        join_all(slow_heads),
        join_all(slow_bodies),
        join_all(endless)
    );
    println!("{} endpoints", all.len());
    assert_eq!(witness.asked("bad"), 0);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
