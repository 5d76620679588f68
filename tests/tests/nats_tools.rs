//! Tools on NATS against a real server: what is sent, what each reply means, and what is never sent late.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::{sync::Arc, time::Duration};

use async_nats::{Client, HeaderMap, Message, Subscriber};
use fleet::{
    bus::connect::Bus,
    call::Language,
    config::BusArgs,
    fencing::StateDir,
    ids::{AttemptId, CallId, WorkerId},
    manifest::Manifest,
    outcome::{Outcome, ToolFailure},
    secrets::Secrets,
    wire::{code::Code, trace::TraceContext},
};
use fleet_tests::{
    proxy::{From, Proxy},
    raw::{BAD_HEADERS, RawClient, with_headers},
    wait::{LONG, until_so},
};
use futures_util::StreamExt;
use nix::{sys::signal::Signal, unistd::Pid};
use secrecy::SecretString;
use serde_json::{Value, json, value::RawValue};
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use toolfleet::servers::{Nats, NatsOptions};
use worker::executors::{
    AttemptContext, AttemptFiles, Executor, HandedFiles, LINGER_MAX, Prepared, Progress, Promise,
    Returned, Stop, nats::NatsExecutor,
};

const PAYLOAD_MAX: u32 = 256 * 1024;

/// A server, a worker's connection through a wire that can be cut, and a service's connection.
struct Scene {
    bus: Bus,
    executor: NatsExecutor,
    wire: Option<Proxy>,
    service: Client,
    nats: Nats,
    folder: TempDir,
}

impl Scene {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = NatsOptions {
            store: folder.path().join("store"),
            port: None,
            log: folder.path().join("log"),
            max_payload: PAYLOAD_MAX,
            password: None,
            further: String::new(),
        };
        let nats = Nats::start(options).await.unwrap();
        let wire = Proxy::to(nats.port()).await;
        let args = BusArgs::at(SecretString::from(format!(
            "nats://127.0.0.1:{}",
            wire.port()
        )));
        let bus = Bus::connect(&args, "worker");
        let bus = bus.await.unwrap();
        Self {
            executor: NatsExecutor::new(bus.clone()),
            bus,
            wire: Some(wire),
            service: async_nats::connect(nats.url()).await.unwrap(),
            nats,
            folder,
        }
    }

    async fn hear(&self, subject: &'static str) -> Subscriber {
        let heard = self.service.subscribe(subject).await.unwrap();
        self.service.flush().await.unwrap();
        // The server reads a connection in order, but another one's message may come first: it has to know by then.
        self.service.flush().await.unwrap();
        let probe = self.service.new_inbox();
        let mut echo = self.service.subscribe(probe.clone()).await.unwrap();
        self.service.publish(probe, "".into()).await.unwrap();
        next(&mut echo).await;
        heard
    }

    fn prepare(
        &self,
        manifest: &Manifest,
        arguments: &Value,
    ) -> Result<Box<dyn Prepared>, ToolFailure> {
        self.executor
            .prepare(manifest, arguments, &Secrets::new(None))
    }

    /// Runs one attempt, which a service answers with these headers and body.
    async fn answered(&self, manifest: &Manifest, headers: &[(&str, &str)], body: &str) -> Outcome {
        let mut requests = self.hear("tools.t").await;
        let prepared = self.prepare(manifest, &json!({})).unwrap();
        let mut sent = HeaderMap::new();
        for (name, value) in headers {
            sent.insert(*name, *value);
        }
        let (Returned { outcome, .. }, ()) = tokio::join!(prepared.run(context(LONG)), async {
            let inbox = next(&mut requests).await.reply.unwrap();
            let body = body.to_owned().into();
            let replying = self.service.publish_with_headers(inbox, sent, body);
            replying.await.unwrap();
        });
        outcome
    }

    /// Takes the wire away and waits until the worker's client knows.
    async fn disconnect(&mut self) {
        self.wire = None;
        until_so("the connection to be lost", async || {
            !self.bus.is_connected()
        })
        .await;
    }
}

async fn next(messages: &mut Subscriber) -> Message {
    timeout(LONG, messages.next())
        .await
        .expect("a message")
        .unwrap()
}

