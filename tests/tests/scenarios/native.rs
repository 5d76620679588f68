//! Tools written in Rust: the worker of the example as a process, and what the fleet makes of what a handler says.

use std::{fs, path::Path, sync::Arc, time::Duration};

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::Witness,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Mutex, Semaphore};
use worker::{Effect, Tool, ToolContext, ToolError, Worker, tool::Settings};

#[test]
fn the_example_in_the_docs_is_the_one_that_is_tested() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let (program, docs) = (
        read("examples/native/src/main.rs"),
        read("docs/executors/native.md"),
    );
    assert!(program.lines().count() < 40);
    assert!(docs.contains(&format!("```rust\n{program}```")));
    let own_tool = read("tests/tests/conformance/own_tool.rs");
    let (_, own_tool) = own_tool.split_once("\n\n").unwrap();
    assert!(docs.contains(&format!("```rust\n{own_tool}```")));
    let manifest = read("examples/native/Cargo.toml");
    let (_, dependencies) = manifest.split_once("[dependencies]").unwrap();
    for line in dependencies.lines().filter(|line| !line.contains("path")) {
        assert!(docs.contains(line), "{line}");
    }
}

#[tokio::test]
async fn the_example_is_a_worker_like_any_other() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([]).workers(0, &[])).await;
    let mut worker = fleet.real_native_worker("mine", &[]);
    worker.ready().await;
    until_so("the tool to be known", async || {
        let tools = fleet.ask("toolfleet.v1.default.tools", &json!({})).await;
        tools.to_string().contains("count_primes")
    })
    .await;
    let tools = fleet
        .ask("toolfleet.v1.default.tools", &json!({"format": "full"}))
        .await;
    let told = tools.to_string();
    assert!(told.contains("Primes below this number"), "{told}");
    assert!(told.contains("4294967295"), "what a u32 can hold: {told}");

    let answer = fleet.submit("count_primes", &json!({"below": 1_000}));
    let answer = answer.wait().await;
    assert_eq!(answer["result"], json!({"count": 168}), "{}", *answer);
    let wrong = fleet.submit("count_primes", &json!({"below": "many"}));
    let wrong = wrong.wait().await;
    assert_eq!(wrong.code(), "invalid_arguments");
    assert_eq!(wrong["error"]["path"], "/below");
    let more = fleet.submit("count_primes", &json!({"below": 1_000, "above": 1}));
    let more = more.wait().await;
    assert_eq!(more.code(), "invalid_arguments");
    assert_eq!(more["error"]["path"], "/above");

    let endless = fleet.submit("count_primes", &json!({"below": 4_000_000_000_u32}));
    let endless = endless.asynchronous().await.call_id();
    fleet.until_state(endless, "running").await;
    let asked = json!({"call_id": endless});
    let verdict = fleet.ask("toolfleet.v1.default.cancel", &asked).await;
    assert_eq!(verdict["result"], "cancel_requested");
    fleet.until_state(endless, "cancelled").await;

    let last = fleet.submit("count_primes", &json!({"below": 1_000_000}));
    let last = last.asynchronous().await.call_id();
    fleet.until_state(last, "running").await;
    let status = worker.terminate().await;
    assert!(status.success(), "{status:?}");
    let ended = fleet.call(last).await;
    assert_eq!(
        (&ended["state"], &ended["attempts"]),
        (&json!("succeeded"), &json!(1))
    );
    assert_eq!(ended["result"], json!({"count": 78_498}));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_worker_of_ones_own_is_the_guard_of_process_tools_too() {
    let witness = Witness::start().await;
    let echo = json!({
        "name": "echo", "version": 1, "description": "Says what it is told.", "effect": "read",
        "input_schema": {"type": "object"}, "executor": {"process": {"command": ["cat"]}},
    });
    let fleet = Fleet::start(Spec::with([echo.to_string()]).workers(0, &[])).await;
    let mut worker = fleet.real_native_worker("mine", &["--queues", "default"]);
    worker.ready().await;
    let answer = fleet.submit("echo", &json!({"a": 1})).wait().await;
    assert_eq!(answer["result"], json!({"a": 1}), "{}", *answer);
    let own = fleet.submit("count_primes", &json!({"below": 10}));
    assert_eq!(own.wait().await["result"], json!({"count": 4}));
    invariants::hold(&fleet, &witness).await;
}

