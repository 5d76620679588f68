//! Arguments that are only looked at: the verdict is that of a submission, and nothing else becomes of it.

use fleet::ids::CallId;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    witness::Witness,
};
use serde_json::{Value, json};

/// Bodies, by what a dispatcher says of them.
fn bodies() -> Vec<(String, &'static str)> {
    let of = |text: &str, said| (text.to_owned(), said);
    vec![
        of(r#"{"what":"a","days":2}"#, "accepted"),
        of(r#"{"what":"a","days":"2"}"#, "accepted"),
        of(r#"{"what":"a","days":null}"#, "accepted"),
        of(r#"{"what":"a","big":9007199254740993}"#, "accepted"),
        of(r#"{"what":"a","big":0.10}"#, "accepted"),
        of(r#"{"what":"a","big":1e400}"#, "number_out_of_range"),
        of(r#"{"what":"a","days":"soon"}"#, "invalid_arguments"),
        of(r#"{"wat":"a","days":99,"unit":"f"}"#, "invalid_arguments"),
        of("{}", "invalid_arguments"),
        of(r#"{"what":"a","what":"b"}"#, "duplicate_key"),
        of(r#"{"what":"a","days":"#, "truncated_arguments"),
        of("", "malformed_json"),
        of("{what:1}", "malformed_json"),
        of("[1]", "invalid_arguments"),
        of(r#"{"what":"\u0000"}"#, "nul_not_allowed"),
        of(r#"{"what":"\ud800"}"#, "invalid_unicode"),
        (
            format!("{{\"what\":{}1{}}}", "[".repeat(200), "]".repeat(200)),
            "depth_exceeded",
        ),
        (
            format!("{{\"what\":\"a\",\"big\":{}}}", "1".repeat(2_000)),
            "number_too_long",
        ),
        // Longer than what is looked at at once.
        (
            format!("{{\"what\":\"{}\"}}", "x".repeat(100_000)),
            "accepted",
        ),
        of(
            r#"{"what":{"$result":"0193a1b2-c3d4-7e5f-8a6b-0123456789ab"}}"#,
            "invalid_arguments",
        ),
    ]
}

#[tokio::test]
async fn the_verdict_of_a_check_is_that_of_a_submission() {
    let witness = Witness::start().await;
    let schema = "input_schema: {type: object, properties: {what: {type: string}, days: {type: integer, maximum: 14, default: 7}, \
                  big: {type: number}, unit: {enum: [c, f], default: c}}, required: [what], additionalProperties: false}";
    let tool = witness.tool("look", "read");
    let (before, after) = tool.split_once("input_schema:").unwrap();
    let after = after.split_once('\n').unwrap().1;
    let tool = format!("{before}{schema}\n{after}");
    let fleet = Fleet::start(Spec::with([tool, witness.tool("charge", "once")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let mut said = Vec::new();
    for (body, expected) in bodies() {
        let begin: String = body.chars().take(80).collect();
        let checked = web.post("/v1/tools/look/check", body.clone()).send().await;
        assert_eq!(checked.status, 200, "{begin}: {}", checked.text());
        assert_eq!(checked.header("Toolfleet-Answer"), "door");
        let over_nats = fleet
            .ask_bytes("toolfleet.v1.default.check.look", body.clone())
            .await
            .unwrap();
        assert_eq!(&checked.body[..], &over_nats.bytes[..], "{begin}");
        let verdict = checked.json();
        let submitted = web.post("/v1/call/look", body.clone()).send().await;
        let envelope = submitted.json();
        if verdict["verdict"] == "accepted" {
            assert_eq!(expected, "accepted", "{begin}: {verdict}");
            assert_eq!(envelope["state"], "succeeded", "{begin}: {envelope}");
            assert_eq!(verdict["coercions"], envelope["coercions"], "{begin}");
            assert_eq!(verdict["tool_version"], envelope["tool_version"]);
            let call: CallId = envelope["call_id"].as_str().unwrap().parse().unwrap();
            let (args, hash): (String, Vec<u8>) = sqlx::query_as(
                "SELECT args::text, args_hash FROM toolfleet.finished_calls WHERE call_id = $1",
            )
            .bind(call.0)
            .fetch_one(&fleet.database.pool)
            .await
            .unwrap();
            // To the last digit.
            assert!(
                checked.text().contains(&format!("\"args\":{args},")),
                "{begin}: {args}"
            );
            assert_eq!(verdict["args_hash"], hex::encode(hash), "{begin}");
        } else {
            assert_eq!(verdict["error"]["code"], expected, "{begin}");
            assert_eq!(envelope["state"], "refused", "{begin}: {envelope}");
            assert_eq!(verdict["error"], envelope["error"], "{begin}");
            assert_eq!(
                (&verdict["args"], &verdict["args_hash"]),
                (&json!(null), &json!(null))
            );
        }
        said.push(verdict["verdict"].clone());
    }
    let accepted = said
        .iter()
        .filter(|verdict| **verdict == "accepted")
        .count();
    println!("{} bodies, {accepted} accepted", said.len());
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_check_leaves_nothing_behind() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let body = r#"{"what":"a"}"#;
    // A tool that is only called with a key: arguments need none.
    for headers in [&[][..], &[("Idempotency-Key", "k")]] {
        let mut request = web.post("/v1/tools/charge/check", body);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        assert_eq!(request.send().await.json()["verdict"], "accepted");
    }
    let rows: i64 = sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM toolfleet.calls) + (SELECT count(*) FROM toolfleet.idempotency_keys)",
    )
    .fetch_one(&fleet.database.pool)
    .await
    .unwrap();
    assert_eq!((rows, witness.asked("a")), (0, 0));
    // Its key is as good as new.
    let called = web
        .post("/v1/call/charge", body)
        .header("Idempotency-Key", "k");
    assert_eq!(called.send().await.json()["replayed"], false);

    for (path, headers, status, code) in [
        ("/v1/tools/nothing/check", &[][..], 404, "unknown_tool"),
        (
            "/v1/tools/charge/check",
            &[("Toolfleet-Tool-Version", "7")],
            404,
            "unknown_tool_version",
        ),
        (
            "/v1/tools/charge/check",
            &[("Toolfleet-Tool-Version", "x")],
            400,
            "header_invalid",
        ),
        (
            "/v1/tools/charge/check",
            &[("Content-Encoding", "gzip")],
            415,
            "header_invalid",
        ),
        ("/v1/tools/a%2Fb/check", &[], 400, "invalid_tool_name"),
        ("/v1/tools/a%00/check", &[], 400, "invalid_tool_name"),
        (
            "/v1/tools/charge/check?strict=1",
            &[],
            400,
            "invalid_arguments",
        ),
    ] {
        let mut request = web.post(path, body);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let refused = request.send().await;
        let told = (refused.status, refused.code());
        assert_eq!(
            told,
            (status, code.to_owned()),
            "{path}: {}",
            refused.text()
        );
    }
    let large = json!({"what": "x".repeat(256 * 1024)}).to_string();
    let refused = web.post("/v1/tools/charge/check", large).send().await;
    assert_eq!(
        (refused.status, refused.code()),
        (200, "payload_too_large".to_owned())
    );
    let larger = " ".repeat(1024 * 1024 + 1);
    let refused = web.post("/v1/tools/charge/check", larger).send().await;
    assert_eq!(
        (refused.status, refused.code()),
        (413, "payload_too_large".to_owned())
    );
    fleet.retire("charge").await;
    fleet_tests::wait::until_so("the tool to be retired", async || {
        let answer = web.post("/v1/tools/charge/check", body).send().await;
        answer.status == 410
    })
    .await;
    let chinese = web
        .post("/v1/tools/look/check", "{")
        .header("Toolfleet-Language", "zh");
    let chinese: Value = chinese.send().await.json();
    let message = chinese["error"]["message"].as_str().unwrap();
    assert!(!message.is_ascii(), "{message}");
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
