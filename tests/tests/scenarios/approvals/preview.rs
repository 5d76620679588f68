//! Another tool is asked for who decides. It shows something, and nothing else.

use fleet::{
    manifest::{self, UnfitTool},
    store::tools,
};
use fleet_tests::witness::Reply;

use super::*;

const PREVIEW: &str = "toolfleet.v1.default.admin.preview";
const LOOKS: &str = "{preview: {tool: look, args: {what: \"balance of {{ args.what }}\"}}}";

fn tools(witness: &Witness, look: &str, approval: &str) -> [String; 2] {
    [
        witness.tool("look", "read") + look,
        guarded(witness, "charge", "once", approval),
    ]
}

async fn preview(fleet: &Fleet, call: CallId) -> Value {
    let told = fleet.ask(PREVIEW, &json!({"call_id": call})).await;
    assert_eq!(told["call_id"], json!(call), "{}", *told);
    told["preview"].clone()
}

#[tokio::test]
async fn who_decides_sees_what_another_tool_says_and_it_is_asked_once() {
    let witness = Witness::start().await;
    let look = "sensitive: {pointers: [/card]}\ncache: {ttl: 1h}\n";
    let fleet = Fleet::start(Spec::with(tools(&witness, look, LOOKS)).dispatchers(2)).await;
    let said = r#"{"card":"4711","left":1.50}"#;
    witness.always("balance of a", Reply::Body(said.to_owned()));
    let waits = waiting(&fleet, "charge", "a").await;
    assert_eq!(witness.asked("balance of a"), 0, "nobody has looked");

    let (one, other) = tokio::join!(preview(&fleet, waits.call), preview(&fleet, waits.call));
    assert_eq!(one, other);
    assert_eq!(one["tool"], "look", "{one}");
    assert_eq!(one["state"], "succeeded", "{one}");
    assert_eq!(
        one["result"].to_string(),
        r#"{"card":"[masked]","left":1.50}"#
    );
    assert_eq!(witness.asked("balance of a"), 1);
    let asked: CallId = one["call_id"].as_str().unwrap().parse().unwrap();
    let row = fleet.call(asked).await;
    assert_eq!(row["meta"], json!({"preview_of": waits.call}), "{row}");
    let second = |at: &Value| at.as_str().unwrap()[..19].to_owned();
    assert_eq!(second(&row["accepted_at"]), second(&one["asked_at"]));
    // Another call asks for itself: what was said before is not what is so now.
    let next = waiting(&fleet, "charge", "b").await;
    preview(&fleet, next.call).await;
    assert_eq!(witness.asked("balance of b"), 1);

    assert_eq!(witness.asked("a"), 0, "nobody has said yes");
    assert_eq!(fleet.call(waits.call).await["state"], "awaiting_client");
    waits.says(&fleet, "approve", "ann").await;
    fleet.until_state(waits.call, "succeeded").await;
    let late = fleet.ask(PREVIEW, &json!({"call_id": waits.call})).await;
    assert_eq!(late.code(), "conflict", "{}", *late);
    assert_eq!(late["error"]["details"]["state"], "succeeded");
    assert_eq!(
        (witness.asked("balance of a"), witness.applied("a")),
        (1, 1)
    );
    let foreign = "toolfleet.v1.acme.admin.preview";
    let foreign = fleet.ask(foreign, &json!({"call_id": next.call})).await;
    assert_eq!(foreign.code(), "not_found", "{}", *foreign);
    invariants::hold_for(&fleet, &witness, &[waits.call]).await;
}

