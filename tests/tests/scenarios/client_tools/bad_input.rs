//! Answers that are not accepted. The call waits on.

use super::*;

#[tokio::test]
async fn who_has_not_the_token_learns_not_even_that_the_call_is_there() {
    let witness = Witness::start().await;
    let fleet = fleet_of([client_tool("shell", "once", "")]).await;
    let open = handed(&fleet, "shell", "a").await;
    let other = handed(&fleet, "shell", "b").await;
    let over = handed(&fleet, "shell", "c").await;
    let result = json!({"result": 1});
    assert_eq!(over.hands_in(&fleet, &result).await["state"], "succeeded");
    let stranger = HandedCall {
        call: CallId::generate(),
        token: open.token.clone(),
    };
    let unknown = stranger.hands_in(&fleet, &result).await;
    assert_eq!(unknown.code(), "not_found", "{}", *unknown);
    let (call, proof) = open.token.split_once('.').unwrap();
    for token in [
        "",
        ".",
        call,
        proof,
        &open.token[..open.token.len() - 1],
        &open.token[..open.token.len() - 2],
        &other.token,
        &format!("{call}.{}", other.token.split_once('.').unwrap().1),
        &format!("{call}.{}", "0".repeat(64)),
    ] {
        for known in [&open, &over] {
            let guess = HandedCall {
                token: token.to_owned(),
                ..known.clone()
            };
            let told = guess.hands_in(&fleet, &result).await;
            assert_eq!(told.bytes, unknown.bytes, "{token}");
        }
    }
    // With the right token, and for another tenant.
    for handed in [&open, &over] {
        let body = handed.body(&result);
        let told = fleet.ask("toolfleet.v1.acme.output", &body).await;
        assert_eq!(told.bytes, unknown.bytes);
    }
    assert_eq!(fleet.call(open.call).await["state"], "awaiting_client");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_call_that_a_worker_runs_takes_no_answer() {
    let witness = Witness::start().await;
    let tools = [
        client_tool("shell", "once", ""),
        witness.tool("look", "read"),
    ];
    let fleet = fleet_of(tools).await;
    let token = handed(&fleet, "shell", "a").await.token;
    let queued = fleet.submit("look", &json!({"what": "b"}));
    let call = queued.asynchronous().await.call_id();
    let guess = HandedCall { call, token };
    let told = guess.hands_in(&fleet, &json!({"result": 1})).await;
    assert_eq!(told.code(), "not_found");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn an_answer_that_the_tool_may_not_give_is_refused_and_the_call_waits_on() {
    let witness = Witness::start().await;
    let limits = "output_limit: 1KiB\n\
                  output_schema: {type: object, properties: {exit_code: {type: integer}}, required: [exit_code]}\n";
    let fleet = fleet_of([client_tool("shell", "once", limits)]).await;
    let handed = handed(&fleet, "shell", "a").await;
    let long = "x".repeat(2_000);
    for (fields, code) in [
        (
            r#""result": {"exit_code": "0"}"#.to_owned(),
            "invalid_arguments",
        ),
        (r#""result": null"#.into(), "invalid_arguments"),
        (
            r#""result": {"exit_code": 0, "out": "\u0000"}"#.into(),
            "nul_not_allowed",
        ),
        (
            r#""result": {"exit_code": 0, "out": "\ud800"}"#.into(),
            "invalid_unicode",
        ),
        (
            r#""result": {"exit_code": 0, "exit_code": 1}"#.into(),
            "duplicate_key",
        ),
        (
            r#""result": {"exit_code": 1e999}"#.into(),
            "number_out_of_range",
        ),
        (
            format!(r#""result": {{"exit_code": 0, "out": "{long}"}}"#),
            "payload_too_large",
        ),
        (
            r#""result": {"exit_code": 0}, "not_done": true"#.into(),
            "invalid_arguments",
        ),
        (r#""error": {"message": ""}"#.into(), "invalid_arguments"),
        (
            r#""error": {"message": "m", "stack": 1}"#.into(),
            "invalid_arguments",
        ),
        (
            r#""result": {"exit_code": 0}, "error": {"message": "m"}"#.into(),
            "invalid_arguments",
        ),
        (r#""not_done": true"#.into(), "invalid_arguments"),
        (
            r#""result": {"exit_code": 0}, "colour": "red""#.into(),
            "invalid_arguments",
        ),
    ] {
        let (call, token) = (handed.call, &handed.token);
        let body = format!(r#"{{"call_id": "{call}", "token": "{token}", {fields}}}"#);
        let told = fleet.ask_bytes(OUTPUT, body).await.unwrap();
        assert_eq!(told.code(), code, "{fields}: {}", *told);
        assert_eq!(
            fleet.call(call).await["state"],
            "awaiting_client",
            "{fields}"
        );
    }
    for body in ["", "[]", "{", "null"] {
        let told = fleet.ask_bytes(OUTPUT, body).await.unwrap();
        assert_eq!(told["state"], "refused", "{body}: {}", *told);
    }
    let good = json!({"result": {"exit_code": 0}});
    assert_eq!(handed.hands_in(&fleet, &good).await["state"], "succeeded");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn the_largest_answer_of_a_tool_is_taken() {
    let witness = Witness::start().await;
    let tools = [client_tool("shell", "once", "output_limit: 4MiB\n")];
    let spec = Spec::with(tools)
        .workers(0, &[])
        .max_payload(8 * 1024 * 1024);
    let fleet = Fleet::start(spec).await;
    let handed = handed(&fleet, "shell", "a").await;
    let result = json!({"result": {"out": "x".repeat(4 * 1024 * 1024 - 10)}});
    let told = handed.hands_in(&fleet, &result).await;
    assert_eq!(told["state"], "succeeded", "{}", told["error"]);
    let again = handed.hands_in(&fleet, &result).await;
    assert_eq!(again.bytes, told.bytes);
    let more = json!({"result": {"out": "x".repeat(4 * 1024 * 1024)}});
    assert_eq!(handed.hands_in(&fleet, &more).await.code(), "conflict");
    invariants::hold(&fleet, &witness).await;
}
