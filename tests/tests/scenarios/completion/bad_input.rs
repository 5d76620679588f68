//! What is handed in wrongly for a call whose tool answers later.

use super::*;

#[tokio::test]
async fn a_token_is_of_one_call_and_nothing_else_opens_it() {
    let witness = Witness::start().await;
    let tools = [
        later_tool(&witness, "charge", "once", "1m", ""),
        witness.tool("plain", "once"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (one, other) = (
        taken(&fleet, &witness, "charge", "one").await,
        taken(&fleet, &witness, "charge", "other").await,
    );
    let result = json!({"result": 1});
    let forged = [
        TakenCall {
            token: other.token.clone(),
            ..one.clone()
        },
        TakenCall {
            token: one
                .token
                .replace(&one.call.to_string(), &other.call.to_string()),
            ..other.clone()
        },
        TakenCall {
            token: one.token[..one.token.len() - 1].to_owned(),
            ..one.clone()
        },
        TakenCall {
            token: String::new(),
            ..one.clone()
        },
        TakenCall {
            call: CallId::generate(),
            token: one.token.clone(),
        },
    ];
    for forged in forged {
        let told = forged.answers(&fleet, &result).await;
        assert_eq!(told.code(), "not_found", "{forged:?}");
    }
    let elsewhere = json!({"call_id": one.call, "token": one.token, "result": 1});
    let told = fleet.ask("toolfleet.v1.acme.output", &elsewhere).await;
    assert_eq!(told.code(), "not_found");
    // A tool without a completion is told no token.
    submission(&fleet, "plain", "plain").wait().await;
    assert_eq!(TakenCall::of(&witness, "plain", 0).token, "");
    for taken in [one, other] {
        assert_eq!(taken.answers(&fleet, &result).await["state"], "succeeded");
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_refused_and_the_call_waits_on() {
    let witness = Witness::start().await;
    let more = "output_schema: {type: object, properties: {paid: {type: integer}}, required: [paid]}\noutput_limit: 64B\n";
    let fleet = Fleet::start(Spec::with([later_tool(
        &witness, "charge", "once", "1m", more,
    )]))
    .await;
    let taken = taken(&fleet, &witness, "charge", "a").await;
    for (wrong, code) in [
        (json!({"result": {"paid": "much"}}), "invalid_arguments"),
        (
            json!({"result": {"paid": 1, "note": "x".repeat(64)}}),
            "payload_too_large",
        ),
        (json!({"result": "\u{0}"}), "nul_not_allowed"),
        (json!({"input": {"a": 1}}), "invalid_arguments"),
        (json!({}), "invalid_arguments"),
    ] {
        assert_eq!(taken.answers(&fleet, &wrong).await.code(), code, "{wrong}");
        assert_eq!(fleet.call(taken.call).await["state"], "awaiting_client");
    }
    let told = taken.answers(&fleet, &json!({"result": {"paid": 1}})).await;
    assert_eq!(told["state"], "succeeded");
    invariants::hold(&fleet, &witness).await;
}

/// Its manifest says nothing of it, so 202 is an answer like any other.
#[tokio::test]
async fn a_status_that_the_manifest_does_not_name_is_an_answer() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    witness.always("a", Reply::Later);
    let told = submission(&fleet, "charge", "a").wait().await;
    assert_eq!(
        words(&told, ["state", "result"]),
        [json!("succeeded"), Value::Null]
    );
    invariants::hold(&fleet, &witness).await;
}
