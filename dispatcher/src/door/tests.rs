//! The door without a service: requests go in as values, and answers come out. The servers behind it do not answer, so these
//! are the answers that need no ledger.

use std::time::Duration;

use fleet::{
    config::BusArgs,
    store::session::Postgres,
    wire::{
        code::Code,
        token::{TokenSecret, Tokens},
    },
};
use futures_util::FutureExt;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
    task::JoinSet,
    time::{Instant, timeout},
};

use super::*;
use crate::{
    answer::Answer,
    endpoints::{ENDPOINTS, Endpoint},
    pending::tests::pending,
    publish::publish_together,
    quota::{Limits, TenantQuotas},
    request::Request,
    running::Running,
    slots::Slots,
};

const SECOND: Duration = Duration::from_secs(1);

/// The `INFO` of a NATS server.
const INFO: &str = "INFO {\"server_id\":\"x\",\"server_name\":\"x\",\"version\":\"2.12.6\",\"go\":\"\",\"host\":\"127.0.0.1\",\
                    \"port\":4222,\"proto\":1,\"headers\":true,\"jetstream\":true,\"max_payload\":1048576}\r\n";

/// Greets one client, and answers its pings.
async fn nats(listener: TcpListener) {
    let (client, _) = listener.accept().await.unwrap();
    let (lines, mut to_client) = client.into_split();
    to_client.write_all(INFO.as_bytes()).await.unwrap();
    let mut lines = BufReader::new(lines).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line == "PING" {
            to_client.write_all(b"PONG\r\n").await.unwrap();
        }
    }
}

/// A door without tools and without a ledger. It works as long as the tasks are alive.
async fn door() -> (Door, JoinSet<()>) {
    let (door, mut tasks, server) = door_and_server().await;
    tasks.spawn(async move { server.join_all().await.clear() });
    (door, tasks)
}

/// The same, and the server of its bus.
async fn door_and_server() -> (Door, JoinSet<()>, JoinSet<()>) {
    let (mut tasks, mut server) = (JoinSet::new(), JoinSet::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("nats://{}", listener.local_addr().unwrap());
    server.spawn(nats(listener));
    let bus = BusArgs::at(url.into());
    let bus = Bus::connect(&bus, "door").await.unwrap();
    let url = "postgres://nobody@127.0.0.1:1/none".to_owned();
    let postgres = Postgres::new(&url.into(), "door").unwrap();
    let pool = postgres.pool(1);
    let (publisher, count_answers) = Publisher::new(&bus).await.unwrap();
    tasks.spawn(count_answers);
    let (expiry, _asked) = Expiry::new();
    let limits = Limits {
        default: 0,
        of: TenantQuotas::default(),
    };
    let door = Door {
        registry: Registry::default(),
        accepting: Accepting::start(&postgres, &mut tasks),
        completing: Completing::start(&postgres, &mut tasks),
        tokens: Tokens {
            callers: TokenSecret::new(b"a secret"),
            tools: TokenSecret::new(b"another"),
        },
        quota: Quota::new(limits, pool.clone()),
        file_quota: FileQuota { files: 0, bytes: 0 },
        file_room: FileRoom::default(),
        publisher,
        events: Events::start(&bus, &Registry::default(), &mut tasks),
        waiters: Waiters::new(expiry.clone()),
        meter: Meter::default(),
        running: Running::new(0, Meter::default()),
        repeats: Repeats::default(),
        expiry,
        dispatcher: DispatcherId::generate(),
        bus,
        replies: "_INBOX.".parse().unwrap(),
        rates: Rates::new(0, 0),
        pool,
    };
    (door, tasks, server)
}

fn endpoint(name: &str) -> &'static Endpoint {
    let mut endpoints = ENDPOINTS.iter();
    endpoints.find(|endpoint| endpoint.name == name).unwrap()
}

fn request<'a>(name: &'a str, body: &'a str) -> Request<'a> {
    Request {
        tenant: "acme",
        name,
        headers: Vec::new(),
        body: body.as_bytes(),
        inbox: None,
    }
}

