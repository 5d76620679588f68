//! Models: a call of one is a call.

use std::process::Command;

use fleet_tests::{
    fleet::{Fleet, Spec, built},
    invariants,
    models::ModelServer,
    wait::LONG,
    witness::Witness,
};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::events::{follow, heard, kinds};

/// A tool with two models of the stand-in.
pub(crate) fn manifest(server: &ModelServer, more: &str) -> String {
    let url = server.url("/v1/chat/completions");
    format!(
        r#"
name: ask_model
version: 1
description: Answers a conversation.
effect: read
executor:
  chat:
    protocol: openai_chat
    routes:
      - {{ name: main, url: "{url}", model: large, price: {{ currency: USD, input: "2.50", output: "10" }} }}
      - {{ name: spare, url: "{url}", model: small }}
    fixed: {{ max_completion_tokens: 100 }}
retry: {{ strategy: fixed, max_attempts: 2, base: 10ms }}
{more}"#
    )
}

pub(crate) fn said(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}]})
}

/// What a person sees of a call.
#[expect(clippy::print_stdout, reason = "it is what this is run for")]
fn show(fleet: &Fleet, call: &str) -> String {
    let mut command = Command::new(built("fleet_tests_toolfleet"));
    command.args(["calls", "show", call]);
    let shown = command.env("DATABASE_URL", &fleet.database.url).output();
    let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
    println!("{shown}");
    shown
}