/// What a test wants a tool to do in its first attempt; later ones answer with their number.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum First {
    Panic,
    NeverStart,
    Fail,
    Refuse,
    Hang,
}

#[derive(Deserialize, JsonSchema)]
struct Args {
    /// What it does.
    first: First,
}

/// A tool of either effect.
struct Obedient<const ONCE: bool> {
    /// A permit for each attempt that began.
    began: Arc<Semaphore>,
}

impl<const ONCE: bool> Tool for Obedient<ONCE> {
    type Args = Args;
    type Output = u32;
    const NAME: &'static str = if ONCE { "act" } else { "look" };
    const VERSION: i32 = 1;
    const EFFECT: Effect = if ONCE { Effect::Once } else { Effect::Read };
    const DESCRIPTION: &'static str = "Does what a test asks it to.";

    fn settings(&self) -> Settings {
        Settings::default()
            .timeout(Duration::from_secs(1))
            .deadline(Duration::from_secs(60))
    }

    async fn call(&self, args: Args, context: ToolContext) -> Result<u32, ToolError> {
        self.began.add_permits(1);
        if context.attempt() > 1 {
            return Ok(context.attempt());
        }
        match args.first {
            First::Panic => panic!("as asked"),
            First::NeverStart => Err(ToolError::not_started("the line is busy")),
            First::Fail => Err(ToolError::unknown("the line broke")),
            First::Refuse => Err(ToolError::business("not today").with_code("closed")),
            First::Hang => std::future::pending().await,
        }
    }
}

/// A fleet whose worker has both.
async fn obedient() -> (Fleet, Arc<Semaphore>) {
    let mut fleet = Fleet::start(Spec::with([]).workers(0, &[])).await;
    let began = Arc::new(Semaphore::new(0));
    add_obedient(&mut fleet, &began).await;
    (fleet, began)
}

async fn add_obedient(fleet: &mut Fleet, began: &Arc<Semaphore>) {
    let builder = Worker::builder()
        .tool(Obedient::<true> {
            began: Arc::clone(began),
        })
        .tool(Obedient::<false> {
            began: Arc::clone(began),
        });
    fleet.add_worker_with(builder, &[]).await;
    until_so("both tools to be known", async || {
        let tools = fleet.ask("toolfleet.v1.default.tools", &json!({})).await;
        let tools = tools.to_string();
        tools.contains("\"act\"") && tools.contains("\"look\"")
    })
    .await;
}

#[tokio::test]
async fn what_a_handler_says_of_its_effect_decides() {
    let witness = Witness::start().await;
    let (fleet, _) = obedient().await;
    let call = async |tool: &str, first: &str| {
        let key = format!("{tool}-{first}");
        let call = fleet.submit(tool, &json!({ "first": first })).key(&key);
        let answer = call.wait().await;
        let said = (answer["state"].clone(), answer["attempts"].clone());
        (said, answer)
    };
    let of = |state: &str, attempts: u32| (json!(state), json!(attempts));
    for first in ["panic", "never_start", "fail", "hang"] {
        let (said, answer) = call("look", first).await;
        assert_eq!(said, of("succeeded", 2), "{first} {}", *answer);
        assert_eq!(answer["result"], json!(2));
    }
    for first in ["panic", "fail", "hang"] {
        assert_eq!(call("act", first).await.0, of("in_doubt", 1), "{first}");
    }
    assert_eq!(call("act", "never_start").await.0, of("succeeded", 2));
    for tool in ["look", "act"] {
        let (said, answer) = call(tool, "refuse").await;
        assert_eq!(said, of("failed", 1));
        assert_eq!(answer.code(), "tool_error");
        assert_eq!(answer["error"]["details"]["code"], "closed", "{}", *answer);
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_call_waits_for_a_worker_that_has_its_handler() {
    let witness = Witness::start().await;
    let (mut fleet, began) = obedient().await;
    fleet.workers.pop().unwrap().drain().await;
    // It pulls the queue of a tool that it does not have.
    fleet.add_worker(&["--queues", "look"]).await;
    let call = fleet.submit("look", &json!({"first": "refuse"}));
    let call = call.asynchronous().await.call_id();
    until_so("the call to be given a pause", async || {
        let row = fleet.call(call).await;
        row["not_before"] != row["accepted_at"]
    })
    .await;
    assert_eq!(fleet.call(call).await["attempts"], 0);
    add_obedient(&mut fleet, &began).await;
    fleet.until_state(call, "failed").await;
    assert_eq!(began.available_permits(), 1);
    invariants::hold(&fleet, &witness).await;
}

/// The tool `look` after a change without a new version.
struct Changed;

impl Tool for Changed {
    type Args = Args;
    type Output = Value;
    const NAME: &'static str = "look";
    const VERSION: i32 = 1;
    const EFFECT: Effect = Effect::Read;
    const DESCRIPTION: &'static str = "Does something else.";

    async fn call(&self, _: Args, _: ToolContext) -> Result<Value, ToolError> {
        Ok(Value::Null)
    }
}

#[tokio::test]
#[should_panic(expected = "tool look: version 1 is there with other content; raise its VERSION")]
async fn a_changed_tool_with_its_old_version_does_not_start() {
    let (mut fleet, _) = obedient().await;
    fleet
        .add_worker_with(Worker::builder().tool(Changed), &[])
        .await;
}

#[tokio::test]
#[should_panic(expected = "tool look: /version: version 1 is here twice; raise the version of one")]
async fn the_same_version_twice_does_not_start() {
    let mut fleet = Fleet::start(Spec::with([]).workers(0, &[])).await;
    let twice = Worker::builder().tool(Changed).tool(Changed);
    fleet.add_worker_with(twice, &[]).await;
}

#[tokio::test]
#[should_panic(
    expected = "tool look: version 1 is not applied, and the role of DATABASE_URL may not apply it"
)]
async fn a_worker_with_its_role_applies_nothing() {
    let mut fleet = Fleet::start(Spec::with([]).roles().workers(0, &[])).await;
    let own = Worker::builder().tool(Changed);
    fleet.add_worker_with(own, &[]).await;
}

