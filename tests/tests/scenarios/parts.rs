//! Parts of answers: from every kind of tool, in order, bounded, for sessions alone; and what is told between attempts.

mod native;
mod program;
mod retrying;
mod service;
mod stream;

use fleet_tests::{caller::Answer, fleet::Fleet};
use serde_json::{Value, json};

use crate::events::{follow, heard};

/// Calls the tool for followers of the session `s`; the answer and what they heard.
async fn followed(fleet: &Fleet, tool: &str, args: &Value) -> (Answer, Vec<Value>) {
    let mut events = follow(fleet).await;
    let call = fleet.submit(tool, args).key(&format!("{tool}-{args}"));
    let answer = call.header("Toolfleet-Session", "s").wait().await;
    assert!(answer["call_id"].is_string(), "{}", *answer);
    let told = heard(&mut events, answer.call_id()).await;
    (answer, told)
}

/// The parts that this attempt told; they are numbered without gaps and come after its start and before the end.
fn parts_of(events: &[Value], attempt: u32) -> Vec<Value> {
    let place = |kind: &str| {
        let is_it = |event: &Value| {
            event["kind"] == kind && (kind == "finished" || event["attempt"] == attempt)
        };
        events.iter().position(is_it)
    };
    let mut parts = Vec::new();
    for (at, event) in events.iter().enumerate() {
        if event["kind"] == "output" && event["attempt"] == attempt {
            assert_eq!(event["part"], parts.len(), "{events:?}");
            assert!(place("started") < Some(at) && Some(at) < place("finished"));
            parts.push(event["output"].clone());
        }
    }
    parts
}

/// The text of these parts, which have nothing else.
fn text(parts: &[Value]) -> String {
    let text = |part: &Value| match part["text"].as_str() {
        Some(text) => text.to_owned(),
        None => panic!("{part}"),
    };
    parts.iter().map(text).collect()
}

/// Reports of how far the tool is.
fn reports(events: &[Value]) -> Vec<Value> {
    let reports = events.iter().filter(|event| event["kind"] == "progress");
    let report = |event: &Value| json!([event["fraction"], event["message"]]);
    reports.map(report).collect()
}
