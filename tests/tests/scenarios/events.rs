//! What a follower of a session hears of its calls.

use std::{fs, path::Path, time::Duration};

use async_nats::{Subscriber, jetstream};
use fleet::{arguments::Schema, ids::CallId};
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::{LONG, until},
    witness::{Reply, Witness},
};
use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use worker::{Effect, Tool, ToolContext, ToolError, Worker};

/// Hears the session `s` of the default tenant.
pub(crate) async fn follow(fleet: &Fleet) -> Subscriber {
    let subject = "toolfleet.v1.default.event.s.*";
    let heard = fleet.client.subscribe(subject).await.unwrap();
    fleet.client.flush().await.unwrap();
    heard
}

/// The events of this call up to one that says how it ended, in the order of their numbers.
pub(crate) async fn heard(events: &mut Subscriber, call: CallId) -> Vec<Value> {
    let mut heard = Vec::new();
    let mut finished = false;
    while !finished {
        let event = timeout(LONG, events.next()).await.expect("an event comes");
        let event = event.unwrap();
        assert!(event.subject.ends_with(&call.to_string()));
        let event: Value = serde_json::from_slice(&event.payload).unwrap();
        finished = event["kind"] == "finished";
        heard.push(event);
    }
    in_order(heard)
}

fn in_order(mut events: Vec<Value>) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/event.json");
    let schema = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let schema = Schema::compile(&schema).unwrap();
    for event in &events {
        assert!(schema.validate(event).is_empty(), "{event}");
    }
    events.sort_by_key(|event| event["sequence"].as_u64());
    let numbers: Vec<_> = events
        .iter()
        .map(|event| event["sequence"].as_u64())
        .collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    events
}

pub(crate) fn kinds(events: &[Value]) -> Vec<&str> {
    let kinds = events.iter().map(|event| event["kind"].as_str());
    kinds.map(Option::unwrap).collect()
}

#[tokio::test]
async fn a_session_hears_of_every_attempt_and_of_the_end() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let mut events = follow(&fleet).await;
    witness.first("a", [Reply::Status(503)]);
    let call = fleet.submit("look", &json!({"what": "a"}));
    let answer = call.header("Toolfleet-Session", "s").wait().await;
    assert_eq!(answer["attempts"], 2, "{}", *answer);
    let heard = heard(&mut events, answer.call_id()).await;
    assert_eq!(
        kinds(&heard),
        ["accepted", "started", "retrying", "started", "finished"]
    );
    assert_eq!(
        (&heard[1]["attempt"], &heard[3]["attempt"]),
        (&json!(1), &json!(2))
    );
    let end = &heard[4];
    assert_eq!(
        (&end["state"], &end["outcome"], &end["attempts"]),
        (&json!("succeeded"), &json!("success"), &json!(2))
    );
    assert!(
        !json!(heard).to_string().contains("done"),
        "no result leaves"
    );
    invariants::hold(&fleet, &witness).await;
}

/// From its acceptance to its end, over a retry, a cancellation and a yes.
#[tokio::test]
async fn calls_of_a_hidden_tool_tell_their_session_nothing() {
    let witness = Witness::start().await;
    let hidden = |name: &str, effect: &str, more: &str| {
        format!("{}visibility: hidden\n{more}", witness.tool(name, effect))
    };
    let spec = Spec::with([
        witness.tool("look", "read"),
        hidden("peek", "read", ""),
        hidden("confirm", "read", "approval: {}\n"),
    ]);
    let fleet = Fleet::start(spec).await;
    let mut events = follow(&fleet).await;
    witness.first("a", [Reply::Status(503)]);
    let of_session = |tool: &str, what: &str| {
        let call = fleet.submit(tool, &json!({"what": what}));
        call.header("Toolfleet-Session", "s")
    };
    let answer = of_session("peek", "a").wait().await;
    assert_eq!(answer["attempts"], 2, "{}", *answer);
    let waiting = of_session("confirm", "b").wait().await;
    assert_eq!(waiting["awaiting"]["for"], "approval", "{}", *waiting);
    let cancel = json!({"call_id": waiting["call_id"]});
    let cancelled = fleet.ask("toolfleet.v1.default.cancel", &cancel).await;
    assert_eq!(cancelled["state"], "cancelled", "{}", *cancelled);
    // Behind everything that dispatcher and worker could have told of them.
    let shown = of_session("look", "c").wait().await;
    let heard = heard(&mut events, shown.call_id()).await;
    assert_eq!(kinds(&heard), ["accepted", "started", "finished"]);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn whoever_comes_late_finds_what_was_said() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let call = fleet.submit("look", &json!({"what": "a"}));
    let answer = call.header("Toolfleet-Session", "s").wait().await;
    let silent = fleet.submit("look", &json!({"what": "b"})).wait().await;
    let jetstream = jetstream::new(fleet.client.clone());
    let kept = until("the end to be kept", async || {
        let stream = jetstream.get_stream("TOOLFLEET_EVENTS").await.ok()?;
        let subject = format!("toolfleet.v1.default.event.s.{}", answer.call_id());
        let kept = stream
            .get_last_raw_message_by_subject(&subject)
            .await
            .ok()?;
        let kept: Value = serde_json::from_slice(&kept.payload).unwrap();
        (kept["kind"] == "finished").then_some(kept)
    })
    .await;
    assert_eq!(kept["call_id"], answer["call_id"]);
    let mut stream = jetstream.get_stream("TOOLFLEET_EVENTS").await.unwrap();
    let info = stream.info().await.unwrap();
    let (limits, held) = (&info.config, &info.state);
    assert_eq!(limits.max_age, Duration::from_secs(600));
    assert_eq!(limits.max_bytes, 64 * 1024 * 1024);
    assert_eq!(held.messages, 3, "{} has no session", silent.call_id());
    invariants::hold(&fleet, &witness).await;
}

