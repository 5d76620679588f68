//! A call in doubt is looked into: what its probe proves settles it, and nothing else does.

use fleet::ids::CallId;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::{until, until_so},
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

/// A write whose outcome may be unknown, and the tool that is asked what became of it.
fn tools(witness: &Witness, probe: &str) -> [String; 2] {
    let mut charge = witness.tool("charge", "once");
    charge.push_str(
        "timeout: 500ms\nprobe:\n  tool: find_charge\n  args: {what: \"find {{ args.what }}\"}\n",
    );
    charge.push_str(probe);
    [
        witness.tool("find_charge", "read") + "retry: {strategy: none}\n",
        charge,
    ]
}

const CAREFUL: &str =
    "  applied_when: result.found == true\n  not_applied_when: result.found == false\n";

async fn doubted(fleet: &Fleet, what: &str) -> CallId {
    let answer = fleet
        .submit("charge", &json!({"what": what}))
        .key(what)
        .wait()
        .await;
    assert_eq!(answer["state"], "in_doubt", "{}", *answer);
    answer.call_id()
}

async fn settled(fleet: &Fleet, call: CallId) -> Value {
    until("the call to be settled", async || {
        let row = fleet.call(call).await;
        (row["state"] != "in_doubt").then_some(row)
    })
    .await
}

