//! A tool of its caller's program, paused while a call of it waits for a yes.

use super::*;

#[tokio::test]
async fn a_yes_hands_nothing_out_while_the_tool_is_paused() {
    let witness = Witness::start().await;
    let tool = "name: shell\nversion: 1\ndescription: Runs a command on the caller's machine.\neffect: once\n\
        input_schema: {type: object, properties: {what: {type: string}}, required: [what]}\n\
        approval: {count: 2}\nexecutor: {client: {presents: shell_call}}\n";
    let fleet = Fleet::start(Spec::with([tool.to_owned()])).await;
    let waits = waiting(&fleet, "shell", "a").await;
    let other = waiting(&fleet, "shell", "b").await;
    let scope = ControlScope {
        tool: Some("shell"),
        pointer: Some("/what"),
        value: Some("\"a\""),
        ..ControlScope::default()
    };
    waits.says(&fleet, "approve", "ann").await;
    pause(&fleet, scope).await;
    until_so("the pause to be known", async || {
        let call = fleet.submit("shell", &json!({"what": "a"}));
        let new = CallId::generate().to_string();
        call.key(&new).wait().await.code() == "tool_paused"
    })
    .await;
    let told = waits.says(&fleet, "approve", "bob").await;
    assert_eq!(told.code(), "tool_paused", "{}", *told);
    let message = told["error"]["message"].as_str().unwrap();
    for part in [
        "toolfleet control list",
        "toolfleet control resume",
        "the call waits on",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(!message.contains("Send the same call"), "{message}");
    let row = "SELECT awaiting, approvals FROM toolfleet.waiting WHERE call_id = $1";
    let row = fleet.rows(row, waits.call).await.remove(0);
    assert_eq!(row, json!({"awaiting": "approval", "approvals": 1}));
    // A pause is about what it covers, and a no starts nothing.
    other.says(&fleet, "approve", "ann").await;
    other.says(&fleet, "approve", "bob").await;
    let told = fleet.get(&json!({"call_id": other.call})).await;
    assert_eq!(told["awaiting"]["for"], "client", "{}", *told);
    resume(&fleet, scope).await;
    until_so("the pause to be over", async || {
        let told = waits.says(&fleet, "approve", "bob").await;
        told.code() != "tool_paused"
    })
    .await;
    let told = fleet.get(&json!({"call_id": waits.call})).await;
    assert_eq!(told["awaiting"]["for"], "client", "{}", *told);
    invariants::hold_for(&fleet, &witness, &[]).await;
}
