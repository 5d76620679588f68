//! A worker that was declared dead and is not: what it still has to say.

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

#[tokio::test]
async fn late_proof_that_nothing_happened_settles_the_doubt() {
    let witness = Witness::start().await;
    let tool = witness.tool("charge", "once") + "not_applied_statuses: [429]\n";
    let mut fleet = Fleet::start(Spec::with([tool])).await;
    witness.always("a", Reply::StatusWhenReleased(429));
    let accepted = fleet
        .submit("charge", &json!({"what": "a"}))
        .key("k")
        .asynchronous()
        .await;
    witness.until_asked("a", 1).await;
    fleet.sql(DECLARE_DEAD).await;
    fleet.until_state(accepted.call_id(), "in_doubt").await;
    witness.release("a");
    fleet.until_state(accepted.call_id(), "failed").await;
    let answer = fleet.get(&json!({"call_id": accepted["call_id"]})).await;
    assert_eq!(answer["effect"], "not_applied", "{}", *answer);
    fleet.workers[0].until_left().await;
    assert_eq!(witness.asked("a"), 1);
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
    let attempts = fleet.attempts(accepted.call_id()).await;
    let outcomes: Vec<_> = attempts
        .iter()
        .map(|a| a["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(outcomes, ["unknown", "applied"]);
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
