//! The other kinds of tools that may answer later: a NATS service, which says so in a header, and a handler of a worker's own program.

use std::sync::{Arc, Mutex};

use async_nats::HeaderMap;
use fleet::call::Effect;
use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::Deserialize;
use worker::{
    Worker,
    tool::{Settings, Tool, ToolContext, ToolError},
};

use super::*;

const SERVICE: &str = "name: pay\nversion: 1\ndescription: Pays later.\neffect: once\n\
    input_schema: {type: object, properties: {what: {type: string}}, required: [what]}\n\
    executor: {nats: {subject: tools.pay}}\n";

/// A service that says once that it answers later; the token that it was given.
async fn says_later(fleet: &Fleet) -> String {
    let client = async_nats::connect(fleet.nats_url()).await.unwrap();
    let mut requests = client.subscribe("tools.pay").await.unwrap();
    client.flush().await.unwrap();
    let request = requests.next().await.unwrap();
    let headers = request.headers.unwrap_or_default();
    let token = headers.get("Toolfleet-Completion-Token");
    let token = token.map_or_else(String::new, |token| token.as_str().to_owned());
    let mut later = HeaderMap::new();
    later.insert("Toolfleet-Deferred", "true");
    let reply = request.reply.unwrap();
    client
        .publish_with_headers(reply, later, "".into())
        .await
        .unwrap();
    client.flush().await.unwrap();
    token
}

#[tokio::test]
async fn a_service_says_in_a_header_that_it_answers_later() {
    let witness = Witness::start().await;
    let tool = format!("{SERVICE}completion: {{wait: 1m}}\n");
    let fleet = Fleet::start(Spec::with([tool])).await;
    let submitting = submission(&fleet, "pay", "a").asynchronous();
    let (accepted, token) = tokio::join!(submitting, says_later(&fleet));
    let call = accepted.call_id();
    fleet.until_state(call, "awaiting_client").await;
    let told = TakenCall { call, token }
        .answers(&fleet, &json!({"result": {"paid": 2}}))
        .await;
    assert_eq!(words(&told, ["state", "source"]), ["succeeded", "live"]);
    invariants::hold(&fleet, &witness).await;
}

/// Whoever has the token may answer for the tool: to its caller it says too much.
#[tokio::test]
async fn a_service_that_repeats_its_token_in_an_error_does_not_tell_its_caller() {
    let witness = Witness::start().await;
    let tool = format!("{SERVICE}completion: {{wait: 1m}}\n");
    let fleet = Fleet::start(Spec::with([tool])).await;
    let submitting = submission(&fleet, "pay", "a").asynchronous();
    let repeats = async {
        let client = async_nats::connect(fleet.nats_url()).await.unwrap();
        let mut requests = client.subscribe("tools.pay").await.unwrap();
        client.flush().await.unwrap();
        let request = requests.next().await.unwrap();
        let headers = request.headers.unwrap();
        let token = headers.get("Toolfleet-Completion-Token").unwrap().as_str();
        let mut error = HeaderMap::new();
        error.insert("Nats-Service-Error-Code", "500");
        error.insert("Nats-Service-Error", format!("boom, token {token}"));
        let reply = request.reply.unwrap();
        let sent = client.publish_with_headers(reply, error, "".into());
        sent.await.unwrap();
        client.flush().await.unwrap();
        token.to_owned()
    };
    let (accepted, token) = tokio::join!(submitting, repeats);
    let call = accepted.call_id();
    let row = fleet.until_state(call, "in_doubt").await;
    let told = fleet.get(&json!({"call_id": call})).await;
    let proof = token.rsplit('.').next().unwrap();
    assert!(told.to_string().contains("[secret]"), "{}", *told);
    assert!(!told.to_string().contains(proof) && !row.to_string().contains(proof));
    let attempts = fleet.attempts(call).await;
    assert!(!json!(attempts).to_string().contains(proof), "{attempts:?}");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_service_without_completion_in_its_manifest_that_says_so_leaves_a_doubt() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([SERVICE.to_owned()])).await;
    let submitting = submission(&fleet, "pay", "a").asynchronous();
    let (accepted, token) = tokio::join!(submitting, says_later(&fleet));
    assert_eq!(token, "");
    let row = fleet.until_state(accepted.call_id(), "in_doubt").await;
    let cause = row["error"]["details"]["cause"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(cause.contains("would answer later"), "{cause}");
    invariants::hold(&fleet, &witness).await;
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Args {
    /// Which job.
    what: String,
}

/// Begins a job, and leaves the token where the test finds it.
struct Job(Arc<Mutex<Vec<(String, String)>>>);

impl Tool for Job {
    type Args = Args;
    type Output = Value;
    const NAME: &'static str = "job";
    const VERSION: i32 = 1;
    const EFFECT: Effect = Effect::Once;
    const DESCRIPTION: &'static str = "Begins a job that takes a while.";

    fn settings(&self) -> Settings {
        Settings::default().completion(std::time::Duration::from_secs(60))
    }

    async fn call(&self, args: Args, context: ToolContext) -> Result<Value, ToolError> {
        let token = context.completion_token().unwrap_or_default().to_owned();
        self.0.lock().unwrap().push((args.what, token));
        Err(ToolError::deferred())
    }
}

#[tokio::test]
async fn a_handler_begins_a_job_and_its_program_answers_later() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([]).workers(0, &[])).await;
    let begun = Arc::new(Mutex::new(Vec::new()));
    let builder = Worker::builder().tool(Job(Arc::clone(&begun)));
    fleet.add_worker_with(builder, &["--queues", "job"]).await;
    until_so("the tool to be known", async || {
        let tools = fleet.ask("toolfleet.v1.default.tools", &json!({})).await;
        tools.to_string().contains("\"job\"")
    })
    .await;
    let call = submission(&fleet, "job", "a")
        .asynchronous()
        .await
        .call_id();
    fleet.until_state(call, "awaiting_client").await;
    let (_, token) = begun.lock().unwrap().pop().unwrap();
    let told = TakenCall { call, token }
        .answers(&fleet, &json!({"result": "done"}))
        .await;
    assert_eq!(
        words(&told, ["state", "result"]),
        [json!("succeeded"), json!("done")]
    );
    invariants::hold(&fleet, &witness).await;
}