#[tokio::test]
async fn a_worker_with_its_role_runs_what_an_operator_applied() {
    let witness = Witness::start().await;
    let own = Worker::builder().tool(Changed);
    let manifests = own.manifests().iter().map(|own| json!(own).to_string());
    let spec = Spec::with(manifests).roles().workers(0, &[]);
    let mut fleet = Fleet::start(spec).await;
    fleet.add_worker_with(own, &[]).await;
    let answer = fleet.submit("look", &json!({"first": "fail"})).wait().await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    invariants::hold(&fleet, &witness).await;
}

/// A tool that holds a thread until it is let go.
struct Stubborn {
    held: Arc<Mutex<()>>,
}

impl Tool for Stubborn {
    type Args = std::collections::BTreeMap<String, Value>;
    type Output = u32;
    const NAME: &'static str = "hold";
    const VERSION: i32 = 1;
    const EFFECT: Effect = Effect::Once;
    const DESCRIPTION: &'static str = "Holds a thread.";

    fn settings(&self) -> Settings {
        Settings::default().timeout(Duration::from_secs(1))
    }

    async fn call(&self, _: Self::Args, context: ToolContext) -> Result<u32, ToolError> {
        let held = Arc::clone(&self.held);
        context.blocking(move || drop(held.blocking_lock())).await?;
        Ok(1)
    }
}

#[tokio::test]
async fn a_thread_that_goes_on_keeps_its_worker_from_being_proven_gone() {
    let mut fleet = Fleet::start(Spec::with([]).workers(0, &[])).await;
    let lock = Arc::new(Mutex::new(()));
    let held = Arc::clone(&lock);
    let guard = lock.lock().await;
    fleet
        .add_worker_with(Worker::builder().tool(Stubborn { held }), &[])
        .await;
    until_so("the tool to be known", async || {
        let tools = fleet.ask("toolfleet.v1.default.tools", &json!({})).await;
        tools.to_string().contains("\"hold\"")
    })
    .await;
    let call = fleet.submit("hold", &json!({})).key("k");
    let call = call.asynchronous().await.call_id();
    fleet.until_state(call, "in_doubt").await;
    fleet.workers.pop().unwrap().drain().await;
    let fenced: bool = sqlx::query_scalar("SELECT toolfleet.is_fenced($1)")
        .bind(call.0)
        .fetch_one(&mut fleet.database.connect().await)
        .await
        .unwrap();
    assert!(!fenced, "its thread still runs in this process");
    drop(guard);
}
