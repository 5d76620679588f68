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

/// The canary's machine, private networks and the cloud's metadata, with the canary's port behind each.
const SPELLINGS: [&str; 99] = [
    // This machine, in dotted, short, decimal, octal, hexadecimal and mixed forms.
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "0x7F000001",
    "0x7f.1",
    "0x7f.0x0.0x0.0x1",
    "0177.0.0.1",
    "0177.1",
    "0177.0.01",
    "00000177.0.0.1",
    "017700000001",
    "127.0.0.2",
    "127.255.255.254",
    "0",
    "0.0.0.0",
    "0x0",
    "00",
    "0.1",
    // Dots and digits of other scripts, and escapes.
    "127。0。0。1",
    "127．0．0．1",
    "１２７.0.0.1",
    "①②⑦.0.0.1",
    "%31%32%37.0.0.1",
    "127%2e0%2e0%2e1",
    "127.0.0.1.",
    // In IPv6, as itself, mapped, compatible, translated, and through 6to4 and Teredo.
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[0000::0001]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:7f00:1]",
    "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "[2001:0:7f00:1::]",
    "[fe80::1]",
    "[fd00::1]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    // By name, in any case, and with a user before it.
    "localhost",
    "LOCALHOST",
    "LocalHost.",
    "localhost.",
    "user:pass@127.0.0.1",
    "user@localhost",
    "example.com@127.0.0.1",
    "user:pass@[::1]",
    // Private networks from end to end, shared, link-local, reserved and multicast ones.
    "10.0.0.1",
    "10.255.255.254",
    "172.16.0.1",
    "172.31.255.254",
    "192.168.0.1",
    "192.168.255.254",
    "100.64.0.1",
    "100.127.255.254",
    "169.254.0.1",
    "192.0.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "167772161",
    "0xc0a80001",
    "[::ffff:10.0.0.1]",
    "[64:ff9b::192.168.0.1]",
    "[64:ff9b:1::7f00:1]",
    "[2002:c0a8:1::]",
    "[fe80::1%25lo]",
    "[fe80::1%lo]",
    "[fe80::1%251]",
    "[febf::1]",
    "[fec0::1]",
    "[ff02::1]",
    "[2001:db8::1]",
    // Where clouds tell their machines secrets.
    "169.254.169.254",
    "169.254.169.254.",
    "2852039166",
    "0xa9fea9fe",
    "025177524776",
    "0251.0376.0251.0376",
    "0xa9.0xfe.0xa9.0xfe",
    "0xa9.254.0251.254",
    "169.254.43518",
    "169.0xfea9fe",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[::169.254.169.254]",
    "[64:ff9b::169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a9fe:a9fe::]",
    "100.100.100.200",
    "168.63.129.16",
];

async fn ask(egress: &Egress, effect: &str, url: &str) -> Outcome {
    let tool = match effect {
        "read" => manifest(effect, json!({"method": "GET", "url": url}), json!({})),
        _ => posting(effect, url),
    };
    let executor = executor_under(egress.clone());
    match executor.prepare(&tool, &json!({}), &Secrets::new(None)) {
        Ok(attempt) => attempt.run(context(Duration::from_secs(20))).await.outcome,
        Err(failure) => Outcome::NotStarted(failure),
    }
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
    println!("{:<40} {:<14} once", "URL", "read");
    for spelling in SPELLINGS {
        let url = format!("http://{spelling}:{port}/x");
        let mut told = Vec::new();
        for effect in ["read", "once"] {
            let outcome = ask(&public, effect, &url).await;
            let (word, code) = word(&outcome);
            told.push(code.unwrap_or_default());
            assert_eq!(word, "not_started", "{spelling}: {outcome:?}");
            let expected = match spelling {
                // No request is made of a URL with a user in it, or of one that names a zone.
                none if none.contains(['@', '%']) && none.contains(['@', '[']) => ["tool_gone"; 2],
                // Not every system resolves it.
                "LocalHost." | "localhost." => ["egress_denied", "unavailable"],
                _ => ["egress_denied"; 2],
            };
            let is_expected = code.is_some_and(|code| expected.contains(&code));
            assert!(is_expected, "{spelling}: {outcome:?}");
        }
        println!("{url:<40} {:<14} {}", told[0], told[1]);
    }
    println!(
        "connections that reached the canary: {}",
        canary.seen().connections
    );
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
    let egress = Egress::new(Reach::Public, "localhost".parse().unwrap());
    for status in [
        "301 Moved",
        "302 Found",
        "303 Other",
        "307 Temporary",
        "308 Permanent",
    ] {
        let hosts = [
            "127.0.0.1",
            "localhost",
            "2130706433",
            "0177.1",
            "[::1]",
            "[::ffff:7f00:1]",
            "0.0.0.0",
            "user:pass@127.1",
        ];
        let whole = hosts.map(|host| format!("http://{host}:{}/", port(&canary)));
        let apart = [
            format!("//127.0.0.1:{}/", port(&canary)),
            "http://169.254.169.254/latest/meta-data/".to_owned(),
            "file:///etc/passwd".to_owned(),
        ];
        for to in whole.into_iter().chain(apart) {
            let head = format!(
                "HTTP/1.1 {status}\r\nlocation: {to}\r\nrefresh: 0; url={to}\r\ncontent-length: 0\r\n\r\n"
            );
            let service = Server::start(move |_| Reply::Bytes(head.clone().into_bytes())).await;
            let url = format!("http://localhost:{}/x", port(&service));
            for (effect, word_of_it) in [("read", "definite_failure"), ("once", "unknown")] {
                let outcome = ask(&egress, effect, &url).await;
                println!("{status:<14} to {to:<42} {effect:<5} {:?}", word(&outcome));
                assert_eq!(word(&outcome).0, word_of_it);
            }
        }
    }
    println!(
        "connections that reached the canary: {}",
        canary.seen().connections
    );
    assert_eq!(canary.seen().connections, 0);
}

/// What the guard costs on a call that it lets through, against one that it does not look at.
#[tokio::test]
#[ignore = "a measurement: run it on a machine that has nothing else to do"]
async fn the_guard_costs_next_to_nothing() {
    let service = Server::start(|_| Reply::Bytes(json_answer(200, "{}"))).await;
    let url = format!("http://localhost:{}/x", port(&service));
    let open = Egress::default();
    let guarded = Egress::new(Reach::Public, "localhost".parse().unwrap());
    for effect in ["read", "once"] {
        let tool = match effect {
            "read" => manifest(effect, json!({"method": "GET", "url": &url}), json!({})),
            _ => posting(effect, &url),
        };
        let executors = [&open, &guarded].map(|egress| executor_under(egress.clone()));
        let mut took = [Vec::new(), Vec::new()];
        for round in 0..3_000 {
            // In turn, and each first as often as the other.
            for which in [round % 2, 1 - round % 2] {
                let began = std::time::Instant::now();
                let prepared = executors[which].prepare(&tool, &json!({}), &Secrets::new(None));
                let attempt = prepared.expect("it can be rendered");
                let outcome = attempt.run(context(Duration::from_secs(20))).await.outcome;
                took[which].push(began.elapsed());
                assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
            }
        }
        let [open, guarded] = took.map(|mut took| {
            took.sort();
            took[took.len() / 2].as_secs_f64() * 1e6
        });
        let cost = (guarded / open - 1.0) * 100.0;
        println!("{effect}: {open:.1} us without the guard, {guarded:.1} us with it: {cost:+.1} %");
    }
}
