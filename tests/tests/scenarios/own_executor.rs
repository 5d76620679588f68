//! An executor of a kind that only one program has: its tools are accepted by every dispatcher, run by that program's workers, and put
//! back by others.

use std::{fs, path::Path};

use example_executor::Lines;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::Witness,
};
use serde_json::json;
use worker::{Worker, executors::Executor as _};

/// The manifest of the example, which an operator applies.
const SPELL: &str = include_str!("../../../examples/executor/spell.yaml");

#[test]
fn the_program_and_the_manifest_in_the_docs_are_those_that_are_tested() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let docs = read("docs/executors/own.md");
    let program = read("examples/executor/src/main.rs");
    assert!(docs.contains(&format!("```rust\n{program}```")));
    assert!(docs.contains(&format!("```yaml\n{SPELL}```")));
}

fn lines() -> Lines {
    let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/executor/server.py");
    Lines::new("python3", &[server.to_str().unwrap()])
}

#[tokio::test]
async fn a_call_waits_for_a_worker_whose_program_has_the_executor() {
    let witness = Witness::start().await;
    let spec = Spec::with([SPELL.to_owned()]).workers(1, &["--queues", "lines"]);
    let mut fleet = Fleet::start(spec).await;
    let call = fleet.submit("spell", &json!({"word": "two"}));
    let call = call.asynchronous().await.call_id();
    let why = "this worker has no executor of the kind lines";
    until_so("the worker to say what it lacks", async || {
        let row = fleet.call(call).await;
        let obstacle = &row["obstacle"];
        obstacle["lack"] == "ability" && obstacle["why"] == why
    })
    .await;
    // It says so for `doctor` as well, whether or not there are calls.
    let unable = "SELECT cannot_run FROM toolfleet.workers WHERE $1::uuid IS NOT NULL";
    until_so("the worker's row to say so", async || {
        let row = fleet.rows(unable, call).await.remove(0);
        row["cannot_run"][0]["tool"] == "spell" && row["cannot_run"][0]["why"] == why
    })
    .await;
    assert_eq!(fleet.call(call).await["attempts"], 0);

    let builder = Worker::builder().executor("lines", lines());
    fleet.add_worker_with(builder, &["--queues", "lines"]).await;
    let row = fleet.until_state(call, "succeeded").await;
    assert_eq!(row["result"], json!({"number": 2}));
    let refused = fleet.submit("spell", &json!({"word": "four"}));
    let refused = refused.wait().await;
    assert_eq!(refused.code(), "tool_error", "{}", *refused);
    assert_eq!(refused["error"]["details"]["code"], "unknown_word");
    invariants::hold(&fleet, &witness).await;

    // Its server ended before it, so nothing of it is left.
    fleet.workers.pop().unwrap().drain().await;
    let left = "SELECT count(*) FROM toolfleet.workers WHERE state = 'left'";
    assert_eq!(fleet.count(left).await, 1);
}

#[tokio::test]
#[should_panic(expected = "the executor lines cannot start")]
async fn a_worker_whose_executor_cannot_start_does_not_start() {
    let mut fleet = Fleet::start(Spec::with([]).workers(0, &[])).await;
    let nowhere = Worker::builder().executor("lines", Lines::new("/nowhere/python3", &[]));
    fleet.add_worker_with(nowhere, &[]).await;
}

#[tokio::test]
#[should_panic(expected = "executor lines: it is here twice; give each kind a name of its own")]
async fn a_kind_that_is_registered_twice_does_not_start() {
    let mut fleet = Fleet::start(Spec::with([]).workers(0, &[])).await;
    let twice = Worker::builder()
        .executor("lines", lines())
        .executor("lines", lines());
    fleet.add_worker_with(twice, &[]).await;
}

#[test]
fn a_tool_of_such_a_kind_fails_by_its_kind() {
    let manifest = fleet::manifest::parse(SPELL).unwrap();
    assert_eq!(lines().target(&manifest), "lines");
}
