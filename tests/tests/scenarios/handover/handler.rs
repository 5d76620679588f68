//! Handlers, which read.

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    witness::Witness,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use worker::{Effect, Tool, ToolContext, ToolError, Worker, tool::Settings};

use super::{change, keep, named};

/// Says what is in its files.
struct Reads;

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

#[derive(Serialize, JsonSchema)]
struct Found {
    name: String,
    pieces: usize,
    text: String,
}

impl Tool for Reads {
    type Args = Nothing;
    type Output = Vec<Found>;
    const NAME: &'static str = "reads";
    const VERSION: i32 = 1;
    const EFFECT: Effect = Effect::Read;
    const DESCRIPTION: &'static str = "Reads its files.";

    fn settings(&self) -> Settings {
        let files = serde_json::from_value(json!({"max": 2}));
        Settings::default().files(&files.expect("a number"))
    }

    async fn call(&self, _: Nothing, told: ToolContext) -> Result<Vec<Found>, ToolError> {
        let mut all = Vec::new();
        for file in told.files() {
            let (mut reader, mut pieces) = (told.read_file(file), 0);
            while let Some(piece) = reader.next().await? {
                assert!(piece.len() <= 256 * 1024);
                pieces += 1;
            }
            let whole = told.read_file(file).rest().await?;
            let end = whole.len().saturating_sub(8);
            all.push(Found {
                name: file.name.clone(),
                pieces,
                text: String::from_utf8_lossy(&whole[end..]).into_owned(),
            });
        }
        Ok(all)
    }
}

#[tokio::test]
async fn a_handler_reads_its_files_and_hears_when_they_are_not_what_they_were() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([]).workers(0, &[])).await;
    let builder = Worker::builder().tool(Reads);
    fleet.add_worker_with(builder, &["--queues", "reads"]).await;
    let long: String = (0..40_000).map(|n| format!("{n:08}\n")).collect();
    let short = keep(&fleet, "short.txt", "text").await;
    let files = [keep(&fleet, "long.txt", &long).await, short];
    let ask = async |key: &str, files: &str| {
        let call = fleet.submit("reads", &json!({})).key(key);
        call.header("Toolfleet-Files", files).wait().await
    };
    let answer = ask("a", &named(&files)).await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    let found = json!([
        {"name": "long.txt", "pieces": 2, "text": "0039999\n"},
        {"name": "short.txt", "pieces": 1, "text": "text"},
    ]);
    assert_eq!(answer["result"], found);
    let none = fleet.submit("reads", &json!({})).key("b").wait().await;
    assert_eq!(none["result"], json!([]));
    change(&fleet, short).await;
    let changed = ask("c", &short.to_string()).await;
    assert_eq!(changed["state"], "failed", "{}", *changed);
    invariants::hold(&fleet, &witness).await;
}
