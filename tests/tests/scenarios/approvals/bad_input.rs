//! Decisions that do not count. The call waits on.

use super::*;

#[tokio::test]
async fn a_decision_that_makes_no_sense_is_refused_and_the_call_waits_on() {
    let witness = Witness::start().await;
    let tools = [guarded(&witness, "charge", "once", "{count: 2}")];
    let fleet = Fleet::start(Spec::with(tools)).await;
    // A model that sends it in another shape: who decides sees what the tool gets, and its hash.
    let call = fleet.submit_bytes("charge", "{\"what\" :  \"a\"}").key("a");
    let waits = Waiting::of(&call.wait().await);
    let of_what_was_sent = hex::encode(Sha256::digest("{\"what\" :  \"a\"}"));
    let good = waits.body("approve", "ann");
    let with = |field: &str, value: Value| {
        let mut body = good.clone();
        body[field] = value;
        body
    };
    let mut without_note = good.clone();
    without_note.as_object_mut().unwrap().remove("note");
    for (body, code) in [
        (with("args_hash", json!(of_what_was_sent)), "conflict"),
        (with("args_hash", json!("")), "conflict"),
        (
            with("args_hash", json!(waits.hash.to_uppercase())),
            "conflict",
        ),
        (with("args_hash", json!(7)), "invalid_arguments"),
        (with("decision", json!("maybe")), "invalid_arguments"),
        (with("actor", json!("")), "invalid_arguments"),
        (with("actor", json!("a\u{200b}nn")), "invalid_arguments"),
        (with("actor", json!("x".repeat(201))), "invalid_arguments"),
        (with("note", json!("")), "invalid_arguments"),
        (with("note", json!(" \n\t")), "invalid_arguments"),
        (with("note", json!("x".repeat(2_001))), "invalid_arguments"),
        (with("note", json!("\0")), "nul_not_allowed"),
        (with("token", json!("x")), "invalid_arguments"),
        (with("more", json!(1)), "invalid_arguments"),
        (without_note, "invalid_arguments"),
        (with("call_id", json!("x")), "invalid_id"),
        (with("call_id", json!(CallId::generate())), "not_found"),
        (json!({}), "invalid_arguments"),
    ] {
        let told = fleet.ask(BY_OPERATOR, &body).await;
        assert_eq!(told.code(), code, "{body} {}", *told);
    }
    let huge = format!("{{\"note\": \"{}\"}}", "x".repeat(9 << 20));
    let told = fleet.ask_bytes(BY_OPERATOR, huge).await;
    assert!(told.is_none_or(|told| told.code() == "payload_too_large"));
    assert_eq!(
        fleet
            .rows(
                "SELECT * FROM toolfleet.approvals WHERE call_id = $1",
                waits.call
            )
            .await,
        [Value::Null; 0]
    );

    assert_eq!(
        waits.says(&fleet, "approve", "ann").await["state"],
        "awaiting_client"
    );
    let twice = waits.says(&fleet, "approve", "Ann").await;
    assert_eq!(twice.code(), "conflict", "{}", *twice);
    assert_eq!(fleet.call(waits.call).await["state"], "awaiting_client");
    assert_eq!(witness.asked("a"), 0);
    assert_eq!(
        waits.says(&fleet, "approve", "bob").await["call_id"],
        json!(waits.call)
    );
    fleet.until_state(waits.call, "succeeded").await;
    invariants::hold(&fleet, &witness).await;
}

/// Over NATS it is the caller's own word who submits.
#[tokio::test]
async fn who_submitted_it_is_not_one_of_the_two() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([guarded(
        &witness,
        "charge",
        "once",
        "{count: 2}",
    )]))
    .await;
    let call =
        submission(&fleet, "charge", "a").header("Toolfleet-Meta", r#"{"principal": "eve"}"#);
    let waits = Waiting::of(&call.wait().await);
    let own = waits.says(&fleet, "approve", "Eve").await;
    assert_eq!(own.code(), "conflict", "{}", *own);
    // Whoever submitted it may take it back.
    let no = waits.says(&fleet, "deny", "eve").await;
    assert_eq!(no.code(), "denied", "{}", *no);
}