#[tokio::test]
async fn what_cannot_be_asked_keeps_nobody_from_deciding() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with(tools(&witness, "", LOOKS))).await;
    let why = async |what: &str, part: &str| {
        let waits = waiting(&fleet, "charge", what).await;
        let preview = preview(&fleet, waits.call).await;
        let why = preview["why"].as_str().unwrap_or_default();
        assert!(why.contains(part), "{part}: {preview}");
        assert_eq!(preview["result"], Value::Null, "{preview}");
        assert_eq!(witness.asked(what), 0);
        waits.says(&fleet, "approve", "ann").await;
        fleet.until_state(waits.call, "succeeded").await;
        preview
    };
    witness.always("balance of no", Reply::No("there is no such account"));
    let said = why("no", "There is no such account").await;
    assert_eq!(said["error"]["code"], "tool_error", "{said}");
    assert_eq!(said["state"], "failed", "{said}");

    // It has not answered yet, and is not waited for.
    witness.always("balance of slow", Reply::DoneWhenReleased);
    let slow = waiting(&fleet, "charge", "slow").await;
    let (said, ()) = tokio::join!(preview(&fleet, slow.call), async {
        witness.until_asked("balance of slow", 1).await;
        slow.says(&fleet, "approve", "ann").await;
        fleet.until_state(slow.call, "succeeded").await;
        witness.release("balance of slow");
    });
    assert_eq!(said["state"], "succeeded", "{said}");

    let long = format!("[\"{}\"]", "ä".repeat(20_000));
    witness.always("balance of long", Reply::Body(long.clone()));
    let waits = waiting(&fleet, "charge", "long").await;
    let said = preview(&fleet, waits.call).await;
    let start: String = long.chars().take(8_000).collect();
    assert_eq!(
        (&said["result"], &said["start"]),
        (&Value::Null, &json!(start))
    );

    let look = ControlScope {
        tool: Some("look"),
        ..ControlScope::default()
    };
    pause(&fleet, look).await;
    until_so("the pause to be known", async || {
        let call = fleet
            .submit("look", &json!({"what": "x"}))
            .asynchronous()
            .await;
        let held = fleet.call(call.call_id()).await["held_why"].clone();
        held == "pause"
    })
    .await;
    let said = why("paused", "paused").await;
    assert_eq!(said["call_id"], Value::Null, "{said}");
    resume(&fleet, look).await;

    // A later version of its tool needs a yes itself: nobody would be asked.
    let later = guarded(&witness, "look", "read", "{}").replace("version: 1", "version: 2");
    fleet.apply(&later).await;
    until_so("the later version to be known", async || {
        let call = fleet.submit("look", &json!({"what": "x"})).wait().await;
        call["state"] == "awaiting_client"
    })
    .await;
    why("guarded", "no read that workers run unasked").await;
}

#[tokio::test]
async fn only_a_read_that_nobody_has_to_agree_to_can_be_a_preview() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([
        witness.tool("write", "once"),
        guarded(&witness, "asks", "read", "{}"),
        witness.tool("ruled", "read") + "policy: {after: [write]}\n",
    ]))
    .await;
    let mut connection = fleet.database.connect().await;
    for (tool, unfit) in [
        ("write", UnfitTool::Writes),
        ("asks", UnfitTool::NeedsApproval),
        ("ruled", UnfitTool::Ruled),
        ("missing", UnfitTool::Missing),
    ] {
        let approval = format!("{{preview: {{tool: {tool}, args: {{}}}}}}");
        let charge = guarded(&witness, "charge", "once", &approval);
        let charge = manifest::parse(&charge).unwrap();
        let applied = tools::apply(&mut connection, &charge, "a test").await;
        let refused = tools::Applied::PreviewUnfit(unfit);
        assert_eq!(applied.unwrap(), refused, "{tool}");
        let why = tools::preview_unfit(&charge, unfit);
        assert!(
            why.starts_with(&format!("the tool of its preview, {tool}, ")),
            "{why}"
        );
    }
    // Nor can it be a probe: what that asks is of no run.
    let probe =
        "probe: {tool: ruled, args: {what: \"{{ args.what }}\"}, applied_when: result.found}\n";
    let charge = manifest::parse(&(witness.tool("charge", "once") + probe)).unwrap();
    let applied = tools::apply(&mut connection, &charge, "a test").await;
    assert_eq!(applied.unwrap(), tools::Applied::ProbeUnfit);
}

#[tokio::test]
async fn a_template_that_finds_nothing_is_not_asked() {
    let witness = Witness::start().await;
    let approval = "{preview: {tool: look, args: {what: \"{{ args.nothing }}\"}}}";
    let fleet = Fleet::start(Spec::with(tools(&witness, "", approval))).await;
    let waits = waiting(&fleet, "charge", "a").await;
    let said = preview(&fleet, waits.call).await;
    let why = said["why"].as_str().unwrap();
    assert!(
        why.contains("it looks at something that is not there"),
        "{said}"
    );
    assert_eq!(said["call_id"], Value::Null, "{said}");
}