async fn ask(door: &Door, verb: &str, request: &Request<'_>) -> Answer {
    let mut permit = Slots::new(16, 0).one(request.tenant, 0).unwrap();
    endpoint(verb).answer(door, request, &mut permit).await
}

fn code(answer: &Answer) -> Option<Code> {
    answer.refused.as_ref().map(|(code, _)| *code)
}

fn read(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}

#[tokio::test]
async fn of_several_mistakes_the_first_in_the_order_of_the_door_is_told() {
    let (door, _tasks) = door().await;
    let mut asked = Request {
        tenant: "a b",
        headers: vec![("Toolfleet-Session", "a.b")],
        ..request("Look", "{")
    };
    let mends: [fn(&mut Request<'static>); 5] = [
        |asked| asked.tenant = "acme",
        |asked| asked.name = "look",
        |asked| asked.headers.clear(),
        |asked| asked.body = b"{}",
        |_nothing_more| {},
    ];
    let mut told = Vec::new();
    for mend in mends {
        let answer = ask(&door, "call", &asked).await;
        assert_eq!(read(&answer)["tool"], asked.name);
        told.push(code(&answer).unwrap());
        mend(&mut asked);
    }
    assert_eq!(
        told,
        [
            Code::InvalidTenant,
            Code::InvalidToolName,
            Code::HeaderInvalid,
            Code::TruncatedArguments,
            Code::UnknownTool,
        ]
    );
}

#[tokio::test]
async fn a_refusal_is_told_in_the_language_that_is_asked_for_and_its_header_in_english() {
    let (door, _tasks) = door().await;
    let mut asked = request("look", "{}");
    asked.headers.push(("Toolfleet-Language", "zh"));
    let answer = ask(&door, "call", &asked).await;
    let told = read(&answer);
    let message = told["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("没有名为 look 的工具。"), "{message}");
    let (_, header) = answer.refused.unwrap();
    assert!(
        header.starts_with("There is no tool named look."),
        "{header}"
    );
}

#[tokio::test]
async fn every_verb_asks_who_it_is_first() {
    let (door, _tasks) = door().await;
    for endpoint in &ENDPOINTS {
        let asked = Request {
            tenant: "a b",
            ..request("", "")
        };
        let answer = ask(&door, endpoint.name, &asked).await;
        assert_eq!(
            code(&answer),
            Some(Code::InvalidTenant),
            "{}",
            endpoint.name
        );
    }
}

#[tokio::test]
async fn what_the_other_verbs_are_sent_must_have_their_form() {
    let (door, _tasks) = door().await;
    for (verb, body, expected) in [
        ("get", "{}", Code::InvalidArguments),
        ("get", r#"{"call_id":"7"}"#, Code::InvalidId),
        (
            "get",
            r#"{"call_id":"7","wait_ms":300001}"#,
            Code::InvalidArguments,
        ),
        ("tools", r#"{"format":"xml"}"#, Code::InvalidArguments),
        ("check", "{}", Code::InvalidToolName),
        ("cancel", r#"{"call_id":"7"}"#, Code::InvalidId),
        ("cancel", "[]", Code::InvalidArguments),
        ("admin-settle", r#"{"call_id":"7"}"#, Code::InvalidArguments),
        ("admin-preview", r#"{"call_id":"7"}"#, Code::InvalidId),
        ("admin-preview", "{}", Code::InvalidArguments),
        ("file", "{}", Code::InvalidArguments),
        (
            "file",
            r#"{"op":"describe","file_id":"7"}"#,
            Code::InvalidId,
        ),
        (
            "admin-control",
            r#"{"do":"stop","actor":"a","note":"n"}"#,
            Code::InvalidArguments,
        ),
        ("admin-control", r#"{"do":"list""#, Code::TruncatedArguments),
        ("batch", r#"{"calls":[]}"#, Code::InvalidArguments),
    ] {
        let answer = ask(&door, verb, &request("", body)).await;
        assert_eq!(code(&answer), Some(expected), "{verb} {body}");
    }
    let tools = ask(&door, "tools", &request("", "")).await;
    assert_eq!((code(&tools), &read(&tools)["tools"]), (None, &json!([])));
}

#[tokio::test]
async fn arguments_that_cannot_be_read_are_told_before_a_tool_that_is_not_there() {
    let (door, _tasks) = door().await;
    let told = read(&ask(&door, "check", &request("look", "{")).await);
    let submitted = read(&ask(&door, "call", &request("look", "{")).await);
    assert_eq!(
        (&told["verdict"], &told["tool_version"]),
        (&json!("refused"), &json!(null))
    );
    assert_eq!(told["error"], submitted["error"]);
    let unknown = ask(&door, "check", &request("look", "{}")).await;
    assert_eq!(code(&unknown), Some(Code::UnknownTool));
}

#[tokio::test]
async fn each_call_of_a_batch_is_answered_in_its_place_and_takes_a_slot() {
    let (door, _tasks) = door().await;
    let calls = r#"{"calls":[{"tool":"look","args":{}},{"tool":"Look","args":{}},7]}"#;
    let slots = Slots::new(4, 0);
    let mut permit = slots.one("acme", 0).unwrap();
    let asked = request("", calls);
    let answer = endpoint("batch").answer(&door, &asked, &mut permit).await;
    let items = read(&answer);
    let codes: Vec<_> = (0..3)
        .map(|place| items["items"][place]["error"]["code"].as_str().unwrap())
        .collect();
    assert_eq!(
        codes,
        ["unknown_tool", "invalid_tool_name", "invalid_arguments"]
    );
    // It has three of the four now, the most that one tenant may have.
    let mut other = slots.one("beta", 0).unwrap();
    let asked = Request {
        tenant: "beta",
        ..request("", calls)
    };
    let answer = endpoint("batch").answer(&door, &asked, &mut other).await;
    assert_eq!(code(&answer), Some(Code::Overloaded));
    drop(permit);
    let answer = endpoint("batch").answer(&door, &asked, &mut other).await;
    assert_eq!(code(&answer), None);
}

#[tokio::test]
async fn a_batch_waits_for_a_connection_that_takes_nothing_as_long_as_one_call() {
    let (door, _tasks, server) = door_and_server().await;
    drop(server);
    tokio::time::pause();
    // The client keeps a bounded number of messages while it is not connected.
    let client = &door.bus.client;
    while timeout(SECOND, client.publish("filler", "".into()))
        .await
        .is_ok()
    {}
    let queue = "default".parse().unwrap();
    let calls = (0..20).map(|_| (pending(true).call, door.meter.permit(&queue)));
    let began = Instant::now();
    publish_together(&door, calls.collect()).await;
    let waited = began.elapsed();
    assert!(waited > SECOND && waited < 4 * SECOND, "{waited:?}");
}

#[test]
fn a_large_body_is_parsed_while_others_are_served() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(1).build();
    runtime.unwrap().block_on(async {
        let (door, _tasks) = door().await;
        let large = format!("[{}", " ".repeat(200 * 1024));
        for verb in ["call", "batch"] {
            // The only thread for long work is taken.
            let (free, taken) = std::sync::mpsc::channel::<()>();
            let taking = tokio::task::spawn_blocking(move || taken.recv());
            let asked = request(if verb == "call" { "look" } else { "" }, &large);
            let mut large = Box::pin(ask(&door, verb, &asked));
            assert!(large.as_mut().now_or_never().is_none(), "{verb}");
            let small = request(asked.name, "[");
            let small = ask(&door, verb, &small).now_or_never();
            assert!(small.is_some(), "{verb}");
            free.send(()).unwrap();
            taking.await.unwrap().unwrap();
            assert_eq!(code(&large.await), Some(Code::TruncatedArguments));
        }
    });
}
