//! What each answer, and each lack of one, is taken to mean.

use std::time::Duration;

use fleet::{outcome::Outcome, secrets::Secrets};
use serde_json::json;
use worker::executors::Executor;

use crate::{
    context, executor, manifest, posting, prepare, run,
    server::{Reply, Server, answer, json as json_answer},
    word,
};

#[tokio::test]
async fn each_status_is_classed_over_a_real_socket() {
    let unavailable = Some("unavailable");
    for (status, read, write) in [
        (200, ("applied", None), ("applied", None)),
        (201, ("applied", None), ("applied", None)),
        (204, ("applied", None), ("applied", None)),
        (
            302,
            ("definite_failure", Some("tool_error")),
            ("unknown", unavailable),
        ),
        (
            401,
            ("definite_failure", Some("tool_error")),
            ("unknown", unavailable),
        ),
        (
            404,
            ("definite_failure", Some("tool_error")),
            ("definite_failure", Some("tool_error")),
        ),
        (
            408,
            ("definite_failure", Some("timeout")),
            ("unknown", unavailable),
        ),
        (
            422,
            ("definite_failure", Some("tool_error")),
            ("definite_failure", Some("tool_error")),
        ),
        (
            429,
            ("definite_failure", unavailable),
            ("unknown", unavailable),
        ),
        (
            500,
            ("definite_failure", unavailable),
            ("unknown", unavailable),
        ),
        (
            503,
            ("definite_failure", unavailable),
            ("not_started", unavailable),
        ),
        (
            504,
            ("definite_failure", Some("timeout")),
            ("unknown", unavailable),
        ),
    ] {
        let body = if status == 204 { "" } else { "{}" };
        let server = Server::start(move |_| Reply::Bytes(json_answer(status, body))).await;
        for (effect, expected) in [("read", read), ("idempotent", write), ("once", write)] {
            let http = json!({"method": "POST", "url": server.url("/")});
            let outcome = run(
                &manifest(effect, http, json!({"not_applied_statuses": [503]})),
                json!({}),
            )
            .await;
            assert_eq!(word(&outcome), expected, "{effect} {status}");
        }
    }
}

#[tokio::test]
async fn the_answer_is_the_result_to_the_last_digit() {
    let body = r#"{"id":9007199254740993,"price":1.10}"#;
    let server = Server::start(move |_| Reply::Bytes(json_answer(200, body))).await;
    let Outcome::Applied { result, flaw: None } =
        run(&posting("once", &server.url("/")), json!({})).await
    else {
        panic!("it is applied");
    };
    assert_eq!(result.get(), body);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = Server::start(|_| Reply::Bytes(json_answer(200, "{}"))).await;
    for status in [301, 302, 303, 307, 308] {
        let location = format!("location: {}\r\n", target.url("/"));
        let server = Server::start(move |_| Reply::Bytes(answer(status, &location, ""))).await;
        let outcome = run(&posting("read", &server.url("/")), json!({})).await;
        assert_eq!(word(&outcome), ("definite_failure", Some("tool_error")));
        assert!(
            outcome
                .failure()
                .unwrap()
                .message
                .english()
                .contains("redirect")
        );
        let outcome = run(&posting("once", &server.url("/")), json!({})).await;
        assert_eq!(word(&outcome), ("unknown", Some("unavailable")));
    }
    assert_eq!(target.seen().connections, 0);
}

#[tokio::test]
async fn a_pause_is_handed_on_in_both_forms() {
    for (headers, pause) in [
        ("retry-after: 7\r\n", Some(7_000)),
        (
            "date: Sun, 06 Nov 1994 08:49:37 GMT\r\nretry-after: Sun, 06 Nov 1994 08:50:07 GMT\r\n",
            Some(30_000),
        ),
        ("retry-after: Sun, 06 Nov 1994 08:50:07 GMT\r\n", None),
        ("", None),
    ] {
        let server = Server::start(move |_| Reply::Bytes(answer(503, headers, ""))).await;
        let http = json!({"method": "POST", "url": server.url("/")});
        let outcome = run(
            &manifest("once", http, json!({"not_applied_statuses": [503]})),
            json!({}),
        )
        .await;
        assert_eq!(word(&outcome), ("not_started", Some("unavailable")));
        assert_eq!(
            outcome.failure().unwrap().retry_after_ms,
            pause,
            "{headers}"
        );
    }
}