async fn probe_state(fleet: &Fleet, call: CallId) -> Value {
    let rows = fleet
        .rows("SELECT probe_state, probes, worker_fenced, next_probe_at FROM toolfleet.in_doubt WHERE call_id = $1", call)
        .await;
    rows.first().cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_charge_whose_answer_was_lost_is_found_and_told() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with(tools(&witness, CAREFUL))).await;
    witness.always("c1", Reply::DoneThenHang);
    witness.always(
        "find c1",
        Reply::Body(json!({"found": true, "id": 9007199254740993_u64}).to_string()),
    );
    let call = doubted(&fleet, "c1").await;

    let row = settled(&fleet, call).await;
    assert_eq!(
        (&row["state"], &row["source"]),
        (&json!("succeeded"), &json!("settled")),
        "{row}"
    );
    assert_eq!(
        row["result"].to_string(),
        r#"{"found":true,"id":9007199254740993}"#
    );
    let probes = fleet
        .rows(
            "SELECT call_id, effect, state, tool FROM toolfleet.calls WHERE probe_of = $1",
            call,
        )
        .await;
    assert_eq!(probes.len(), 1, "{probes:?}");
    let last = fleet.events(call).await.pop().expect("events");
    assert_eq!(
        last["actor"],
        format!("probe {}", probes[0]["call_id"].as_str().unwrap())
    );
    assert_eq!(last["reason"], "settled_applied");

    let replayed = fleet
        .submit("charge", &json!({"what": "c1"}))
        .key("c1")
        .wait()
        .await;
    assert_eq!(replayed["source"], "settled");
    assert_eq!(
        (&replayed["settled_by"], &row["settled_by"]),
        (&json!("probe"), &json!("probe"))
    );
    assert_eq!((witness.asked("c1"), witness.applied("c1")), (1, 1));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_charge_that_did_not_happen_is_settled_so_after_the_settle_window() {
    let witness = Witness::start().await;
    let window = format!("{CAREFUL}  settle: 2s\n");
    let fleet = Fleet::start(Spec::with(tools(&witness, &window))).await;
    witness.always("c2", Reply::Hang);
    witness.always("find c2", Reply::Body(json!({"found": false}).to_string()));
    let call = doubted(&fleet, "c2").await;

    let row = settled(&fleet, call).await;
    assert_eq!(
        (&row["state"], &row["source"]),
        (&json!("failed"), &json!("settled")),
        "{row}"
    );
    assert_eq!(row["error"]["code"], "not_applied");
    let decided = fleet
        .rows(
            "SELECT p.started_at >= a.finished_at + interval '2 seconds' AS after_the_window \
             FROM toolfleet.calls p JOIN toolfleet.attempts a ON a.call_id = p.probe_of \
             WHERE p.probe_of = $1 ORDER BY p.call_id DESC LIMIT 1",
            call,
        )
        .await;
    assert_eq!(decided[0]["after_the_window"], true);
    let remarks: Vec<Value> = fleet
        .events(call)
        .await
        .into_iter()
        .map(|event| event["reason"].clone())
        .collect();
    assert!(
        remarks.contains(&json!("probe_not_yet_applied")),
        "{remarks:?}"
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_no_while_the_worker_may_still_act_settles_nothing() {
    let witness = Witness::start().await;
    let authoritative = format!("{CAREFUL}  authoritative: true\n");
    // Long enough for the worker to be gone before it sees the attempt end.
    let tools =
        tools(&witness, &authoritative).map(|tool| tool.replace("timeout: 500ms", "timeout: 5s"));
    let mut fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("c3", Reply::Hang);
    witness.always("find c3", Reply::Body(json!({"found": false}).to_string()));
    let submitting = fleet
        .submit("charge", &json!({"what": "c3"}))
        .key("c3")
        .asynchronous()
        .await;
    let call = submitting.call_id();
    witness.until_asked("c3", 1).await;
    // Killed: no worker has seen the attempt end, and no process on its machine can prove it gone.
    fleet.add_worker(&[]).await;
    drop(fleet.workers.remove(0));
    fleet.sql("UPDATE toolfleet.worker_processes SET state = 'dead', ended_at = now(), ended_by = 'test' \
             WHERE worker_id IN (SELECT worker_id FROM toolfleet.open_calls)").await;

    until_so("a probe to be answered with no", async || {
        probe_state(&fleet, call).await["probe_state"] == "not_yet_applied"
    })
    .await;
    until_so("a second probe to change nothing", async || {
        witness.asked("find c3") >= 2
    })
    .await;
    let state = probe_state(&fleet, call).await;
    assert_eq!(state["worker_fenced"], false, "{state}");
    assert_eq!(fleet.call(call).await["state"], "in_doubt");

    fleet
        .sql(
            "UPDATE toolfleet.worker_processes SET state = 'fenced', fenced_at = now(), fenced_by = 'test' WHERE state = 'dead'",
        )
        .await;
    let row = settled(&fleet, call).await;
    assert_eq!(row["error"]["code"], "not_applied", "{row}");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_contradiction_and_a_broken_probe_are_left_to_a_person() {
    let witness = Witness::start().await;
    let conflict = format!("{CAREFUL}  conflict_when: result.found == \"twice\"\n");
    let fleet = Fleet::start(Spec::with(tools(&witness, &conflict))).await;
    for (what, reply) in [
        ("c4", Reply::Body(json!({"found": "twice"}).to_string())),
        ("c5", Reply::Status(500)),
        ("c6", Reply::Body(json!({"busy": true}).to_string())),
    ] {
        witness.always(what, Reply::DoneThenHang);
        witness.always(&format!("find {what}"), reply);
    }
    let calls = [
        doubted(&fleet, "c4").await,
        doubted(&fleet, "c5").await,
        doubted(&fleet, "c6").await,
    ];
    for (call, expected) in calls
        .into_iter()
        .zip(["conflict", "inconclusive", "inconclusive"])
    {
        until_so("the probe's answer to be recorded", async || {
            probe_state(&fleet, call).await["probe_state"] == expected
        })
        .await;
        assert_eq!(fleet.call(call).await["state"], "in_doubt");
    }
    assert_eq!(
        probe_state(&fleet, calls[0]).await["next_probe_at"],
        Value::Null
    );
    // What was broken works again: the next probe finds out.
    witness.always("find c5", Reply::Body(json!({"found": true}).to_string()));
    assert_eq!(settled(&fleet, calls[1]).await["state"], "succeeded");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn without_a_probe_nothing_is_asked() {
    let witness = Witness::start().await;
    let tool = witness.tool("charge", "once") + "timeout: 300ms\n";
    let fleet = Fleet::start(Spec::with([tool])).await;
    witness.always("c7", Reply::Hang);
    let call = doubted(&fleet, "c7").await;
    until_so("the pass to have looked", async || {
        probe_state(&fleet, call).await["probe_state"] == "none"
    })
    .await;
    let state = probe_state(&fleet, call).await;
    assert_eq!(
        (&state["probes"], &state["next_probe_at"]),
        (&json!(0), &Value::Null)
    );
    // The worker has seen the attempt end, so a person may say that it did not happen.
    assert_eq!(state["worker_fenced"], true);
    invariants::hold(&fleet, &witness).await;
}
