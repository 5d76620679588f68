//! How a call ends whose tool answers later, or never.

use super::*;

const CANCEL: &str = "toolfleet.v1.default.cancel";

async fn why(fleet: &Fleet, call: CallId) -> Value {
    let doubt = "SELECT why FROM toolfleet.in_doubt WHERE call_id = $1";
    fleet.rows(doubt, call).await[0]["why"].clone()
}

#[tokio::test]
async fn a_once_tool_that_never_answers_is_in_doubt_and_its_late_answer_settles_it() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([later_tool(
        &witness, "charge", "once", "1s", "",
    )]))
    .await;
    let did = taken(&fleet, &witness, "charge", "did").await;
    let did_not = taken(&fleet, &witness, "charge", "not").await;
    for taken in [&did, &did_not] {
        fleet.until_state(taken.call, "in_doubt").await;
        assert_eq!(why(&fleet, taken.call).await, "completion_silent");
        // That it failed does not say whether it was done.
        let unsure = json!({"error": {"message": "The job broke off"}});
        assert_eq!(taken.answers(&fleet, &unsure).await.code(), "conflict");
    }
    let told = did.answers(&fleet, &json!({"result": {"paid": 1}})).await;
    assert_eq!(
        words(&told, ["state", "source", "effect"]),
        ["succeeded", "live", "applied"]
    );
    let no = json!({"error": {"message": "No such account", "code": "E1"}, "not_done": true});
    let told = did_not.answers(&fleet, &no).await;
    assert_eq!(
        words(&told, ["state", "outcome", "effect"]),
        ["failed", "business_error", "not_applied"]
    );
    assert_eq!(did_not.answers(&fleet, &no).await.bytes, told.bytes);
    assert_eq!(witness.asked("did") + witness.asked("not"), 2);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_read_that_never_answers_is_asked_again_within_its_retries_and_expires() {
    let witness = Witness::start().await;
    let retry = "retry: {max_attempts: 2, base: 1ms, cap: 2ms}\n";
    let fleet = Fleet::start(Spec::with([later_tool(
        &witness, "look", "read", "1s", retry,
    )]))
    .await;
    let first = taken(&fleet, &witness, "look", "a").await;
    witness.until_asked("a", 2).await;
    let row = fleet.until_state(first.call, "expired").await;
    assert_eq!(row["error"]["code"], "deadline_exceeded");
    let outcomes: Vec<Value> = fleet
        .attempts(first.call)
        .await
        .iter()
        .map(|attempt| attempt["outcome"].clone())
        .collect();
    assert_eq!(outcomes, ["unknown", "unknown"]);
    let late = TakenCall::of(&witness, "a", 1)
        .answers(&fleet, &json!({"result": 1}))
        .await;
    assert_eq!(late.code(), "already_terminal");
    assert_eq!(witness.asked("a"), 2);
    invariants::hold(&fleet, &witness).await;
}

/// It knows the key, so it may well answer the first request alone.
#[tokio::test]
async fn an_idempotent_tool_is_asked_again_with_its_key_and_an_answer_to_either_request_counts() {
    let witness = Witness::start().await;
    let retry = "retry: {max_attempts: 2, base: 1ms, cap: 2ms}\n";
    let fleet = Fleet::start(Spec::with([later_tool(
        &witness,
        "put",
        "idempotent",
        "2s",
        retry,
    )]))
    .await;
    for (what, nth) in [("first", 0), ("second", 1)] {
        let taken = taken(&fleet, &witness, "put", what).await;
        witness.until_asked(what, 2).await;
        let keys = witness.look(|seen| {
            let asked = seen.requests.iter().filter(|request| request.what == what);
            asked
                .map(|request| request.header("idempotency-key").to_owned())
                .collect::<Vec<_>>()
        });
        assert_eq!(keys[0], keys[1]);
        until_so("the second request to be taken", async || {
            let row = fleet.call(taken.call).await;
            row["state"] == "awaiting_client" && row["attempts"] == 2
        })
        .await;
        let answering = TakenCall::of(&witness, what, nth);
        if nth == 0 {
            // That the first request came to nothing says nothing of the second.
            let no = json!({"error": {"message": "No"}, "not_done": true});
            assert_eq!(answering.answers(&fleet, &no).await.code(), "not_found");
        }
        let told = answering.answers(&fleet, &json!({"result": what})).await;
        assert_eq!(
            words(&told, ["state", "result", "attempts"]),
            [json!("succeeded"), json!(what), json!(2)]
        );
        assert_eq!(
            answering
                .answers(&fleet, &json!({"result": what}))
                .await
                .bytes,
            told.bytes
        );
    }
    // Without an answer to any it is in doubt, as after attempts that were cut off.
    let silent = taken(&fleet, &witness, "put", "never").await;
    fleet.until_state(silent.call, "in_doubt").await;
    assert_eq!(why(&fleet, silent.call).await, "completion_silent");
    let told = silent.answers(&fleet, &json!({"result": 3})).await;
    assert_eq!(words(&told, ["state", "effect"]), ["succeeded", "applied"]);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_call_that_is_cancelled_while_its_tool_has_it_is_in_doubt_if_it_writes() {
    let witness = Witness::start().await;
    let tools = [("look", "read"), ("put", "idempotent"), ("charge", "once")]
        .map(|(name, effect)| later_tool(&witness, name, effect, "1m", ""));
    let fleet = Fleet::start(Spec::with(tools)).await;
    for (tool, state) in [
        ("look", "cancelled"),
        ("put", "in_doubt"),
        ("charge", "in_doubt"),
    ] {
        let taken = taken(&fleet, &witness, tool, tool).await;
        fleet.ask(CANCEL, &json!({"call_id": taken.call})).await;
        let row = fleet.until_state(taken.call, state).await;
        let late = taken.answers(&fleet, &json!({"result": 1})).await;
        if state == "in_doubt" {
            assert_eq!(
                words(&late, ["state", "effect"]),
                ["succeeded", "applied"],
                "{tool}"
            );
        } else {
            assert_eq!(row["error"]["code"], "cancelled");
            assert_eq!(late.code(), "already_terminal");
        }
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_call_that_is_to_be_cancelled_does_not_begin_to_wait() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([later_tool(
        &witness, "charge", "once", "1m", "",
    )]))
    .await;
    witness.always("a", Reply::LaterWhenReleased);
    let call = submission(&fleet, "charge", "a")
        .asynchronous()
        .await
        .call_id();
    witness.until_asked("a", 1).await;
    fleet.ask(CANCEL, &json!({"call_id": call})).await;
    witness.release("a");
    fleet.until_state(call, "in_doubt").await;
    let told = TakenCall::of(&witness, "a", 0)
        .answers(&fleet, &json!({"result": 1}))
        .await;
    assert_eq!(told["state"], "succeeded", "{}", *told);
    invariants::hold(&fleet, &witness).await;
}