#[tokio::test]
async fn what_never_connected_never_started() {
    let free = { Server::start(|_| Reply::Hang).await.url("/") };
    let closing = Server::start(|_| Reply::CloseAtOnce).await;
    let no_tls = closing.url("/").replace("http:", "https:");
    for url in [free.as_str(), "http://no-such-host.invalid/", &no_tls] {
        for effect in ["read", "once"] {
            let outcome = run(&posting(effect, url), json!({})).await;
            assert_eq!(
                word(&outcome),
                ("not_started", Some("unavailable")),
                "{url}"
            );
        }
    }
    let refused = run(&posting("once", &free), json!({})).await;
    assert!(
        refused
            .failure()
            .unwrap()
            .message
            .english()
            .ends_with("connection refused"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_handshake_that_never_ends_never_started() {
    let silent = Server::start(|_| Reply::Hang).await;
    let outcome = run(
        &posting("once", &silent.url("/").replace("http:", "https:")),
        json!({}),
    )
    .await;
    assert_eq!(word(&outcome), ("not_started", Some("unavailable")));
    assert!(
        outcome.failure().unwrap().message.english().contains("3 s"),
        "{outcome:?}"
    );
    silent.until(|seen| seen.ended == 1).await;
}

#[tokio::test]
async fn what_breaks_after_connecting_is_unknown() {
    let closings = [
        Reply::CloseAtOnce,
        Reply::BytesThenClose(Vec::new()),
        Reply::BytesThenClose(b"HTTP/1.1 200 OK\r\ncontent-le".to_vec()),
        Reply::BytesThenClose(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{".to_vec()),
        Reply::BytesThenClose(b"not HTTP at all\r\n\r\n".to_vec()),
    ];
    for reply in closings {
        let server = Server::start(move |_| reply.clone()).await;
        for effect in ["read", "once"] {
            let outcome = run(&posting(effect, &server.url("/")), json!({})).await;
            assert_eq!(word(&outcome), ("unknown", Some("unavailable")));
        }
    }
}

/// The server closes at every moment it can. If anything below us sent a request again, there would be more
/// connections or more requests than attempts.
#[tokio::test]
async fn a_write_is_sent_at_most_once_whatever_the_server_does() {
    const ATTEMPTS: usize = 60;
    let server = Server::start(|number| match number % 6 {
        0 => Reply::CloseAtOnce,
        1 => Reply::BytesThenClose(Vec::new()),
        2 => Reply::BytesThenClose(b"HTTP/1.1 20".to_vec()),
        3 => Reply::BytesThenClose(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{".to_vec()),
        4 => Reply::BytesThenClose(json_answer(200, "{}")),
        _ => Reply::Bytes(json_answer(200, "{}")),
    })
    .await;
    let executor = executor();
    let manifest = posting("once", &server.url("/"));
    for number in 0..ATTEMPTS {
        let secrets = Secrets::new(None);
        let prepared = executor
            .prepare(&manifest, &json!({"number": number}), &secrets)
            .unwrap();
        let outcome = prepared.run(context(Duration::from_secs(20))).await.outcome;
        let expected = if number % 6 >= 4 {
            "applied"
        } else {
            "unknown"
        };
        assert_eq!(outcome.word().as_str(), expected, "{number}");
    }
    assert_eq!(server.seen().connections, ATTEMPTS);
    let mut bodies: Vec<String> = server
        .seen()
        .requests
        .into_iter()
        .map(|request| request.body)
        .collect();
    assert_eq!(bodies.len(), ATTEMPTS - ATTEMPTS / 6);
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies.len(), ATTEMPTS - ATTEMPTS / 6);
}

#[tokio::test]
async fn a_tool_says_no_in_its_own_words() {
    let body = r#"{"error": {"message": "order 7 is already paid", "code": "paid"}}"#;
    let server = Server::start(move |_| Reply::Bytes(json_answer(409, body))).await;
    let outcome = run(&posting("once", &server.url("/")), json!({})).await;
    let failure = outcome.failure().unwrap();
    assert_eq!(failure.message.english(), "order 7 is already paid");
    assert_eq!(failure.details, Some(json!({"status": 409})));
}

#[tokio::test]
async fn an_argument_that_does_not_fit_is_found_before_the_claim() {
    let http = json!({"method": "DELETE", "url": "http://127.0.0.1:1/users/{id}"});
    for id in ["", "..", "../admins"] {
        let failure = prepare(
            &manifest("once", http.clone(), json!({})),
            &json!({"id": id}),
        )
        .err()
        .unwrap();
        assert_eq!(failure.code.as_str(), "tool_error");
    }
}
