//! A worker that was declared dead and is not: what it still has to say.

use fleet::ids::CallId;
use fleet_tests::{
    fleet::{Fleet, Spec, counter},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::json;

const DECLARE_DEAD: &str = "UPDATE toolfleet.worker_processes \
    SET state = 'dead', ended_at = now(), ended_by = 'test' WHERE name = 'worker-1'";
const FENCED: &str = "toolfleet_fenced_attempts_total";

#[tokio::test]
async fn a_late_answer_of_the_same_attempt_settles_the_doubt() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    witness.always("a", Reply::DoneWhenReleased);
    let call = fleet.submit("charge", &json!({"what": "a"})).key("k");
    let (answer, ()) = tokio::join!(call.clone().wait(), async {
        witness.until_asked("a", 1).await;
        fleet.sql(DECLARE_DEAD).await;
    });
    assert_eq!(
        (&answer["state"], answer.code()),
        (&json!("in_doubt"), "in_doubt")
    );
    witness.release("a");
    let row = fleet.until_state(answer.call_id(), "succeeded").await;
    assert_eq!(
        (&row["result"], &row["attempts"]),
        (&json!({"done": "a"}), &json!(1))
    );
    let replay = call.wait().await;
    assert_eq!(
        (&replay["state"], &replay["effect"]),
        (&json!("succeeded"), &json!("applied"))
    );
    fleet.workers[0].until_left().await;
    invariants::hold(&fleet, &witness).await;
}

/// A `once` call whose worker is declared dead while its tool holds back this answer.
async fn in_doubt(fleet: &Fleet, witness: &Witness, what: &str, reply: Reply) -> CallId {
    witness.always(what, reply);
    let call = fleet.submit("charge", &json!({"what": what})).key(what);
    let call = call.asynchronous().await.call_id();
    witness.until_asked(what, 1).await;
    fleet.sql(DECLARE_DEAD).await;
    fleet.until_state(call, "in_doubt").await;
    call
}

#[tokio::test]
async fn late_proof_that_nothing_happened_settles_the_doubt() {
    for (status, code) in [(429, "unavailable"), (409, "tool_error")] {
        let witness = Witness::start().await;
        let tool = witness.tool("charge", "once") + "not_applied_statuses: [429]\n";
        let mut fleet = Fleet::start(Spec::with([tool])).await;
        let call = in_doubt(&fleet, &witness, "a", Reply::StatusWhenReleased(status)).await;
        witness.release("a");
        fleet.until_state(call, "failed").await;
        let answer = fleet.get(&json!({"call_id": call})).await;
        assert_eq!(
            (&answer["effect"], answer.code()),
            (&json!("not_applied"), code),
            "{}",
            *answer
        );
        fleet.workers[0].until_left().await;
        assert_eq!(witness.asked("a"), 1);
        invariants::hold(&fleet, &witness).await;
    }
}

#[tokio::test]
async fn a_late_answer_that_proves_nothing_leaves_the_doubt_and_is_kept() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let call = in_doubt(&fleet, &witness, "a", Reply::StatusWhenReleased(500)).await;
    let doubt = async || {
        let doubt = "SELECT * FROM toolfleet.in_doubt WHERE call_id = $1";
        fleet.rows(doubt, call).await.remove(0)
    };
    assert_eq!(doubt().await["worker_fenced"], false);
    witness.release("a");
    until_so("the evidence to be kept", async || {
        fleet.attempts(call).await.iter().any(|a| a["late"] == true)
    })
    .await;
    let doubt = doubt().await;
    // Its worker has seen it end: nothing of it can act any more.
    assert_eq!(
        (&doubt["why"], &doubt["worker_fenced"]),
        (&json!("worker_lost"), &json!(true))
    );
    fleet.workers[0].until_left().await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn an_effect_that_shows_after_the_call_was_settled_as_not_applied_raises_the_alarm() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let call = in_doubt(&fleet, &witness, "a", Reply::DoneWhenReleased).await;
    let over = "UPDATE toolfleet.open_calls SET attempt_until = now() WHERE state = 'in_doubt'";
    fleet.sql(over).await;
    let settle =
        "SELECT * FROM toolfleet.settle($1, 'not_applied', 'a test', 'a guess', NULL, true)";
    let settled = fleet.rows(settle, call).await;
    assert_eq!(settled[0]["verdict"], "settled", "{settled:?}");
    let alarms = counter("toolfleet_integrity_alarms_total");
    let before = fleet.get(&json!({"call_id": call})).await.bytes;
    witness.release("a");
    fleet.workers[0].until_left().await;
    assert!(counter("toolfleet_integrity_alarms_total") > alarms);
    let attempts = fleet.attempts(call).await;
    let late: Vec<_> = attempts.iter().filter(|a| a["late"] == true).collect();
    assert_eq!(
        (late.len(), &late[0]["outcome"], &late[0]["effect"]),
        (1, &json!("applied"), &json!("applied"))
    );
    // The answer that was given stands.
    assert_eq!(fleet.get(&json!({"call_id": call})).await.bytes, before);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn late_completion_is_fenced() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    witness.first("a", [Reply::DoneWhenReleased]);
    witness.always("a", Reply::Body("\"second\"".to_owned()));
    let fenced = counter(FENCED);
    let accepted = fleet
        .submit("look", &json!({"what": "a"}))
        .asynchronous()
        .await;
    witness.until_asked("a", 1).await;
    fleet.add_worker(&[]).await;
    fleet.sql(DECLARE_DEAD).await;
    let row = fleet.until_state(accepted.call_id(), "succeeded").await;
    assert_eq!(
        (&row["worker"], &row["attempts"]),
        (&json!("worker-2"), &json!(2))
    );
    witness.release("a");
    fleet.workers[0].until_left().await;
    until_so("the late completion to be counted", async || {
        counter(FENCED) > fenced
    })
    .await;
    let row = fleet.call(accepted.call_id()).await;
    assert_eq!(row["result"], json!("second"));
    // What it said is kept beside what was assumed of it.
    let attempts = fleet.attempts(accepted.call_id()).await;
    let told: Vec<_> = attempts
        .iter()
        .map(|a| {
            (
                a["number"].as_i64(),
                a["outcome"].as_str(),
                a["late"] == true,
            )
        })
        .collect();
    let expected = [
        (Some(1), Some("unknown"), false),
        (Some(1), Some("applied"), true),
        (Some(2), Some("applied"), false),
    ];
    assert_eq!(told, expected);
    assert_eq!(attempts[0]["started_at"], attempts[1]["started_at"]);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_worker_that_was_declared_dead_starts_nothing_and_leaves() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    fleet.sql(DECLARE_DEAD).await;
    let accepted = fleet
        .submit("charge", &json!({"what": "a"}))
        .key("k")
        .asynchronous()
        .await;
    fleet.workers[0].until_left().await;
    let row = fleet.call(accepted.call_id()).await;
    assert_eq!(
        (&row["state"], &row["attempts"]),
        (&json!("queued"), &json!(0))
    );
    fleet.add_worker(&[]).await;
    fleet.until_state(accepted.call_id(), "succeeded").await;
    assert_eq!(witness.asked("a"), 1);
    invariants::hold(&fleet, &witness).await;
}
