//! Calls over HTTP: the bytes are those of NATS, the status says whether the call is decided.

use std::time::Duration;

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    web::{Web, WebAnswer},
    witness::{Reply, Witness},
};
use serde_json::json;

/// Submits `{"what": what}` to a tool.
pub(crate) fn call(
    web: Web,
    tool: &str,
    what: &str,
    headers: &[(&str, &str)],
) -> impl Future<Output = WebAnswer> + use<> {
    let body = json!({ "what": what }).to_string();
    let mut request = web.post(&format!("/v1/call/{tool}"), body);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.send()
}

/// Status, and the headers that say what the body says.
pub(crate) fn head(answer: &WebAnswer) -> (u16, [&str; 3]) {
    let names = ["Toolfleet-Answer", "Toolfleet-State", "Toolfleet-Outcome"];
    (answer.status, names.map(|name| answer.header(name)))
}

#[tokio::test]
async fn a_decided_call_is_200_whatever_it_came_to_and_its_bytes_are_those_of_nats() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("look", "read") + "retry: {max_attempts: 1}\n",
        witness.tool("charge", "once") + "timeout: 500ms\n",
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    witness.always("no", Reply::No("the card is blocked"));
    witness.always("broken", Reply::Status(500));
    witness.always("doubt", Reply::DoneThenHang);
    for (tool, what, state, outcome, by_outcome) in [
        ("look", "yes", "succeeded", "success", 200),
        ("charge", "yes-2", "succeeded", "success", 200),
        ("charge", "no", "failed", "business_error", 422),
        ("look", "broken", "failed", "system_error", 424),
        ("charge", "doubt", "in_doubt", "unknown", 409),
    ] {
        let key = ("Idempotency-Key", what);
        let first = call(web, tool, what, &[key]).await;
        assert_eq!(
            head(&first),
            (200, ["call", state, outcome]),
            "{}",
            first.text()
        );
        let id = first.json()["call_id"].as_str().unwrap().to_owned();
        assert_eq!(first.header("Toolfleet-Call-Id"), id);
        assert_eq!(first.header("Content-Type"), "application/json");
        assert_eq!(first.header("Location"), "");

        // Over NATS the same key gets the same bytes, marked as a replay; so does HTTP.
        let submission = fleet.submit(tool, &json!({ "what": what })).key(what);
        let over_nats = submission.wait().await;
        assert_eq!(over_nats.first_bytes(), first.text());
        let again = call(web, tool, what, &[key]).await;
        assert_eq!(again.body, over_nats.bytes);
        assert_eq!(again.status, 200);

        // Asked for by id and by key.
        let asked = fleet.get(&json!({ "call_id": id })).await;
        let paths = [
            format!("/v1/calls/{id}"),
            format!("/v1/calls/{id}?wait_ms=2000"),
            format!("/v1/calls?tool={tool}&idempotency_key={what}"),
        ];
        for path in paths {
            let got = web.get(&path).send().await;
            assert_eq!(head(&got), (200, ["call", state, outcome]), "{path}");
            assert_eq!(got.body, asked.bytes, "{path}");
        }

        let prefer = ("Prefer", "status=outcome");
        let failing = call(web, tool, what, &[key, prefer]).await;
        assert_eq!(failing.status, by_outcome, "{what}");
        assert_eq!(failing.body, again.body);
    }
    assert_eq!(witness.asked("yes-2"), 1);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_call_that_goes_on_is_202_and_can_be_waited_for() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    witness.always("slow", Reply::DoneWhenReleased);
    let key = ("Idempotency-Key", "slow");
    let accepted = call(web, "charge", "slow", &[key, ("Prefer", "respond-async")]).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    assert_eq!(accepted.header("Retry-After"), "1");
    let place = accepted.header("Location").to_owned();
    let id = accepted.json()["call_id"].as_str().unwrap().to_owned();
    assert_eq!(place, format!("/v1/calls/{id}"));
    witness
        .until("the call to run", |seen| seen.asked("slow") == 1)
        .await;

    let running = web.get(&place).send().await;
    assert_eq!(head(&running), (202, ["call", "running", ""]));
    let waited = web.get(&format!("{place}?wait_ms=300")).send().await;
    assert_eq!(waited.status, 202);
    // Attached by its key, for a second.
    let attached = call(web, "charge", "slow", &[key, ("Prefer", "wait=1")]).await;
    assert_eq!(head(&attached), (202, ["call", "running", ""]));
    assert_eq!(attached.json()["replayed"], true);

    witness.release("slow");
    let ended = web.get(&format!("{place}?wait_ms=20000")).send().await;
    assert_eq!(head(&ended), (200, ["call", "succeeded", "success"]));

    // Longer than the first question waits: both are there when it ends, one as a replay.
    witness.always("slower", Reply::DoneAfter(Duration::from_millis(4_000)));
    let key = ("Idempotency-Key", "slower");
    let accepted = call(web, "charge", "slower", &[key, ("Prefer", "respond-async")]).await;
    let place = format!("{}?wait_ms=20000", accepted.header("Location"));
    let (replayed, looked) = tokio::join!(
        call(web, "charge", "slower", &[key, ("Prefer", "wait=20")]),
        web.get(&place).send(),
    );
    assert_eq!(head(&replayed), (200, ["call", "succeeded", "success"]));
    assert_eq!(replayed.json()["replayed"], true);
    assert_eq!(head(&looked), (200, ["call", "succeeded", "success"]));
    let first = replayed
        .text()
        .replacen("\"replayed\":true", "\"replayed\":false", 1);
    assert_eq!(looked.text(), first);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_caller_who_waits_long_gets_the_result_as_if_nothing_were_between() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    // Longer than the first question and one glance.
    witness.always("slow", Reply::DoneAfter(Duration::from_millis(8_000)));
    let answer = call(web, "look", "slow", &[]).await;
    assert_eq!(head(&answer), (200, ["call", "succeeded", "success"]));
    assert_eq!(answer.json()["replayed"], false);
    let id = answer.header("Toolfleet-Call-Id").to_owned();
    let over_nats = fleet.get(&json!({ "call_id": id })).await;
    assert_eq!(answer.body, over_nats.bytes);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn arguments_and_headers_reach_the_door_as_they_were_sent() {
    let witness = Witness::start().await;
    let tool = witness.tool("look", "read").replace(
        "properties: {what: {type: string}}",
        "properties: {what: {type: string}, n: {type: number}}",
    );
    let fleet = Fleet::start(Spec::with([tool, witness.tool("charge", "once")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let exact = br#"{ "n": 9007199254740993 , "what":"exact"}"#;
    let answer = web
        .post("/v1/call/look", exact.to_vec())
        .header("Toolfleet-Meta", r#"{"order": 1E2}"#)
        .header("Toolfleet-Run", "r-1")
        .header("Toolfleet-Session", "s-1")
        .send()
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let id: fleet::ids::CallId = answer.header("Toolfleet-Call-Id").parse().unwrap();
    let row =
        "SELECT original_args::text AS args, run, session FROM toolfleet.calls WHERE call_id = $1";
    let row = fleet.rows(row, id).await.remove(0);
    assert_eq!(row["run"], "r-1");
    assert_eq!(row["session"], "s-1");
    let body = witness.look(|seen| seen.requests[0].body.clone());
    assert!(
        String::from_utf8_lossy(&body).contains("9007199254740993"),
        "{body:?}"
    );

    // Each as over NATS, byte for byte.
    for (tool, body, headers, code, status) in [
        (
            "look",
            r#"{"what":"a","what":"b"}"#,
            vec![],
            "duplicate_key",
            400,
        ),
        ("look", r#"{"what":"a"#, vec![], "truncated_arguments", 400),
        ("look", "", vec![], "malformed_json", 400),
        ("look", "{}", vec![], "invalid_arguments", 400),
        ("nothing", "{}", vec![], "unknown_tool", 404),
        (
            "charge",
            r#"{"what":"a"}"#,
            vec![],
            "missing_idempotency_key",
            400,
        ),
        (
            "look",
            r#"{"what":"a"}"#,
            vec![("Toolfleet-rnu", "x")],
            "header_invalid",
            400,
        ),
        (
            "look",
            r#"{"what":"a"}"#,
            vec![("Prefer", "soon")],
            "header_invalid",
            400,
        ),
        (
            "look",
            r#"{"what":"a"}"#,
            vec![("Toolfleet-Deadline-Ms", "0")],
            "deadline_invalid",
            400,
        ),
    ] {
        let mut request = web.post(&format!("/v1/call/{tool}"), body);
        let mut submission = fleet.submit_bytes(tool, body);
        for (name, value) in headers {
            request = request.header(name, value);
            submission = submission.header(name, value);
        }
        let answer = request.send().await;
        let over_nats = submission.wait().await;
        assert_eq!(answer.code(), code, "{body}: {}", answer.text());
        assert_eq!(answer.body, over_nats.bytes, "{body}");
        assert_eq!(answer.status, status, "{code}");
        assert_eq!(answer.header("Toolfleet-Answer"), "door", "{code}");
    }
    let reused = ("Idempotency-Key", "k");
    assert_eq!(call(web, "charge", "one", &[reused]).await.status, 200);
    let other = call(web, "charge", "two", &[reused]).await;
    assert_eq!(
        (other.status, other.code()),
        (409, "idempotency_key_reused".to_owned())
    );
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