fn manifest(effect: &str, more: Value) -> Manifest {
    let mut manifest = json!({
        "name": "t", "version": 1, "description": "d", "effect": effect,
        "input_schema": {"type": "object"}, "executor": {"nats": {"subject": "tools.t"}},
    });
    for (key, value) in more.as_object().unwrap() {
        manifest[key] = value.clone();
    }
    serde_json::from_value(manifest).unwrap()
}

fn context(time: Duration) -> AttemptContext {
    AttemptContext {
        call_id: CallId::generate(),
        attempt_id: AttemptId::generate(),
        attempt: 3,
        tool: "t".parse().unwrap(),
        tool_version: 1,
        idempotency_key: "key-1".to_owned(),
        deadline_at: OffsetDateTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
        until: Instant::now() + time,
        tenant: "acme".parse().unwrap(),
        session: Some("chat-1".parse().unwrap()),
        run: Some("run-1".parse().unwrap()),
        meta: RawValue::from_string("{\"user\":\n\"Zoë\"}".to_owned()).ok(),
        language: Language::En,
        trace: TraceContext::from_headers(|name| match name {
            "traceparent" => Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
            "tracestate" => Some("a=1".into()),
            _ => None,
        }),
        stop: Stop::under(CancellationToken::new()),
        progress: Progress::default(),
        completion_token: None,
        asked: None,
        files: AttemptFiles::default(),
        handed: HandedFiles::default(),
        promise: Promise::default(),
    }
}

fn word(outcome: &Outcome) -> (&'static str, Option<&'static str>) {
    let code = outcome.failure().map(|failure| failure.code.as_str());
    (outcome.word().as_str(), code)
}

