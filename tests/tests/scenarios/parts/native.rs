//! Tools in the worker's own program.

use std::time::Duration;

use fleet::wire::part::ATTEMPT_MAX;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::Witness,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;
use worker::{Effect, Image, Part, Tool, ToolContext, ToolError, Worker};

use super::{followed, parts_of, reports, text};

/// Tells what it is asked for.
struct Teller;

#[derive(Deserialize, JsonSchema)]
struct Story {
    /// `story`, `flood`, `long` or `beats`.
    kind: String,
}

impl Tool for Teller {
    type Args = Story;
    type Output = bool;
    const NAME: &'static str = "tell";
    const VERSION: i32 = 1;
    const EFFECT: Effect = Effect::Read;
    const DESCRIPTION: &'static str = "Tells something; its answer is whether anybody may hear it.";

    async fn call(&self, story: Story, told: ToolContext) -> Result<bool, ToolError> {
        match story.kind.as_str() {
            "story" => {
                told.output(Part::Step("thinking".to_owned()));
                for word in ["once ", "upon ", "a ", "time"] {
                    told.output(word);
                    sleep(Duration::from_millis(5)).await;
                }
                told.progress(0.5, "half");
                told.output(Part::Value(json!({"rows": [9_007_199_254_740_993_u64, 1]})));
                told.output(Image {
                    mime: "image/png".to_owned(),
                    b64: "aGk=".to_owned(),
                    index: 0,
                    partial: true,
                });
                told.output(Part::Step(String::new()));
                sleep(Duration::from_millis(200)).await;
                told.output("the end");
            }
            "flood" => {
                for number in 0..100_000 {
                    told.output(Part::Value(json!(number)));
                }
            }
            "long" => {
                for _ in 0..1_000 {
                    told.output("x".repeat(8 * 1_024));
                    told.proceed().await?;
                }
            }
            _beats => sleep(Duration::from_millis(5_500)).await,
        }
        Ok(told.is_followed())
    }
}

async fn fleet() -> Fleet {
    let mut fleet = Fleet::start(Spec::with([]).workers(0, &[])).await;
    let worker = Worker::builder().tool(Teller);
    fleet.add_worker_with(worker, &[]).await;
    until_so("the tool to be known", async || {
        let call = fleet.submit("tell", &json!({"kind": "story"})).wait().await;
        call.code() != "unknown_tool"
    })
    .await;
    fleet
}

#[tokio::test]
async fn parts_come_in_order_and_joined() {
    let witness = Witness::start().await;
    let fleet = fleet().await;
    let (answer, told) = followed(&fleet, "tell", &json!({"kind": "story"})).await;
    assert_eq!(answer["result"], json!(true), "{}", *answer);
    let parts = parts_of(&told, 1);
    let image = json!({"mime": "image/png", "b64": "aGk=", "index": 0, "partial": true});
    assert_eq!(
        parts,
        [
            json!({"step": "thinking"}),
            json!({"text": "once upon a time"}),
            json!({"value": {"rows": [9_007_199_254_740_993_u64, 1]}}),
            json!({"image": image}),
            json!({"text": "the end"}),
        ]
    );
    assert_eq!(reports(&told), [json!([0.5, "half"])]);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn beyond_a_bound_the_result_alone_speaks() {
    let witness = Witness::start().await;
    let fleet = fleet().await;
    let (answer, told) = followed(&fleet, "tell", &json!({"kind": "flood"})).await;
    assert_eq!(answer["result"], json!(true), "{}", *answer);
    let parts = parts_of(&told, 1);
    assert!((100..=200).contains(&parts.len()), "{}", parts.len());
    let told_values: Vec<&Value> = parts.iter().map(|part| &part["value"]).collect();
    let first: Vec<Value> = (0..parts.len()).map(|number| json!(number)).collect();
    assert_eq!(told_values, first.iter().collect::<Vec<_>>());

    let (answer, told) = followed(&fleet, "tell", &json!({"kind": "long"})).await;
    assert_eq!(answer["result"], json!(true), "{}", *answer);
    let text = text(&parts_of(&told, 1));
    assert_eq!(text.len(), ATTEMPT_MAX);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn without_a_session_nothing_is_told_and_the_tool_knows() {
    let witness = Witness::start().await;
    let fleet = fleet().await;
    let everything = fleet.client.subscribe("toolfleet.v1.*.event.>").await;
    let mut everything = everything.unwrap();
    let silent = fleet.submit("tell", &json!({"kind": "story"})).wait().await;
    assert_eq!(silent["result"], json!(false), "{}", *silent);
    // What is published later by the same worker comes later.
    let (answer, _told) = followed(&fleet, "tell", &json!({"kind": "flood"})).await;
    let first = futures_util::StreamExt::next(&mut everything)
        .await
        .unwrap();
    assert!(first.subject.ends_with(&answer.call_id().to_string()));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn an_attempt_says_now_and_then_that_it_runs() {
    let witness = Witness::start().await;
    let fleet = fleet().await;
    let (answer, told) = followed(&fleet, "tell", &json!({"kind": "beats"})).await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    let beats = told.iter().filter(|event| event["kind"] == "running");
    let beats: Vec<&Value> = beats.map(|event| &event["attempt"]).collect();
    assert_eq!(beats, [&json!(1)]);
    invariants::hold(&fleet, &witness).await;
}
