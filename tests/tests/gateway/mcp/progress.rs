//! What a client hears of its call while that runs: only where it wants to, only of its own call, and always the answer at the end.

use std::time::Duration;

use fleet::ids::CallId;
use fleet_tests::{
    event_source::EventSource,
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use worker::{Effect, Part, Tool, ToolContext, ToolError, Worker};

use super::{error, legacy, modern, said, texts};

const TOKEN: &str = r#""progressToken":"t-1""#;
const INFO: &str = r#""io.modelcontextprotocol/logLevel":"info""#;

/// Says how far it is, and what it does.
struct Talk;

#[derive(Deserialize, JsonSchema)]
struct Args {
    /// What its messages begin with.
    what: String,
}

impl Tool for Talk {
    type Args = Args;
    type Output = Value;
    const NAME: &'static str = "talk";
    const VERSION: i32 = 1;
    const EFFECT: Effect = Effect::Read;
    const DESCRIPTION: &'static str = "Says how far it is.";

    async fn call(&self, args: Args, context: ToolContext) -> Result<Value, ToolError> {
        let Args { what } = args;
        context.progress(0.25, &format!("{what} a quarter"));
        context.output(Part::Step(format!("{what} searches")));
        // As often as progress leaves a worker.
        tokio::time::sleep(Duration::from_millis(150)).await;
        context.progress(1.0, &format!("{what} all"));
        Ok(json!({ "told": what }))
    }
}

async fn fleet() -> Fleet {
    let mut fleet = Fleet::start(Spec::with([]).workers(0, &[])).await;
    fleet
        .add_worker_with(Worker::builder().tool(Talk), &[])
        .await;
    until_so("the tool to be known", async || {
        let tools = fleet.ask("toolfleet.v1.default.tools", &json!({})).await;
        tools.to_string().contains("\"talk\"")
    })
    .await;
    fleet
}

/// The messages of a stream, up to its end.
async fn messages(mut stream: EventSource) -> Vec<Value> {
    let blocks = stream.rest().await;
    assert!(stream.is_complete, "{blocks:?}");
    let messages = blocks.iter().filter(|block| !block.data.is_empty());
    messages
        .map(fleet_tests::event_source::Block::json)
        .collect()
}

fn of<'a>(messages: &'a [Value], method: &str) -> Vec<&'a Value> {
    let of = messages
        .iter()
        .filter(|message| message["method"] == method);
    of.map(|message| &message["params"]).collect()
}

