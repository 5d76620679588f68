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

/// It was settled by a person who looked too early, given up, or nobody waits for it any more.
#[tokio::test]
async fn a_late_result_of_a_call_that_was_settled_is_kept_and_its_sender_is_told() {
    let witness = Witness::start().await;
    let retry = "retry: {max_attempts: 1}\n";
    let tools = [
        later_tool(&witness, "charge", "once", "1s", ""),
        later_tool(&witness, "put", "idempotent", "1s", retry),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let alarms = || counter("toolfleet_integrity_alarms_total");
    for (tool, outcome, is_alarm) in [
        ("charge", "not_applied", true),
        ("put", "not_applied", true),
        ("charge", "abandoned", false),
    ] {
        let what = format!("{tool}-{outcome}");
        let taken = taken(&fleet, &witness, tool, &what).await;
        fleet.until_state(taken.call, "in_doubt").await;
        let settle = format!("SELECT * FROM toolfleet.settle($1, '{outcome}', 'ann', 'a guess')");
        let settled = fleet.rows(&settle, taken.call).await;
        assert_eq!(settled[0]["verdict"], "settled", "{settled:?}");
        // That it was not done is what was settled, or no news.
        let no = json!({"error": {"message": "No"}, "not_done": true});
        assert_eq!(taken.answers(&fleet, &no).await.code(), "already_terminal");
        let (before, dead) = (alarms(), dead_letters(&fleet, taken.call).await);
        assert_eq!(dead, usize::from(is_alarm), "{what}");
        let late = taken.answers(&fleet, &json!({"result": {"paid": 1}})).await;
        assert_eq!(late.code(), "already_terminal", "{}", *late);
        assert_eq!(alarms() > before, is_alarm, "{what}");
        let attempts = fleet.attempts(taken.call).await;
        let late: Vec<_> = attempts.iter().filter(|one| one["late"] == true).collect();
        assert_eq!(late.len(), 1, "{attempts:?}");
        assert_eq!(late[0]["outcome"], "applied");
        assert_eq!(dead_letters(&fleet, taken.call).await, 0, "it has happened");
        // Again: nothing is kept twice.
        let again = taken.answers(&fleet, &json!({"result": {"paid": 1}})).await;
        assert_eq!(again.code(), "already_terminal");
        assert_eq!(fleet.attempts(taken.call).await.len(), attempts.len());
    }
    invariants::hold(&fleet, &witness).await;
}

async fn dead_letters(fleet: &Fleet, call: CallId) -> usize {
    let dead = "SELECT call_id FROM toolfleet.dead_letters WHERE call_id = $1";
    fleet.rows(dead, call).await.len()
}

/// First it said that nothing was done.
#[tokio::test]
async fn a_tool_that_takes_back_its_no_raises_the_alarm() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([later_tool(
        &witness, "charge", "once", "1m", "",
    )]))
    .await;
    let taken = taken(&fleet, &witness, "charge", "a").await;
    let no = json!({"error": {"message": "No"}, "not_done": true});
    assert_eq!(taken.answers(&fleet, &no).await["effect"], "not_applied");
    let before = counter("toolfleet_integrity_alarms_total");
    let other = taken.answers(&fleet, &json!({"result": 1})).await;
    assert_eq!(other.code(), "conflict");
    assert!(counter("toolfleet_integrity_alarms_total") > before);
    let attempts = fleet.attempts(taken.call).await;
    assert!(attempts.iter().any(|one| one["late"] == true));
    invariants::hold(&fleet, &witness).await;
}

/// As what it says at once is.
#[tokio::test]
async fn what_a_tool_says_later_is_told_without_sensitive_values() {
    let witness = Witness::start().await;
    let sensitive = "sensitive: {pointers: [/what]}\n";
    let tool = later_tool(&witness, "charge", "once", "1m", sensitive);
    let fleet = Fleet::start(Spec::with([tool])).await;
    let taken = taken(&fleet, &witness, "charge", "4111-1111").await;
    let error = json!({"message": "the card 4111-1111 is blocked", "code": "4111-1111"});
    let no = json!({"error": error, "not_done": true});
    let told = taken.answers(&fleet, &no).await;
    let message = told["error"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("The card [masked] is blocked"),
        "{message}"
    );
    assert_eq!(taken.answers(&fleet, &no).await.bytes, told.bytes);
    let row = fleet.call(taken.call).await;
    assert!(!row["error"].to_string().contains("4111"), "{row}");
}
