//! Messages that nobody can read, from a client that may send what it likes: no connection ends by them.

use std::time::Duration;

use fleet_tests::{
    fleet::{Fleet, Spec, counter},
    invariants,
    load::insist,
    proxy::Proxy,
    raw::{BAD_HEADERS, RawClient, with_headers, without_headers},
    witness::Witness,
};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

const SUBJECT: &[u8] = b"toolfleet.v1.default.call.look";
const BODY: &[u8] = br#"{"what":"bad"}"#;
const GOOD_HEADERS: &[u8] = b"NATS/1.0\r\nA: b\r\n\r\n";
const MALFORMED: &str = "toolfleet_malformed_messages_total";

/// Every way to be malformed, with this reply: what is wrong, and the bytes. The last two have a reply of their own.
fn every_kind(reply: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let of_headers = BAD_HEADERS
        .iter()
        .map(|(what, headers)| (*what, with_headers(SUBJECT, reply, headers, BODY)));
    let mut all: Vec<_> = of_headers.collect();
    let subject = b"toolfleet.v1.default.call.l\xff\xfek";
    all.push((
        "a subject with headers, not UTF-8",
        with_headers(subject, reply, GOOD_HEADERS, BODY),
    ));
    all.push((
        "a subject, not UTF-8",
        without_headers(subject, reply, BODY),
    ));
    let bad_reply = b"_INBOX.\xff\xfe";
    all.push((
        "a reply with headers, not UTF-8",
        with_headers(SUBJECT, bad_reply, GOOD_HEADERS, BODY),
    ));
    all.push((
        "a reply, not UTF-8",
        without_headers(SUBJECT, bad_reply, BODY),
    ));
    all
}

/// A fleet whose dispatcher is connected through a wire that counts its connections.
async fn fleet(witness: &Witness) -> (Fleet, Proxy) {
    let spec = Spec::with([witness.tool("look", "read")]).dispatchers(0);
    let mut fleet = Fleet::start(spec.workers(0, &[])).await;
    let wire = Proxy::to(fleet.nats_port()).await;
    let url = fleet.nats_url_at(wire.port());
    fleet.add_dispatcher_with(&["--nats-url", &url]).await;
    fleet.add_worker(&[]).await;
    (fleet, wire)
}

/// How often a second each kind is sent, and for how many seconds.
const EACH: u32 = 200;
const SECONDS: u32 = 3;
const NEIGHBOURS: u32 = 50;

