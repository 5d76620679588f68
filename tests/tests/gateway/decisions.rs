//! What is decided about calls over HTTP: taking them back, settling, approving, handing in.

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    web::{Web, WebAnswer},
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

use crate::calls::{call, head};

async fn decide(web: Web, call: &str, verb: &str, body: &Value) -> WebAnswer {
    let path = format!("/v1/calls/{call}/{verb}");
    web.post(&path, body.to_string()).send().await
}

fn id(answer: &WebAnswer) -> String {
    let id = answer.json()["call_id"].as_str().map(ToOwned::to_owned);
    id.unwrap_or_else(|| panic!("no call in {}", answer.text()))
}

#[tokio::test]
async fn a_call_is_taken_back() {
    let witness = Witness::start().await;
    let tool = witness.tool("look", "read") + "concurrency: 1\n";
    let fleet = Fleet::start(Spec::with([tool])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    witness.always("first", Reply::DoneWhenReleased);
    let quick = ("Prefer", "respond-async");
    let running = id(&call(web, "look", "first", &[quick]).await);
    witness.until_asked("first", 1).await;
    // The tool has one place, so this one waits.
    let waiting = id(&call(web, "look", "second", &[quick]).await);
    let because = json!({ "reason": "not wanted any more" });
    let cancelled = decide(web, &waiting, "cancel", &because).await;
    assert_eq!(cancelled.status, 200, "{}", cancelled.text());
    assert_eq!(cancelled.json()["result"], "cancelled");
    assert_eq!(cancelled.header("Toolfleet-State"), "cancelled");
    let over = web.get(&format!("/v1/calls/{waiting}")).send().await;
    assert_eq!(head(&over), (200, ["call", "cancelled", "system_error"]));
    let path = format!("/v1/calls/{waiting}");
    let by_outcome = web
        .get(&path)
        .header("Prefer", "status=outcome")
        .send()
        .await;
    assert_eq!(by_outcome.status, 410);
    let again = web
        .post(&format!("/v1/calls/{waiting}/cancel"), "")
        .send()
        .await;
    assert_eq!(again.json()["result"], "already_terminal");

    // One that runs is told to end: that is not over yet.
    let asked = decide(web, &running, "cancel", &json!({})).await;
    assert_eq!(asked.status, 202, "{}", asked.text());
    assert_eq!(asked.json()["result"], "cancel_requested");
    witness.release("first");
    let ended = web
        .get(&format!("/v1/calls/{running}?wait_ms=20000"))
        .send()
        .await;
    assert_eq!(ended.status, 200, "{}", ended.text());
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_doubt_is_settled_once() {
    let witness = Witness::start().await;
    let tool = witness.tool("charge", "once") + "timeout: 300ms\n";
    let fleet = Fleet::start(Spec::with([tool])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    witness.always("a", Reply::DoneThenHang);
    let doubt = call(web, "charge", "a", &[("Idempotency-Key", "a")]).await;
    assert_eq!(head(&doubt).1[1], "in_doubt");
    let doubt = id(&doubt);
    let settlement = json!({
        "outcome": "applied", "actor": "ann", "note": "looked it up", "result": {"id": 7}
    });
    let settled = decide(web, &doubt, "settle", &settlement).await;
    assert_eq!(head(&settled), (200, ["call", "succeeded", "success"]));
    assert_eq!(settled.json()["result"], json!({"id": 7}));
    let again = decide(web, &doubt, "settle", &settlement).await;
    assert_eq!(again.body, settled.body);
    let other = json!({ "outcome": "not_applied", "actor": "bob", "note": "n" });
    let other = decide(web, &doubt, "settle", &other).await;
    assert_eq!((other.status, other.code()), (409, "conflict".to_owned()));
    assert_eq!(other.header("Toolfleet-Answer"), "door");
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_yes_and_a_no_are_said_by_operators_and_by_callers() {
    let witness = Witness::start().await;
    let guarded = |name: &str, approval: &str| {
        format!("{}\napproval: {approval}\n", witness.tool(name, "once"))
    };
    let tools = [
        guarded("charge", "{by: operator}"),
        guarded("send", "{by: caller}"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    for (tool, verb, state) in [
        ("charge", "approve", "succeeded"),
        ("charge", "deny", "failed"),
        ("send", "approve", "succeeded"),
        ("send", "deny", "failed"),
    ] {
        let what = format!("{tool}-{verb}");
        // Who submits it is told at once for whom it waits.
        let waits = call(web, tool, &what, &[("Idempotency-Key", &what)]).await;
        assert_eq!(head(&waits), (202, ["call", "awaiting_client", ""]));
        let awaiting = &waits.json()["awaiting"];
        let mut body = json!({ "args_hash": awaiting["args_hash"], "actor": "ann", "note": "n" });
        if tool == "send" {
            body["token"] = awaiting["token"].clone();
        }
        let call = id(&waits);
        let mut wrong = body.clone();
        wrong["args_hash"] = json!("0".repeat(64));
        let refused = decide(web, &call, verb, &wrong).await;
        assert_eq!(refused.code(), "conflict", "{}", refused.text());
        assert_eq!(witness.asked(&what), 0);
        let decided = decide(web, &call, verb, &body).await;
        assert!([200, 202].contains(&decided.status), "{}", decided.text());
        let path = format!("/v1/calls/{call}?wait_ms=20000");
        let ended = web.get(&path).send().await;
        assert_eq!(head(&ended).1[1], state, "{what}: {}", ended.text());
        assert_eq!(witness.asked(&what), usize::from(verb == "approve"));
        let late = decide(web, &call, verb, &body).await;
        assert_eq!(late.code(), "conflict");
    }
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn an_answer_is_handed_in_by_the_callers_program_and_by_a_tool_that_answers_later() {
    let witness = Witness::start().await;
    let client = "name: shell\nversion: 1\ndescription: Runs a command on the caller's own machine.\neffect: once\n\
                  input_schema: {type: object, properties: {what: {type: string}}, required: [what]}\n\
                  executor: {client: {presents: shell_call}}\n";
    let later = witness.tool("book", "once") + "completion: {statuses: [202], wait: 1m}\n";
    let fleet = Fleet::start(Spec::with([client.to_owned(), later])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;

    let handed = call(web, "shell", "a", &[("Idempotency-Key", "a")]).await;
    assert_eq!(head(&handed), (202, ["call", "awaiting_client", ""]));
    let token = handed.json()["awaiting"]["token"].clone();
    let exact = r#"{"n":9007199254740993}"#;
    let body = format!("{{\"token\":{token},\"result\":{exact}}}");
    let path = format!("/v1/calls/{}/output", id(&handed));
    let forged = web
        .post(&path, r#"{"token":"x.y","result":1}"#)
        .send()
        .await;
    assert_eq!(
        (forged.status, forged.code()),
        (404, "not_found".to_owned())
    );
    let done = web.post(&path, body.clone()).send().await;
    assert_eq!(head(&done), (200, ["call", "succeeded", "success"]));
    assert!(
        done.text().contains(&format!("\"result\":{exact}")),
        "{}",
        done.text()
    );
    let again = web.post(&path, body).send().await;
    assert_eq!(again.body, done.body);

    witness.always("b", Reply::Later);
    let prefer = ("Prefer", "respond-async");
    let booked = call(web, "book", "b", &[("Idempotency-Key", "b"), prefer]).await;
    let booked: fleet::ids::CallId = id(&booked).parse().unwrap();
    fleet.until_state(booked, "awaiting_client").await;
    let token = witness.look(|seen| {
        let asked = seen.requests.iter().find(|request| request.what == "b");
        asked
            .unwrap()
            .header("toolfleet-completion-token")
            .to_owned()
    });
    let complete = async |token: &str, body: &str| {
        let path = format!("/v1/completions/{token}");
        web.post(&path, body).send().await
    };
    let (_, proof) = token.split_once('.').unwrap();
    let unknown = format!("{}.{proof}", fleet::ids::CallId::generate());
    let mut tampered = token.clone();
    tampered.replace_range(
        tampered.len() - 1..,
        if token.ends_with('0') { "1" } else { "0" },
    );
    let mut refusals = Vec::new();
    for wrong in ["x", "a.b", &unknown, &tampered, "..%2f..", "%00"] {
        let refused = complete(wrong, r#"{"result":1}"#).await;
        assert_eq!(refused.status, 404, "{wrong}: {}", refused.text());
        refusals.push(refused.body);
    }
    refusals.dedup();
    assert_eq!(
        refusals.len(),
        1,
        "all that are no token are answered alike"
    );
    let done = complete(&token, r#"{"result":{"seat":"12A"}}"#).await;
    assert_eq!(head(&done), (200, ["call", "succeeded", "success"]));
    assert_eq!(done.json()["result"], json!({"seat": "12A"}));
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn what_the_path_says_stands_in_no_body_and_unknown_calls_are_not_found() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let done = id(&call(web, "look", "a", &[]).await);
    for verb in ["cancel", "settle", "output", "approve", "deny"] {
        let twice = decide(web, &done, verb, &json!({ "call_id": done })).await;
        assert_eq!(
            (twice.status, twice.code(), twice.header("Toolfleet-Answer")),
            (400, "invalid_arguments".to_owned(), "gateway"),
            "{verb}"
        );
        let path = format!("/v1/calls/{done}/{verb}");
        for (body, code) in [
            ("[]", "invalid_arguments"),
            ("{", "truncated_arguments"),
            ("no", "malformed_json"),
        ] {
            let refused = web.post(&path, body).send().await;
            assert_eq!(
                (refused.status, refused.code()),
                (400, code.to_owned()),
                "{verb} {body}"
            );
        }
        for bad in ["x", "01980000-0000-7000-8000-00000000000", "..%2F", "%00"] {
            let refused = decide(web, bad, verb, &json!({})).await;
            assert_eq!(
                (refused.status, refused.code()),
                (400, "invalid_id".to_owned()),
                "{verb} {bad}"
            );
        }
    }
    // Another tenant's is answered as one that does not exist.
    let nobodys = fleet::ids::CallId::generate().to_string();
    for (verb, body) in [
        ("cancel", json!({})),
        (
            "settle",
            json!({"outcome": "applied", "actor": "a", "note": "n"}),
        ),
        ("output", json!({"token": "x.y", "result": 1})),
        (
            "approve",
            json!({"args_hash": "x", "actor": "a", "note": "n"}),
        ),
        (
            "deny",
            json!({"args_hash": "x", "actor": "a", "note": "n", "token": "t"}),
        ),
    ] {
        let unknown = decide(web, &nobodys, verb, &body).await;
        let foreign = web
            .post(&format!("/v1/calls/{done}/{verb}"), body.to_string())
            .header("Toolfleet-Tenant", "acme")
            .send()
            .await;
        assert_eq!(unknown.status, 404, "{verb}: {}", unknown.text());
        assert_eq!(
            (foreign.status, &foreign.body),
            (404, &unknown.body),
            "{verb}"
        );
    }
    let unknown = web.get(&format!("/v1/calls/{nobodys}")).send().await;
    let foreign = web.get(&format!("/v1/calls/{done}"));
    let foreign = foreign.header("Toolfleet-Tenant", "acme").send().await;
    assert_eq!(
        (unknown.status, unknown.body),
        (foreign.status, foreign.body)
    );
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