#[tokio::test]
async fn who_wants_to_hear_of_a_call_does_and_gets_its_answer_at_the_end() {
    let fleet = fleet().await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let arguments = r#"{"what":"it"}"#;
    for (client, is_modern) in [(modern(web), true), (legacy(web), false)] {
        for (meta, progress, logs) in [
            (TOKEN.to_owned(), true, !is_modern),
            (format!("{TOKEN},{INFO}"), true, true),
            (INFO.to_owned(), false, is_modern),
        ] {
            let request = client.calling_as("\"x\"", "talk", arguments, &meta);
            if !progress && !logs {
                // Older revisions do not say it so.
                let answer = request.send().await;
                assert_eq!(answer.header("Content-Type"), "application/json");
                continue;
            }
            let stream = EventSource::open(request).await;
            for (name, value) in [
                ("Content-Type", "text/event-stream"),
                ("X-Accel-Buffering", "no"),
                ("Cache-Control", "no-store"),
                ("Toolfleet-Answer", "gateway"),
            ] {
                assert_eq!(stream.head.header(name), value, "{name}");
            }
            let messages = messages(stream).await;
            let told = of(&messages, "notifications/progress");
            assert_eq!(!told.is_empty(), progress, "{meta} {messages:?}");
            let values: Vec<f64> = told
                .iter()
                .map(|one| one["progress"].as_f64().unwrap())
                .collect();
            assert!(
                values.windows(2).all(|pair| pair[0] < pair[1]),
                "{values:?}"
            );
            if progress {
                assert!(told.iter().all(|one| one["progressToken"] == "t-1"));
                let last = told.last().unwrap();
                assert_eq!(
                    (&last["progress"], &last["total"]),
                    (&json!(1.0), &json!(1))
                );
                assert_eq!(last["message"], "it all");
                assert!(
                    told.iter().any(|one| one["message"] == "it searches"),
                    "{told:?}"
                );
            }
            let log = of(&messages, "notifications/message");
            assert_eq!(!log.is_empty(), logs, "{meta} {messages:?}");
            if logs {
                assert_eq!(
                    *log[0],
                    json!({"level": "info", "logger": "talk", "data": "it searches"})
                );
            }
            let answer = messages.last().unwrap();
            assert_eq!(
                (&answer["id"], &answer["jsonrpc"]),
                (&json!("x"), &json!("2.0"))
            );
            assert_eq!(texts(&answer["result"]), [r#"{"told":"it"}"#]);
            assert_eq!(said(&answer["result"])["state"], "succeeded");
        }
    }
    // Who wants nothing gets JSON, and its call has no session.
    let plain = modern(web).calling("talk", arguments, "").send().await;
    assert_eq!(plain.header("Content-Type"), "application/json");
    let call: CallId = said(&plain.json()["result"])["id"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let shown = fleet
        .rows(
            "SELECT session FROM toolfleet.calls WHERE call_id = $1",
            call,
        )
        .await;
    assert_eq!(shown[0]["session"], Value::Null, "{shown:?}");
    for (client, meta, wrong) in [
        (modern(web), r#""progressToken":1.5"#, true),
        (legacy(web), r#""progressToken":null"#, true),
        (
            modern(web),
            r#""io.modelcontextprotocol/logLevel":"loud""#,
            true,
        ),
        (
            legacy(web),
            r#""io.modelcontextprotocol/logLevel":"loud""#,
            false,
        ),
    ] {
        let answer = client.calling("talk", arguments, meta).send().await;
        if wrong {
            assert_eq!(error(&answer), (200, -32602), "{meta}");
        } else {
            assert_eq!(answer.json()["result"]["isError"], false, "{meta}");
        }
    }
    for (level, taken) in [("\"debug\"", true), ("\"loud\"", false), ("1", false)] {
        let params = format!(r#""level":{level}"#);
        let answer = legacy(web)
            .request("1", "logging/setLevel", &params, "")
            .send()
            .await;
        match taken {
            true => assert_eq!(answer.json()["result"], json!({})),
            false => assert_eq!(error(&answer), (200, -32602), "{level}"),
        }
    }
    gateway.drain().await;
}

#[tokio::test]
async fn in_a_session_of_its_client_each_call_is_told_of_itself_alone() {
    let fleet = fleet().await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let call = async |what: &str| {
        let arguments = format!(r#"{{"what":"{what}"}}"#);
        let request = modern(web).calling("talk", &arguments, &format!("{TOKEN},{INFO}"));
        let stream = EventSource::open(request.header("Toolfleet-Session", "s")).await;
        messages(stream).await
    };
    let (one, other) = tokio::join!(call("one"), call("other"));
    for (messages, what, not) in [(one, "one", "other"), (other, "other", "one")] {
        let all = json!(messages).to_string();
        assert!(all.contains(&format!("{what} all")), "{all}");
        assert!(all.contains(&format!("{what} searches")), "{all}");
        assert!(!all.contains(&format!("{not} ")), "{all}");
    }
    // What is no session the door refuses, as of any call.
    let request = modern(web).calling("talk", r#"{"what":"x"}"#, TOKEN);
    let stream = EventSource::open(request.header("Toolfleet-Session", "a b")).await;
    let told = messages(stream).await;
    assert_eq!(
        said(&told[0]["result"])["error"]["code"],
        "header_invalid",
        "{told:?}"
    );
    gateway.drain().await;
}

#[tokio::test]
async fn the_end_of_a_stream_cancels_its_call_and_the_end_of_the_gateway_does_not() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read") + "timeout: 60s\n"];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let (mut other, elsewhere) = fleet.gateway(&[]).await;
    let call_of = |what: &str| -> CallId {
        witness.look(|seen| {
            let asked = seen.requests.iter().find(|request| request.what == what);
            asked.unwrap().header("toolfleet-call-id").parse().unwrap()
        })
    };
    for what in ["left", "kept"] {
        witness.always(what, Reply::DoneWhenReleased);
    }
    let calling =
        |what: &str| modern(web).calling("look", &format!(r#"{{"what":"{what}"}}"#), TOKEN);
    let left = EventSource::open(calling("left")).await;
    witness.until_asked("left", 1).await;
    drop(left);
    fleet.until_state(call_of("left"), "cancelled").await;

    let kept = EventSource::open(calling("kept")).await;
    witness.until_asked("kept", 1).await;
    gateway.ask_to_stop();
    let told = messages(kept).await;
    let result = &told.last().unwrap()["result"];
    assert!(texts(result)[0].contains("Still at work"), "{told:?}");
    gateway.until_left().await;
    witness.release("kept");
    let arguments = json!({ "call_id": said(result)["id"] }).to_string();
    let ended = modern(elsewhere)
        .calling("toolfleet_get", &arguments, "")
        .send()
        .await;
    assert_eq!(
        said(&ended.json()["result"])["state"],
        "succeeded",
        "{}",
        ended.text()
    );
    invariants::hold(&fleet, &witness).await;
    other.drain().await;
}

#[tokio::test]
async fn without_a_place_for_a_stream_the_answer_is_json() {
    let fleet = fleet().await;
    let (mut gateway, web) = fleet
        .gateway(&["--streams-max", "1", "--streams-each-max", "1"])
        .await;
    let follower = EventSource::open(web.get("/v1/sessions/s/events")).await;
    assert_eq!(follower.head.status, 200);
    let answer = modern(web)
        .calling("talk", r#"{"what":"x"}"#, TOKEN)
        .send()
        .await;
    assert_eq!(answer.header("Content-Type"), "application/json");
    assert_eq!(
        said(&answer.json()["result"])["state"],
        "succeeded",
        "{}",
        answer.text()
    );
    drop(follower);
    gateway.drain().await;
}