#[tokio::test]
async fn malformed_requests_cost_a_neighbour_nothing() {
    let witness = Witness::start().await;
    let (fleet, wire) = fleet(&witness).await;
    let mut bad = RawClient::connect(fleet.nats_port(), "").await;
    // Answers go where nobody listens.
    let kinds = every_kind(b"_INBOX.nobody");
    let round: Vec<u8> = kinds.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
    let flood = async {
        let mut every = interval(Duration::from_secs(1) / EACH);
        every.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for _ in 0..EACH * SECONDS {
            every.tick().await;
            bad.send(&round).await;
        }
        bad.round_trip().await;
    };
    let neighbour = async {
        let mut every = interval(Duration::from_secs(1) / NEIGHBOURS);
        let mut calls = JoinSet::new();
        for number in 0..NEIGHBOURS * SECONDS {
            every.tick().await;
            let what = format!("n{number}");
            let call = fleet.submit("look", &json!({"what": what})).key(&what);
            // A dispatcher that has no processor to itself sends callers away, who come again.
            calls.spawn(insist(call));
        }
        calls.join_all().await
    };
    let ((), answers) = tokio::join!(flood, neighbour);
    let answered = answers
        .iter()
        .filter(|(answer, _)| answer["state"] == "succeeded");
    assert_eq!(
        (answered.count(), wire.connections()),
        ((NEIGHBOURS * SECONDS) as usize, 1),
        "answers of the neighbour, and connections of the dispatcher"
    );
    // The last of the bad ones are read before what is sent behind them.
    let after = fleet.submit("look", &json!({"what": "after"})).wait().await;
    assert_eq!(after["state"], "succeeded", "{}", *after);
    let sent = kinds.len() as f64 * f64::from(EACH * SECONDS);
    assert_eq!(counter(MALFORMED), sent);
    assert_eq!(witness.asked("bad"), 0);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_malformed_request_is_refused_where_its_reply_can_be_read() {
    let witness = Witness::start().await;
    let (fleet, wire) = fleet(&witness).await;
    let mut client = RawClient::connect(fleet.nats_port(), "").await;
    client.send(b"SUB _INBOX.raw.> 1\r\n").await;
    let with_answer = every_kind(b"_INBOX.raw.1");
    let with_answer = &with_answer[..with_answer.len() - 2];
    for (what, bytes) in with_answer {
        client.send(bytes).await;
        let answer = refusal(&client.next().await.content);
        assert_eq!(answer["error"]["code"], "header_invalid", "{what}");
        assert_eq!(
            (&answer["state"], &answer["call_id"]),
            (&json!("refused"), &Value::Null),
            "{what}"
        );
    }
    // Readable, and no name of a tool.
    for (subject, reply) in [
        ("toolfleet.v1.default.call.lo\u{a0}k", "_INBOX.raw.2"),
        ("toolfleet.v1.default.call.lo\u{2003}k", "_INBOX.raw.2"),
        ("toolfleet.v1.default.call.lo\u{b}k", "_INBOX.raw.2"),
    ] {
        let bytes = with_headers(subject.as_bytes(), reply.as_bytes(), GOOD_HEADERS, BODY);
        client.send(&bytes).await;
        let answer = refusal(&client.next().await.content);
        assert_eq!(answer["error"]["code"], "invalid_tool_name", "{subject:?}");
    }
    assert_eq!(wire.connections(), 1);
    assert_eq!(counter(MALFORMED), with_answer.len() as f64);
    let refused = r#"toolfleet_rejected_calls_total{error_type="header_invalid"}"#;
    assert_eq!(counter(refused), 2.0, "of which the tool cannot be read");
    let refused = r#"toolfleet_rejected_calls_total{error_type="header_invalid",tool="look"}"#;
    assert_eq!(counter(refused), BAD_HEADERS.len() as f64);
    assert_eq!(witness.asked("bad"), 0);
    invariants::hold(&fleet, &witness).await;
}

/// The envelope behind the headers of a refusal.
fn refusal(content: &[u8]) -> Value {
    let text = String::from_utf8_lossy(content);
    let (headers, body) = text.split_once("\r\n\r\n").expect("a refusal has headers");
    assert!(
        headers.contains("Nats-Service-Error-Code: 400"),
        "{headers}"
    );
    serde_json::from_str(body).unwrap()
}

/// Every other subject that a process of the fleet listens on, and the messages of a stream.
#[tokio::test]
async fn malformed_messages_reach_no_other_subscription() {
    let witness = Witness::start().await;
    let (fleet, wire) = fleet(&witness).await;
    let mut client = RawClient::connect(fleet.nats_port(), "").await;
    let call = uuid::Uuid::now_v7();
    let mut sent = 0;
    for subject in [
        "toolfleet.control.changed".to_owned(),
        "toolfleet.control.room".to_owned(),
        "toolfleet.v1.default.get".to_owned(),
        "toolfleet.v1.default.batch".to_owned(),
        "toolfleet.v1.default.admin.settle".to_owned(),
        "$SRV.PING".to_owned(),
        format!("toolfleet.done.{call}.{call}"),
        format!("toolfleet.cancel.{call}"),
        format!("toolfleet.jobs.default.{call}.1"),
        format!("toolfleet.v1.default.event.s.{call}"),
    ] {
        for (_, headers) in BAD_HEADERS {
            let bytes = with_headers(subject.as_bytes(), b"_INBOX.nobody", headers, b"{}");
            client.send(&bytes).await;
            sent += 1;
        }
    }
    client.round_trip().await;
    let answer = fleet.submit("look", &json!({"what": "a"})).wait().await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    assert_eq!(wire.connections(), 1, "after {sent} messages");
    // Holds only once the pointer that points nowhere is gone: its worker has read it.
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn headers_without_end_are_refused_before_they_are_read() {
    let witness = Witness::start().await;
    let (fleet, wire) = fleet(&witness).await;
    let mut client = RawClient::connect(fleet.nats_port(), "").await;
    client.send(b"SUB _INBOX.raw.> 1\r\n").await;
    let lines = |count: u32| {
        let lines = (0..count).map(|n| format!("{n:x}:\r\n"));
        format!("NATS/1.0\r\n{}\r\n", lines.collect::<String>())
    };
    let long = format!("NATS/1.0\r\nA: {}\r\n\r\n", "x".repeat(64 * 1024));
    // Those that are read are too many for a request, too.
    for (headers, unread) in [
        (lines(1_022), 0.0),
        (lines(1_023), 1.0),
        (lines(40_000), 1.0),
        (long, 1.0),
    ] {
        let before = counter(MALFORMED);
        let bytes = with_headers(SUBJECT, b"_INBOX.raw.1", headers.as_bytes(), BODY);
        client.send(&bytes).await;
        let answer = refusal(&client.next().await.content);
        assert_eq!(answer["error"]["code"], "header_invalid", "{answer}");
        let bytes = headers.len();
        assert_eq!(counter(MALFORMED) - before, unread, "{bytes} bytes");
    }
    assert_eq!((witness.asked("bad"), wire.connections()), (0, 1));
}
