//! Where requests may go: nothing that is not public is connected to, whatever its address or name is spelled like.

use std::time::Duration;

use fleet::{
    egress::{Egress, Reach},
    outcome::Outcome,
    secrets::Secrets,
};
use serde_json::json;
use worker::executors::Executor;

use crate::{
    context, executor_under, manifest, posting,
    server::{Reply, Server, json as json_answer},
    word,
};

/// The canary's machine, with its port behind each.
const SPELLINGS: [&str; 14] = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "017700000001",
    "0",
    "0.0.0.0",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "localhost",
    "LOCALHOST",
];

async fn ask(egress: &Egress, effect: &str, url: &str) -> Outcome {
    let tool = match effect {
        "read" => manifest(effect, json!({"method": "GET", "url": url}), json!({})),
        _ => posting(effect, url),
    };
    let executor = executor_under(egress.clone());
    let prepared = executor.prepare(&tool, &json!({}), &Secrets::new(None));
    let attempt = prepared.expect("it can be rendered");
    attempt.run(context(Duration::from_secs(20))).await.outcome
}

fn port(server: &Server) -> String {
    let url = server.url("");
    url.rsplit(':').next().expect("a port").to_owned()
}

#[tokio::test]
async fn no_spelling_reaches_the_workers_own_machine() {
    let canary = Server::start(|_| Reply::Bytes(json_answer(200, "{}"))).await;
    let (port, public) = (
        port(&canary),
        Egress::new(Reach::Public, "".parse().unwrap()),
    );
    for spelling in SPELLINGS {
        for effect in ["read", "once"] {
            let outcome = ask(&public, effect, &format!("http://{spelling}:{port}/x")).await;
            assert_eq!(
                word(&outcome),
                ("not_started", Some("egress_denied")),
                "{spelling}"
            );
        }
    }
    assert_eq!(canary.seen().connections, 0);
}

#[tokio::test]
async fn an_exception_is_reached() {
    let canary = Server::start(|_| Reply::Bytes(json_answer(200, "{}"))).await;
    let port = port(&canary);
    for (exceptions, host) in [("localhost", "localhost"), ("127.0.0.0/8,::1", "127.0.0.1")] {
        let egress = Egress::new(Reach::Public, exceptions.parse().unwrap());
        let outcome = ask(&egress, "read", &format!("http://{host}:{port}/x")).await;
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    }
    assert_eq!(canary.seen().connections, 2);
}

/// What a service that may be reached answers leads nowhere else.
#[tokio::test]
async fn a_redirect_is_not_followed() {
    let canary = Server::start(|_| Reply::Bytes(json_answer(200, "{}"))).await;
    let to = canary.url("/");
    let head = format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
    let service = Server::start(move |_| Reply::Bytes(head.clone().into_bytes())).await;
    let egress = Egress::new(Reach::Public, "localhost".parse().unwrap());
    let outcome = ask(
        &egress,
        "read",
        &format!("http://localhost:{}/x", port(&service)),
    )
    .await;
    assert_eq!(word(&outcome), ("definite_failure", Some("tool_error")));
    assert_eq!(canary.seen().connections, 0);
}
