//! What a worker lacks to run a call: told while the call waits, when it expires, and before it is ever made.

use std::{fs, time::Duration};

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::Witness,
};
use serde_json::json;

/// How many calls lack this, as far as a worker has said so.
const LACKING: &str =
    "SELECT count(*) FROM toolfleet.calls WHERE obstacle->>'lack' = 'program_slot'";

#[tokio::test]
async fn a_missing_secret_is_told_by_name_until_the_call_expires() {
    let witness = Witness::start().await;
    let tool = witness.tool("sealed", "read").replace(
        "method: POST",
        "method: POST, headers: {x-seal: \"secret://NOWHERE\"}",
    );
    let fleet = Fleet::start(Spec::with([tool, witness.tool("look", "read")])).await;
    let call = fleet.submit("sealed", &json!({"what": "s"}));
    let call = call.deadline(Duration::from_secs(8)).asynchronous().await;
    let call = call.call_id();
    // Put back more than once, and told of once.
    let put_back = "SELECT count(*) FROM toolfleet.open_calls WHERE publish_n > 2";
    until_so("the call to be put back again", async || {
        fleet.count(put_back).await == 1
    })
    .await;
    let waiting = fleet.call(call).await;
    let why = "secret NOWHERE is neither in the secrets folder nor in the environment";
    let obstacle = &waiting["obstacle"];
    assert_eq!(
        (&obstacle["lack"], &obstacle["secret"], &obstacle["worker"]),
        (&json!("secret"), &json!("NOWHERE"), &json!("worker-1"))
    );
    assert_eq!(obstacle["why"], why);
    let row = fleet.until_state(call, "expired").await;
    let message = row["error"]["message"].as_str().unwrap_or_default();
    let begins = format!(
        "No worker could run the call before its deadline; worker worker-1: {why}. Nothing was changed."
    );
    assert!(message.starts_with(&begins), "{message}");
    assert_eq!(
        (&row["attempts"], &row["obstacle"]),
        (&json!(0), &json!(null))
    );
    let events = fleet.events(call).await;
    let told: Vec<_> = events
        .iter()
        .filter(|event| event["reason"] == "cannot_run")
        .map(|event| (&event["details"]["why"], &event["details"]["worker"]))
        .collect();
    assert_eq!(told, [(&json!(why), &json!("worker-1"))]);
    // The worker says so too, before anybody calls; of the other tool it says nothing.
    let unable = "SELECT cannot_run FROM toolfleet.workers WHERE $1::uuid IS NOT NULL";
    let unable = fleet.rows(unable, call).await.remove(0);
    let tools = unable["cannot_run"].as_array().expect("a list").clone();
    let [sealed] = tools.as_slice() else {
        panic!("{tools:?}");
    };
    assert_eq!(
        (&sealed["tool"], &sealed["secret"]),
        (&json!("sealed"), &json!("NOWHERE"))
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn programs_wait_for_a_slot_without_an_attempt_and_hold_up_nothing_else() {
    const PROGRAMS: i64 = 12;
    let witness = Witness::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let go = folder.path().join("go");
    let program = json!({
        "name": "program", "version": 1, "description": "Ends when it may.", "effect": "once",
        "input_schema": {"type": "object"},
        "timeout": "50s",
        "retry": {"strategy": "none"},
        "executor": {"process": {"command": ["sh", "-c",
            format!("while ! test -e {}; do sleep 0.05; done; echo 1", go.display())]}},
    });
    let tools = [program.to_string(), witness.tool("look", "read")];
    // Two run, two wait for them here, and of the eight slots four are left.
    let spec = Spec::with(tools).workers(1, &["--programs", "2", "--concurrency", "8"]);
    let fleet = Fleet::start(spec).await;
    let mut calls = Vec::new();
    for n in 0..PROGRAMS {
        let call = fleet
            .submit("program", &json!({"n": n}))
            .key(&n.to_string());
        calls.push(call.asynchronous().await.call_id());
    }
    until_so("the others to be put back", async || {
        fleet.count(LACKING).await == PROGRAMS - 2
    })
    .await;
    let attempts = "SELECT count(*) FROM toolfleet.attempts";
    assert_eq!(fleet.count(attempts).await, 2);
    let answer = fleet.submit("look", &json!({"what": "l"})).wait().await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    fs::write(&go, "").expect("let the programs end");
    for call in calls {
        let row = fleet.until_state(call, "succeeded").await;
        assert_eq!(row["attempts"], 1, "{row}");
        let events = fleet.events(call).await;
        let reasons: Vec<_> = events.iter().map(|event| &event["reason"]).collect();
        assert_eq!(reasons, ["accepted", "claimed", "applied"]);
    }
    invariants::hold(&fleet, &witness).await;
}
