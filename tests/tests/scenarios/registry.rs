//! Tools come in versions: new calls take the newest, old ones keep theirs.

use std::time::Instant;

use fleet_tests::{
    fleet::{FLEET_WIDE, Fleet, Spec},
    invariants,
    wait::until_so,
    witness::Witness,
};
use serde_json::json;

/// The next version of a tool, whose effects take place at another witness.
fn next(manifest: &str, old: &Witness, new: &Witness) -> String {
    manifest
        .replace("version: 1", "version: 2")
        .replace(&old.url(), &new.url())
}

#[tokio::test]
async fn a_new_version_is_used_by_everyone_within_two_seconds() {
    let (old, new) = (Witness::start().await, Witness::start().await);
    let tool = old.tool("look", "read");
    let fleet = Fleet::start(Spec::with([tool.clone()]).dispatchers(2).workers(2, &[])).await;
    let call = fleet.submit("look", &json!({"what": "a"}));
    assert_eq!(call.clone().wait().await["tool_version"], 1);
    let applied = Instant::now();
    fleet.apply(&next(&tool, &old, &new)).await;
    let mut in_a_row = 0;
    // Both dispatchers answer some of these.
    until_so("the new version to be everybody's", async || {
        let answer = call.clone().wait().await;
        in_a_row = if answer["tool_version"] == 2 {
            in_a_row + 1
        } else {
            0
        };
        in_a_row == 16
    })
    .await;
    assert!(applied.elapsed() < FLEET_WIDE, "{:?}", applied.elapsed());
    assert_eq!(new.applied("a") + old.applied("a"), fleet.accepted().len());
    invariants::hold(&fleet, &new).await;
}

#[tokio::test]
async fn a_call_keeps_the_version_it_was_accepted_with() {
    let (old, new) = (Witness::start().await, Witness::start().await);
    let tool = old.tool("charge", "once");
    let mut fleet = Fleet::start(Spec::with([tool.clone()]).workers(0, &[])).await;
    let call = fleet.submit("charge", &json!({"what": "a"})).key("k");
    let accepted = call.clone().asynchronous().await;
    fleet.apply(&next(&tool, &old, &new)).await;
    let asked = fleet.submit("charge", &json!({"what": "b"}));
    until_so("the dispatcher to know the new version", async || {
        let answer = asked.clone().key("b").asynchronous().await;
        fleet.call(answer.call_id()).await["tool_version"] == 2
            || asked
                .clone()
                .header("Toolfleet-Tool-Version", "2")
                .key("c")
                .asynchronous()
                .await["state"]
                == "queued"
    })
    .await;
    fleet.add_worker(&[]).await;
    let row = fleet.until_state(accepted.call_id(), "succeeded").await;
    assert_eq!(row["tool_version"], 1);
    assert_eq!((old.applied("a"), new.applied("a")), (1, 0));
    // Its key still names it, whatever the newest version is.
    let replay = call.wait().await;
    assert_eq!(
        (&replay["replayed"], &replay["tool_version"]),
        (&json!(true), &json!(1))
    );
    for call in fleet.accepted() {
        fleet.until_state(call, "succeeded").await;
    }
    invariants::hold(&fleet, &old).await;
}

#[tokio::test]
async fn a_caller_may_ask_for_a_version_and_only_for_one_that_exists() {
    let (old, new) = (Witness::start().await, Witness::start().await);
    let tool = old.tool("look", "read");
    let tools = [tool.clone(), next(&tool, &old, &new)];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let call = fleet.submit("look", &json!({"what": "a"}));
    let ask = |version: &str| {
        call.clone()
            .header("Toolfleet-Tool-Version", version)
            .wait()
    };
    assert_eq!(ask("1").await["tool_version"], 1);
    assert_eq!(ask("2").await["tool_version"], 2);
    assert_eq!(ask("3").await.code(), "unknown_tool_version");
    assert_eq!((old.applied("a"), new.applied("a")), (1, 1));
    invariants::hold(&fleet, &new).await;
}