#[tokio::test]
async fn a_service_is_told_everything_and_gets_the_arguments_to_the_last_digit() {
    let scene = Scene::start().await;
    let mut requests = scene.hear("tools.t").await;
    let how = json!({"idempotency": {"argument": "key"}});
    let arguments = r#"{"b": 9007199254740993, "a": 1.10, "key": "theirs"}"#;
    let arguments = serde_json::from_str(arguments).unwrap();
    let prepared = scene
        .prepare(&manifest("idempotent", how), &arguments)
        .unwrap();
    let context = context(LONG);
    let (call, attempt) = (context.call_id.to_string(), context.attempt_id.to_string());
    let (Returned { outcome, .. }, request) = tokio::join!(prepared.run(context), async {
        let request = next(&mut requests).await;
        let inbox = request.reply.clone().unwrap();
        scene
            .service
            .publish(inbox, r#"{"n":1.10}"#.into())
            .await
            .unwrap();
        request
    });
    let Outcome::Applied { result, flaw: None } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(result.get(), r#"{"n":1.10}"#);
    assert_eq!(
        request.payload,
        r#"{"a":1.10,"b":9007199254740993,"key":"key-1"}"#
    );
    let headers = request.headers.unwrap();
    for (name, value) in [
        ("Toolfleet-Call-Id", call.as_str()),
        ("Toolfleet-Attempt-Id", attempt.as_str()),
        ("Toolfleet-Attempt", "3"),
        ("Toolfleet-Tool", "t"),
        ("Toolfleet-Tool-Version", "1"),
        ("Toolfleet-Tenant", "acme"),
        ("Toolfleet-Session", "chat-1"),
        ("Toolfleet-Run", "run-1"),
        ("Toolfleet-Meta", r#"{"user": "Zo\u00eb"}"#),
        ("Toolfleet-Language", "en"),
        ("Toolfleet-Deadline-Ms", "1700000000123"),
        ("Idempotency-Key", "key-1"),
        (
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ),
        ("tracestate", "a=1"),
    ] {
        assert_eq!(
            headers.get(name).map(|value| value.as_str()),
            Some(value),
            "{name}"
        );
    }
    let left: u64 = headers
        .get("Toolfleet-Remaining-Ms")
        .unwrap()
        .as_str()
        .parse()
        .unwrap();
    assert!(0 < left && left <= 30_000, "{left}");
}

#[tokio::test]
async fn the_key_goes_out_under_the_name_that_the_manifest_gives() {
    let scene = Scene::start().await;
    let mut requests = scene.hear("tools.t").await;
    let how = json!({"idempotency": {"header": "Nats-Msg-Id"}});
    let prepared = scene
        .prepare(&manifest("idempotent", how), &json!({}))
        .unwrap();
    let (_outcome, request) = tokio::join!(prepared.run(context(LONG)), async {
        let request = next(&mut requests).await;
        scene
            .service
            .publish(request.reply.clone().unwrap(), "1".into())
            .await
            .unwrap();
        request
    });
    let headers = request.headers.unwrap();
    for name in ["Nats-Msg-Id", "Idempotency-Key"] {
        assert_eq!(headers.get(name).unwrap().as_str(), "key-1");
    }
}

#[tokio::test]
async fn each_reply_has_its_class() {
    let scene = Scene::start().await;
    let limit = json!({"output_limit": 100});
    let large = format!("\"{}\"", "x".repeat(100));
    for effect in ["read", "once"] {
        let manifest = manifest(effect, limit.clone());
        let unavailable = Some("unavailable");
        for (code, body, expected) in [
            (None, "{}", ("applied", None)),
            (None, "", ("applied", Some("output_invalid"))),
            (None, "{oops", ("applied", Some("output_invalid"))),
            (None, large.as_str(), ("applied", Some("output_too_large"))),
            (Some("404"), "", ("definite_failure", Some("tool_error"))),
            (Some("409"), "{}", ("definite_failure", Some("tool_error"))),
            (Some("503"), "", ("not_started", unavailable)),
            (Some("500"), "{}", ("unknown", unavailable)),
            (Some("oops"), "{}", ("unknown", unavailable)),
        ] {
            let headers = code.map(|code| {
                [
                    ("Nats-Service-Error-Code", code),
                    ("Nats-Service-Error", "why"),
                ]
            });
            let headers = headers.as_ref().map_or(&[][..], |headers| headers);
            let outcome = scene.answered(&manifest, headers, body).await;
            assert_eq!(word(&outcome), expected, "{effect} {code:?} {body}");
            if code == Some("409") {
                let failure = outcome.failure().unwrap();
                assert_eq!(
                    (failure.message.english(), &failure.details),
                    ("why", &Some(json!({"status": 409})))
                );
            }
        }
    }
}

#[tokio::test]
async fn where_nobody_listens_nothing_started() {
    let scene = Scene::start().await;
    let began = Instant::now();
    for effect in ["read", "once"] {
        let prepared = scene
            .prepare(&manifest(effect, json!({})), &json!({}))
            .unwrap();
        let outcome = prepared.run(context(LONG)).await.outcome;
        assert_eq!(word(&outcome), ("not_started", Some("unavailable")));
    }
    assert!(
        began.elapsed() < LONG / 2,
        "it did not wait for its time to be over"
    );
}

#[tokio::test]
async fn a_service_hears_that_nobody_waits_any_more() {
    let scene = Scene::start().await;
    let mut requests = scene.hear("tools.t").await;
    let mut cancels = scene.hear("toolfleet.tool.cancel.*").await;
    for (cancelled, code) in [(false, "timeout"), (true, "cancelled")] {
        let prepared = scene
            .prepare(&manifest("once", json!({})), &json!({}))
            .unwrap();
        let time = if cancelled {
            LONG
        } else {
            Duration::from_millis(300)
        };
        let context = context(time);
        let (call, attempt) = (context.call_id, context.attempt_id);
        let stop = context.stop.clone();
        let began = Instant::now();
        let (returned, ()) = tokio::join!(prepared.run(context), async {
            next(&mut requests).await;
            if cancelled {
                stop.cancel();
            }
        });
        assert_eq!(word(&returned.outcome), ("unknown", Some(code)));
        assert!(began.elapsed() < Duration::from_millis(300) + LINGER_MAX);
        assert!(!returned.left_behind, "the client holds nothing of it");
        let told = next(&mut cancels).await;
        assert!(
            told.subject.ends_with(&call.to_string()),
            "{}",
            told.subject
        );
        let headers = told.headers.unwrap();
        assert_eq!(
            headers.get("Toolfleet-Attempt-Id").unwrap().as_str(),
            attempt.to_string()
        );
    }
}

#[tokio::test]
async fn without_a_connection_nothing_is_sent_and_nothing_is_sent_later() {
    let mut scene = Scene::start().await;
    let manifest = manifest("once", json!({}));
    let prepared = scene.prepare(&manifest, &json!({})).unwrap();
    scene.disconnect().await;
    let context = context(LONG);
    let returned = prepared.run(context).await;
    assert_eq!(
        word(&returned.outcome),
        ("not_started", Some("unavailable"))
    );
    assert!(!returned.left_behind);
    // Before the claim it is a reason to let another worker try.
    let refused = scene.prepare(&manifest, &json!({})).err().unwrap();
    assert_eq!(refused.code, Code::Unavailable);
}

#[tokio::test]
async fn an_answer_that_comes_after_a_reconnect_still_counts_for_a_write_and_a_read_asks_again() {
    let scene = Scene::start().await;
    let wire = scene.wire.as_ref().unwrap();
    let mut requests = scene.hear("tools.t").await;
    let prepared = scene
        .prepare(&manifest("once", json!({})), &json!({}))
        .unwrap();
    let (Returned { outcome, .. }, ()) = tokio::join!(prepared.run(context(LONG)), async {
        let inbox = next(&mut requests).await.reply.unwrap();
        let mut epoch = scene.bus.epoch();
        wire.cut();
        timeout(LONG, epoch.wait_for(|count| count & 1 == 0))
            .await
            .unwrap()
            .unwrap();
        timeout(LONG, epoch.wait_for(|count| count & 1 == 1))
            .await
            .unwrap()
            .unwrap();
        // Behind its subscriptions.
        scene.bus.round_trip().await.unwrap();
        scene.service.publish(inbox, "1".into()).await.unwrap();
    });
    assert_eq!(word(&outcome), ("applied", None));

    let prepared = scene
        .prepare(&manifest("read", json!({})), &json!({}))
        .unwrap();
    let began = Instant::now();
    let (Returned { outcome, .. }, ()) = tokio::join!(prepared.run(context(LONG)), async {
        next(&mut requests).await;
        wire.cut();
    });
    assert_eq!(word(&outcome), ("unknown", Some("unavailable")));
    assert!(began.elapsed() < LONG / 2);
}

#[tokio::test]
async fn what_was_handed_over_is_not_held_when_its_server_never_gets_it() {
    let scene = Scene::start().await;
    scene.wire.as_ref().unwrap().swallow(From::Client);
    let prepared = scene
        .prepare(&manifest("once", json!({})), &json!({}))
        .unwrap();
    let context = context(Duration::from_millis(300));
    let returned = prepared.run(context).await;
    assert_eq!(word(&returned.outcome), ("unknown", Some("timeout")));
    assert!(!returned.left_behind, "the socket took it");
}

#[tokio::test]
async fn what_may_still_be_sent_later_is_admitted_and_holds_the_workers_lock() {
    let mut scene = Scene::start().await;
    let state = StateDir::open(scene.folder.path()).unwrap();
    let lock = Arc::new(state.hold(WorkerId::generate()).unwrap());
    scene.executor = NatsExecutor::new(scene.bus.clone()).holding(Arc::clone(&lock));
    let mut requests = scene.hear("tools.t").await;
    // A server that stands still takes nothing more when every buffer on the way to it is full.
    signal(&scene, Signal::SIGSTOP);
    for _ in 0..400 {
        let filler = vec![0; 200 * 1024].into();
        scene.bus.client.publish("nobody", filler).await.unwrap();
    }
    let prepared = scene
        .prepare(&manifest("once", json!({})), &json!({}))
        .unwrap();
    let context = context(Duration::from_millis(500));
    let attempt = context.attempt_id;
    let returned = prepared.run(context).await;
    signal(&scene, Signal::SIGCONT);
    assert_eq!(word(&returned.outcome), ("unknown", Some("timeout")));
    assert!(returned.left_behind);
    // It was no empty fear.
    let late = next(&mut requests).await.headers.unwrap();
    assert_eq!(
        late.get("Toolfleet-Attempt-Id").unwrap().as_str(),
        attempt.to_string()
    );
    scene.executor = NatsExecutor::new(scene.bus.clone());
    assert!(
        Arc::into_inner(lock).is_none(),
        "the process holds it to its end"
    );
}

fn signal(scene: &Scene, signal: Signal) {
    let pid = scene.nats.pid();
    nix::sys::signal::kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}

#[tokio::test]
async fn what_no_server_takes_is_refused_before_the_claim() {
    let scene = Scene::start().await;
    let large = json!({"a": "x".repeat(PAYLOAD_MAX as usize)});
    let refused = scene
        .prepare(&manifest("once", json!({})), &large)
        .err()
        .unwrap();
    assert_eq!(refused.code, Code::PayloadTooLarge);
    assert!(
        refused.message.english().contains("reference"),
        "{}",
        refused.message
    );
}

#[tokio::test]
async fn a_tool_cannot_speak_on_the_fleets_own_subjects() {
    let scene = Scene::start().await;
    for subject in [
        "toolfleet.v1.acme.admin.settle",
        "toolfleet.control.changed",
        "$SRV.PING",
        "_INBOX.x",
        "a b",
        "a.>",
    ] {
        let spec = json!({"executor": {"nats": {"subject": subject}}});
        let refused = scene
            .prepare(&manifest("read", spec), &json!({}))
            .err()
            .unwrap();
        assert_eq!(refused.code, Code::ToolGone, "{subject}");
    }
}

#[tokio::test]
async fn a_service_that_replies_often_late_or_with_garbage_changes_nothing() {
    let scene = Scene::start().await;
    let mut requests = scene.hear("tools.t").await;
    let prepared = scene
        .prepare(&manifest("once", json!({})), &json!({}))
        .unwrap();
    let (Returned { outcome, .. }, inbox) = tokio::join!(prepared.run(context(LONG)), async {
        let inbox = next(&mut requests).await.reply.unwrap();
        for reply in 1..=1_000 {
            scene
                .service
                .publish(inbox.clone(), reply.to_string().into())
                .await
                .unwrap();
        }
        inbox
    });
    let Outcome::Applied { result, flaw: None } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(result.get(), "1");
    // The next attempt has another inbox, which this one does not tell.
    let prepared = scene
        .prepare(&manifest("once", json!({})), &json!({}))
        .unwrap();
    let (Returned { outcome, .. }, other) = tokio::join!(prepared.run(context(LONG)), async {
        let other = next(&mut requests).await.reply.unwrap();
        scene
            .service
            .publish(inbox.clone(), "\"late\"".into())
            .await
            .unwrap();
        scene
            .service
            .publish(other.clone(), "2".into())
            .await
            .unwrap();
        other
    });
    let Outcome::Applied { result, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(result.get(), "2");
    let guess = |inbox: &str| inbox.rsplit_once('.').unwrap().1.to_owned();
    assert_ne!(guess(&inbox), guess(&other));
    assert_eq!(guess(&other).len(), 32);
}

#[tokio::test]
async fn a_reply_that_cannot_be_read_proves_nothing_and_breaks_no_connection() {
    let scene = Scene::start().await;
    let mut service = RawClient::connect(scene.nats.port(), "").await;
    service.subscribe("tools.t").await;
    for (what, headers) in BAD_HEADERS {
        for effect in ["read", "once"] {
            let prepared = scene.prepare(&manifest(effect, json!({})), &json!({}));
            let running = prepared.unwrap().run(context(LONG));
            let (returned, ()) = tokio::join!(running, async {
                let inbox = service.next().await.reply.unwrap();
                let answer = with_headers(inbox.as_bytes(), b"", headers, b"{}");
                service.send(&answer).await;
            });
            assert_eq!(
                word(&returned.outcome),
                ("unknown", Some("unavailable")),
                "{what}, {effect}"
            );
            assert!(!returned.left_behind);
        }
    }
    service.send(b"UNSUB 1\r\n").await;
    service.round_trip().await;
    let outcome = scene.answered(&manifest("once", json!({})), &[], "1").await;
    assert_eq!(word(&outcome), ("applied", None));
    let wire = scene.wire.as_ref().unwrap();
    assert_eq!(wire.connections(), 1);
}