/// Talks as fast as it can for half a second.
struct Talk;

impl Tool for Talk {
    type Args = Nothing;
    type Output = ();
    const NAME: &'static str = "talk";
    const VERSION: i32 = 1;
    const EFFECT: Effect = Effect::Read;
    const DESCRIPTION: &'static str = "Talks as fast as it can.";

    async fn call(&self, _: Nothing, context: ToolContext) -> Result<(), ToolError> {
        let began = Instant::now();
        while began.elapsed() < TALK {
            context.progress(0.5, "on and on");
            context.proceed().await?;
        }
        context.progress(1.0, "the last word");
        Ok(())
    }
}

const TALK: Duration = Duration::from_millis(500);

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

#[tokio::test]
async fn progress_is_told_a_few_times_a_second_and_at_the_end() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([]).workers(0, &[])).await;
    fleet
        .add_worker_with(Worker::builder().tool(Talk), &[])
        .await;
    let mut events = follow(&fleet).await;
    let call = until("the tool to be known", async || {
        let call = fleet.submit("talk", &json!({}));
        let answer = call.header("Toolfleet-Session", "s").wait().await;
        (answer.code() != "unknown_tool").then_some(answer)
    })
    .await;
    assert_eq!(call["state"], "succeeded", "{}", *call);
    let heard = heard(&mut events, call.call_id()).await;
    let told: Vec<&Value> = heard
        .iter()
        .filter(|event| event["kind"] == "progress")
        .collect();
    assert!((2..=10).contains(&told.len()), "{heard:?}");
    let last = told.last().unwrap();
    assert_eq!(
        (&last["fraction"], &last["message"]),
        (&json!(1.0), &json!("the last word"))
    );
    let kinds = kinds(&heard);
    assert_eq!((kinds[1], *kinds.last().unwrap()), ("started", "finished"));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn what_is_decided_without_a_worker_is_told_as_well() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read"), witness.tool("charge", "once")];
    let mut fleet = Fleet::start(Spec::with(tools)).await;
    let mut events = follow(&fleet).await;
    witness.always("doubtful", Reply::DoneThenClose);
    let doubtful = fleet.submit("charge", &json!({"what": "doubtful"}));
    let doubtful = doubtful
        .key("k")
        .header("Toolfleet-Session", "s")
        .wait()
        .await;
    assert_eq!(doubtful["state"], "in_doubt", "{}", *doubtful);
    let told = heard(&mut events, doubtful.call_id()).await;
    let end = told.last().unwrap();
    assert_eq!(
        (&end["state"], &end["outcome"], &end["code"]),
        (&json!("in_doubt"), &json!("unknown"), &json!("in_doubt"))
    );
    let found = json!({"call_id": doubtful["call_id"], "outcome": "applied", "actor": "a person", "note": "seen"});
    let settled = fleet.ask("toolfleet.v1.default.admin.settle", &found).await;
    assert_eq!(settled["state"], "succeeded", "{}", *settled);
    let after = heard(&mut events, doubtful.call_id()).await;
    assert_eq!(after[0]["state"], "succeeded");
    assert!(after[0]["sequence"].as_u64() > end["sequence"].as_u64());

    fleet.workers.pop().unwrap().drain().await;
    let waiting = fleet.submit("look", &json!({"what": "a"}));
    let waiting = waiting
        .header("Toolfleet-Session", "s")
        .asynchronous()
        .await;
    let asked = json!({"call_id": waiting["call_id"]});
    let cancelled = fleet.ask("toolfleet.v1.default.cancel", &asked).await;
    assert_eq!(cancelled["result"], "cancelled");
    let told = heard(&mut events, waiting.call_id()).await;
    assert_eq!(kinds(&told), ["accepted", "finished"]);
    assert_eq!(told[1]["code"], "cancelled");

    let late = fleet.submit("look", &json!({"what": "b"}));
    let late = late.deadline(Duration::from_millis(100));
    let late = late.header("Toolfleet-Session", "s").wait().await;
    let told = heard(&mut events, late.call_id()).await;
    assert_eq!(told.last().unwrap()["state"], "expired");
    // A worker has to take the pointers of calls that were decided without one.
    fleet.add_worker(&[]).await;
    invariants::hold(&fleet, &witness).await;
}
