//! Whether it happened is unknown: the answer says so, it never runs again, and only evidence settles it.

use std::time::Duration;

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::json;

#[tokio::test]
async fn a_write_without_an_answer_is_in_doubt_and_stays_so() {
    let witness = Witness::start().await;
    let tool = witness.tool("charge", "once") + "timeout: 300ms\n";
    let mut fleet = Fleet::start(Spec::with([tool])).await;
    witness.always("a", Reply::DoneThenHang);
    let call = fleet
        .submit("charge", &json!({"what": "a"}))
        .key("k")
        .deadline(Duration::from_secs(1));
    let answer = call.clone().wait().await;
    for (field, value) in [
        ("state", "in_doubt"),
        ("outcome", "unknown"),
        ("effect", "unknown"),
        ("source", "error"),
    ] {
        assert_eq!(answer[field], value, "{}", *answer);
    }
    assert_eq!(
        (answer.code(), &answer["is_error"]),
        ("in_doubt", &json!(true))
    );
    assert_eq!(answer["error"]["suggestion"], "do_not_repeat");

    let doubt = fleet
        .rows(
            "SELECT * FROM toolfleet.in_doubt WHERE call_id = $1",
            answer.call_id(),
        )
        .await;
    assert_eq!(
        (&doubt[0]["why"], &doubt[0]["tool"]),
        (&json!("timeout"), &json!("charge"))
    );

    // Neither its deadline nor another worker nor its caller moves it.
    fleet.add_worker(&[]).await;
    let passed =
        "SELECT count(*) FROM toolfleet.calls WHERE deadline_at < now() - interval '1 second'";
    until_so("the deadline to have passed", async || {
        fleet.count(passed).await == 1
    })
    .await;
    let replay = call.wait().await;
    assert_eq!(replay["replayed"], true);
    assert_eq!(replay.first_bytes(), answer.first_bytes());
    assert_eq!(witness.asked("a"), 1);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_write_whose_answer_breaks_off_is_in_doubt() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    witness.always("a", Reply::DoneThenClose);
    let answer = fleet
        .submit("charge", &json!({"what": "a"}))
        .key("k")
        .wait()
        .await;
    assert_eq!(
        (&answer["state"], answer.code()),
        (&json!("in_doubt"), "in_doubt")
    );
    assert_eq!(witness.applied("a"), 1);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_write_whose_worker_is_told_to_end_is_in_doubt() {
    let witness = Witness::start().await;
    let spec =
        Spec::with([witness.tool("charge", "once")]).workers(1, &["--drain-timeout", "200ms"]);
    let mut fleet = Fleet::start(spec).await;
    witness.always("a", Reply::DoneThenHang);
    let accepted = fleet
        .submit("charge", &json!({"what": "a"}))
        .key("k")
        .asynchronous()
        .await;
    witness.until_asked("a", 1).await;
    fleet.workers[0].drain().await;
    let row = fleet.call(accepted.call_id()).await;
    assert_eq!(row["state"], "in_doubt");
    invariants::hold(&fleet, &witness).await;
}
