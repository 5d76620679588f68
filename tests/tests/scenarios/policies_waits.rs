//! Policies and what waits for somebody: calls that need a yes, and what stands in for a tool.

use fleet_tests::{
    caller::{Answer, Submission},
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::Witness,
};
use serde_json::json;

fn call(fleet: &Fleet, tool: &str, run: &str) -> Submission {
    let submission = fleet.submit(tool, &json!({ "what": tool }));
    submission.header("Toolfleet-Run", run)
}

/// What an operator decides about a call that waits for a yes.
async fn decides(fleet: &Fleet, waits: &Answer, decision: &str) -> Answer {
    assert_eq!(waits["awaiting"]["for"], "approval", "{}", **waits);
    let body = json!({
        "call_id": waits.call_id(), "decision": decision, "args_hash": waits["awaiting"]["args_hash"],
        "actor": "ann", "note": "looked at it"});
    fleet.ask("toolfleet.v1.default.admin.approve", &body).await
}

#[tokio::test]
async fn a_yes_gets_no_call_round_its_policy() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("mail", "once")
            + "approval: {}\npolicy: {at_most: {calls: 1, per: run}, never_after: [secrets]}\n",
        witness.tool("secrets", "read"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let mail = async |run: &str| {
        let key = uuid::Uuid::new_v4().to_string();
        call(&fleet, "mail", run).key(&key).wait().await
    };
    // What waits for a yes has not happened, so all of them may wait.
    let (first, second) = (mail("r").await, mail("r").await);
    decides(&fleet, &first, "approve").await;
    fleet.until_state(first.call_id(), "succeeded").await;
    decides(&fleet, &second, "approve").await;
    let told = fleet.until_state(second.call_id(), "failed").await;
    assert_eq!(told["error"]["details"]["rule"], "at_most", "{told}");
    // Between the question and the yes.
    let third = mail("r-2").await;
    let read = call(&fleet, "secrets", "r-2").wait().await;
    assert_eq!(read["state"], "succeeded");
    decides(&fleet, &third, "approve").await;
    let told = fleet.until_state(third.call_id(), "failed").await;
    assert_eq!(
        (&told["error"]["details"]["rule"], &told["attempts"]),
        (&json!("never_after"), &json!(0)),
        "{told}"
    );
    assert_eq!(witness.asked("mail"), 1);
    invariants::hold(&fleet, &witness).await;
}

/// Its call was accepted with a version that its caller's program runs, and nobody would judge it there.
#[tokio::test]
async fn a_yes_hands_out_no_call_whose_newest_version_has_a_policy() {
    let witness = Witness::start().await;
    let older = "name: look\nversion: 1\ndescription: Looks something up on the caller's machine.\neffect: read\n\
        input_schema: {type: object, properties: {what: {type: string}}, required: [what]}\n\
        approval: {}\nexecutor: {client: {presents: shell_call}}\n";
    let fleet = Fleet::start(Spec::with([older.to_owned()])).await;
    let waits = call(&fleet, "look", "r").wait().await;
    let newer = witness
        .tool("look", "read")
        .replace("version: 1", "version: 2")
        + "policy: {never_after: [secrets]}\n";
    fleet.apply(&newer).await;
    fleet.ring().await;
    until_so("the dispatcher to know of the new version", async || {
        let answer = call(&fleet, "look", "r").wait().await;
        answer["state"] == "succeeded"
    })
    .await;
    let told = decides(&fleet, &waits, "approve").await;
    assert_eq!(told.code(), "forbidden", "{}", *told);
    let row = "SELECT awaiting, approvals FROM toolfleet.waiting WHERE call_id = $1";
    let row = fleet.rows(row, waits.call_id()).await.remove(0);
    assert_eq!(row, json!({"awaiting": "approval", "approvals": 0}));
    decides(&fleet, &waits, "deny").await;
    fleet.until_state(waits.call_id(), "failed").await;
}

/// It begins when it is handed out, and the rule was there by then.
#[tokio::test]
async fn a_call_that_is_handed_out_by_a_yes_counts_for_a_rule_that_came_while_it_waited() {
    let witness = Witness::start().await;
    let shell = "name: shell\nversion: 1\ndescription: Runs on the caller's machine.\neffect: read\n\
        input_schema: {type: object, properties: {what: {type: string}}, required: [what]}\n\
        approval: {}\nexecutor: {client: {presents: shell_call}}\n";
    let fleet = Fleet::start(Spec::with([shell.to_owned()])).await;
    let waits = call(&fleet, "shell", "r").wait().await;
    let mail = witness.tool("mail", "once") + "policy: {never_after: [shell]}\n";
    fleet.apply(&mail).await;
    fleet.ring().await;
    let mail = async |run: &str| {
        let key = uuid::Uuid::new_v4().to_string();
        call(&fleet, "mail", run).key(&key).wait().await
    };
    until_so("the dispatcher to know of the tool", async || {
        mail("r-2").await["state"] == "succeeded"
    })
    .await;
    decides(&fleet, &waits, "approve").await;
    let told = mail("r").await;
    assert_eq!(told["error"]["details"]["rule"], "never_after", "{}", *told);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn nothing_stands_in_for_a_call_that_breaks_a_rule() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("look", "read")
            + "fallback: {stub: {known: false}}\npolicy: {after: [confirm]}\n",
        witness.tool("confirm", "read"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let refused = call(&fleet, "look", "r").wait().await;
    assert_eq!(
        (&refused["state"], refused.code()),
        (&json!("failed"), "forbidden"),
        "{}",
        *refused
    );
    assert_eq!(refused["outcome"], "system_error", "{}", *refused);
    let confirmed = call(&fleet, "confirm", "r").wait().await;
    assert_eq!(confirmed["state"], "succeeded");
    let answered = call(&fleet, "look", "r").wait().await;
    assert_eq!(answered["state"], "succeeded", "{}", *answered);
    invariants::hold(&fleet, &witness).await;
}