#[tokio::test]
async fn a_model_is_paid_once_for_a_key_and_another_one_answers_in_its_place() {
    let witness = Witness::start().await;
    let server = ModelServer::start(
        &json!({"rules": [
            {"match": {"text": "busy", "model": "large"}, "fault": {"kind": "status", "status": 429}},
            {"match": {"text": "broken"}, "fault": {"kind": "status", "status": 503}, "times": 2},
            {"answer": {"text": "Hello from the script."}},
        ]}),
        &[],
    );
    let fleet = Fleet::start(Spec::with([manifest(&server, "")])).await;

    let call = fleet.submit("ask_model", &said("hello")).key("turn-1");
    let first = call.clone().wait().await;
    assert_eq!(first["state"], "succeeded", "{}", *first);
    let result = &first["result"];
    assert_eq!(
        result["reply"]["choices"][0]["message"]["content"],
        "Hello from the script."
    );
    assert_eq!(
        (&result["route"], &result["finish"], &result["tried"]),
        (&json!("main"), &json!("stop"), &json!([]))
    );
    let again = call.wait().await;
    assert_eq!(again["replayed"], true, "{}", *again);
    assert_eq!(again.first_bytes(), first.first_bytes());
    assert_eq!(
        server.asked("large").await,
        1,
        "a repeated key is not paid twice"
    );
    let shown = show(&fleet, &first.call_id().to_string());
    assert!(
        shown.contains("ask_model") && shown.contains("Hello from the script."),
        "{shown}"
    );

    // Another route within the same attempt.
    let busy = fleet.submit("ask_model", &said("busy")).wait().await;
    let tried = json!([{"route": "main", "code": "unavailable", "status": 429}]);
    assert_eq!(
        (&busy["result"]["route"], &busy["result"]["tried"]),
        (&json!("spare"), &tried)
    );
    assert_eq!(busy["attempts"], 1);
    let shown = show(&fleet, &busy.call_id().to_string());
    let requests = shown.lines().filter(|line| {
        line.contains("large") && line.ends_with("unavailable")
            || line.contains("small") && line.ends_with("stop")
    });
    assert_eq!(requests.count(), 2, "{shown}");
    assert_eq!(
        (server.asked("large").await, server.asked("small").await),
        (2, 1)
    );

    // Both fail once: the next attempt begins at the first again.
    let broken = fleet.submit("ask_model", &said("broken")).wait().await;
    assert_eq!(
        (&broken["result"]["route"], &broken["attempts"]),
        (&json!("main"), &json!(2))
    );
    assert_eq!(
        (server.asked("large").await, server.asked("small").await),
        (4, 2)
    );
    let attempts = fleet.attempts(broken.call_id()).await;
    assert_eq!(
        attempts[0]["error"]["code"], "unavailable",
        "{}",
        attempts[0]
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn what_this_release_does_not_do_is_refused_without_an_attempt() {
    let witness = Witness::start().await;
    let server = ModelServer::start(&json!({"rules": [{"answer": {"text": "hello"}}]}), &[]);
    let fleet = Fleet::start(Spec::with([manifest(&server, "")])).await;
    for (member, value) in [
        ("stream", json!(true)),
        ("background", json!(true)),
        ("conversation", json!("conv_1")),
        ("tools", json!([{"type": "web_search"}])),
    ] {
        let mut request = said("hello");
        request[member] = value;
        let refused = fleet.submit("ask_model", &request).wait().await;
        assert_eq!(refused.code(), "invalid_arguments", "{}", *refused);
        assert_eq!(
            (&refused["state"], &refused["attempts"]),
            (&json!("failed"), &json!(0))
        );
        assert_eq!(
            refused["error"]["suggestion"], "fix_arguments",
            "{}",
            *refused
        );
    }
    // The door asks for the messages.
    let refused = fleet.submit("ask_model", &json!({"input": "hello"}));
    let refused = refused.wait().await;
    assert_eq!(
        (refused.code(), &refused["state"]),
        ("invalid_arguments", &json!("refused"))
    );
    assert_eq!(server.log().await.len(), 0);
    invariants::hold(&fleet, &witness).await;
}

/// A request for a stream.
fn streamed(text: &str) -> Value {
    let mut request = said(text);
    request["stream"] = json!(true);
    request
}

/// The text of all chunks that this attempt has told since it began anew, whose parts are numbered without gaps; and their routes.
fn told(events: &[Value], attempt: u32) -> (String, Vec<&str>) {
    let (mut text, mut routes, mut next) = (String::new(), Vec::new(), 0);
    let outputs = events.iter().filter(|event| event["kind"] == "output");
    for event in outputs.filter(|event| event["attempt"] == attempt) {
        assert_eq!(event["part"], next, "{event}");
        next += 1;
        if event["restart"] == true {
            text.clear();
        }
        let route = event["route"].as_str().unwrap();
        if routes.last() != Some(&route) {
            routes.push(route);
        }
        for chunk in event["chunks"].as_array().unwrap() {
            let content = chunk["choices"][0]["delta"]["content"].as_str();
            text.push_str(content.unwrap_or_default());
        }
    }
    (text, routes)
}

fn content(answer: &Value) -> &Value {
    &answer["result"]["reply"]["choices"][0]["message"]["content"]
}

const STORY: &str = "Once upon a time there lived a king who had three daughters and one well.";

#[tokio::test]
async fn a_stream_is_told_to_its_session_as_it_comes_and_anew_from_another_route() {
    let witness = Witness::start().await;
    let server = ModelServer::start(
        &json!({"rules": [
            {
                "match": {"text": "broken", "model": "large"}, "answer": {"text": "It was a dark night and the wind howled."},
                "chunk": 4, "fault": {"kind": "cut", "at": 2_000},
            },
            {"answer": {"text": STORY}, "chunk": 4, "chunk_ms": 10},
        ]}),
        &[],
    );
    let hidden = manifest(&server, "visibility: hidden\n").replace("ask_model", "ask_hidden");
    let fleet = Fleet::start(Spec::with([manifest(&server, ""), hidden])).await;
    let mut events = follow(&fleet).await;

    let call = fleet.submit("ask_model", &streamed("hello"));
    let answer = call.header("Toolfleet-Session", "s").wait().await;
    assert_eq!(*content(&answer), json!(STORY), "{}", *answer);
    let heard_of = heard(&mut events, answer.call_id()).await;
    assert_eq!(told(&heard_of, 1), (STORY.to_owned(), vec!["main"]));
    let parts: Vec<&Value> = heard_of
        .iter()
        .filter(|event| event["kind"] == "output")
        .collect();
    // The first chunk leaves alone, others together.
    assert_eq!(parts[0]["chunks"].as_array().map(Vec::len), Some(1));
    assert!((3..20).contains(&parts.len()), "{}", parts.len());

    let call = fleet.submit("ask_model", &streamed("broken"));
    let answer = call.header("Toolfleet-Session", "s").wait().await;
    assert_eq!(answer["result"]["route"], "spare", "{}", *answer);
    assert_eq!(*content(&answer), json!(STORY));
    let heard_of = heard(&mut events, answer.call_id()).await;
    assert_eq!(
        told(&heard_of, 1),
        (STORY.to_owned(), vec!["main", "spare"])
    );

    // Where nobody can hear it, it is refused before an attempt.
    let asked = server.log().await.len();
    for (tool, session) in [("ask_model", None), ("ask_hidden", Some("s"))] {
        let mut call = fleet.submit(tool, &streamed("hello"));
        if let Some(session) = session {
            call = call.header("Toolfleet-Session", session);
        }
        let refused = call.wait().await;
        assert_eq!(refused.code(), "invalid_arguments", "{}", *refused);
        assert_eq!(refused["attempts"], 0);
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("Toolfleet-Session"), "{}", *refused);
    }
    assert_eq!(server.log().await.len(), asked);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_stream_whose_worker_is_killed_is_told_anew_by_another_attempt() {
    let witness = Witness::start().await;
    let server = ModelServer::start(
        &json!({"rules": [
            {"answer": {"text": STORY}, "chunk": 4, "times": 1, "fault": {"kind": "hang", "at": 3_000}},
            {"answer": {"text": STORY}, "chunk": 4},
        ]}),
        &[],
    );
    let mut fleet = Fleet::start(Spec::with([manifest(&server, "")]).workers(0, &[])).await;
    let mut doomed = fleet.real_worker("doomed", &[], None);
    doomed.ready().await;
    let mut events = follow(&fleet).await;
    let call = fleet.submit("ask_model", &streamed("hello"));
    let call = call.header("Toolfleet-Session", "s").asynchronous().await;
    let mut before: Vec<Value> = Vec::new();
    while told(&before, 1).0.is_empty() {
        let event = timeout(LONG, events.next()).await.unwrap().unwrap();
        before.push(serde_json::from_slice(&event.payload).unwrap());
    }
    doomed.end().await;
    fleet.report_death(&mut doomed).await;
    fleet.add_worker(&[]).await;
    let after = heard(&mut events, call.call_id()).await;
    assert!(kinds(&after).contains(&"retrying"), "{after:?}");
    let (begun, _) = told(&before, 1);
    assert!(STORY.starts_with(&begun) && begun.len() < STORY.len());
    assert_eq!(told(&after, 2), (STORY.to_owned(), vec!["main"]));
    let answer = fleet.get(&json!({"call_id": call.call_id()})).await;
    assert_eq!(*content(&answer), json!(STORY), "{}", *answer);
    assert_eq!(server.asked("large").await, 2);
    let rows = "SELECT attempt, route, code, finish, output_tokens FROM toolfleet.model_calls WHERE call_id = $1 ORDER BY started_at";
    let rows = fleet.rows(rows, call.call_id()).await;
    println!(
        "heard of the first attempt: {begun:?}; of the second: all of it; requests on record: {rows:?}"
    );
    let words = |row: &Value| {
        (
            row["attempt"].clone(),
            row["code"].clone(),
            row["finish"].clone(),
        )
    };
    assert_eq!(
        rows.iter().map(words).collect::<Vec<_>>(),
        [
            (json!(1), json!("unknown"), Value::Null),
            (json!(2), Value::Null, json!("stop"))
        ]
    );
    invariants::hold(&fleet, &witness).await;
}
