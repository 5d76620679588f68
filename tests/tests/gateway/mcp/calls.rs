//! What a call comes to, cell by cell, in both revisions; and that what its tool gets is what its client sent.

use std::time::Duration;

use fleet::ids::CallId;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

use super::{legacy, modern, result, said, texts};

const CONTENT: &str = "output: content\noutput_schema: {type: object, properties: {late: {type: integer}}, required: [late]}\n";

#[tokio::test]
async fn what_a_call_came_to_is_a_result_in_every_cell_of_the_table() {
    let witness = Witness::start().await;
    let strict = witness.tool("strict", "read").replace(
        "properties: {what: {type: string}}",
        "additionalProperties: false, properties: {what: {type: string}, n: {type: integer, maximum: 7}}",
    );
    let tools = [
        strict,
        witness.tool("look", "read") + "retry: {max_attempts: 1}\n",
        witness.tool("charge", "once") + "timeout: 500ms\n",
        witness.tool("draw", "read") + CONTENT,
        witness.tool("weather", "read")
            + "retry: {strategy: none}\ntimeout: 1s\nfallback: {stub: {known: false}}\n",
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let blocks = json!({"content": [{"type": "text", "text": "Seven."}, {"type": "image", "data": "aGk=", "mimeType": "image/png"}], "structured": {"late": 7}});
    witness.always("blocks", Reply::Body(blocks.to_string()));
    witness.always("list", Reply::Body("[1.10]".to_owned()));
    witness.always("bad", Reply::Body("[]".to_owned()));
    for (client, is_modern) in [(modern(web), true), (legacy(web), false)] {
        let own = |what: &str| format!("{what}-{is_modern}");
        for (what, reply) in [
            ("no", Reply::No("the card is blocked")),
            ("broken", Reply::Status(500)),
            ("doubt", Reply::DoneThenHang),
        ] {
            witness.always(&own(what), reply);
        }

        let done = client.call("look", "yes").await;
        assert_eq!(texts(&done), [r#"{"done":"yes"}"#]);
        assert_eq!(done["structuredContent"], json!({"done": "yes"}));
        assert_eq!(
            (&done["isError"], done.get("resultType").is_some()),
            (&json!(false), is_modern)
        );
        let call = said(&done);
        for (name, value) in [
            ("state", json!("succeeded")),
            ("outcome", json!("success")),
            ("effect", json!("none")),
            ("replayed", json!(false)),
            ("coercions", json!([])),
        ] {
            assert_eq!(call[name], value, "{call}");
        }
        let id: CallId = call["id"].as_str().unwrap().parse().unwrap();
        assert_eq!(fleet.call(id).await["tool"], "look");

        // Any JSON is a result; before 2026-07-28 only an object is structured.
        let list = client.call("look", "list").await;
        assert_eq!(texts(&list), ["[1.10]"]);
        assert_eq!(list.get("structuredContent").is_some(), is_modern, "{list}");

        let drawn = client.call("draw", "blocks").await;
        assert_eq!(drawn["content"], blocks["content"], "{drawn}");
        assert_eq!(drawn["structuredContent"], json!({"late": 7}));
        let bad = client.call("draw", "bad").await;
        assert_eq!(bad["isError"], true);
        assert_eq!(said(&bad)["error"]["code"], "output_invalid", "{bad}");

        let stub = client.call("weather", &own("broken")).await;
        assert_eq!(stub["isError"], false, "{stub}");
        assert!(
            texts(&stub)[0].contains("not the tool's live answer"),
            "{stub}"
        );
        assert_eq!(texts(&stub)[1], r#"{"known":false}"#);
        assert_eq!(stub["structuredContent"], json!({"known": false}));
        assert_eq!(said(&stub)["degraded"]["kind"], "stub");

        for (tool, what, state, outcome, word) in [
            (
                "charge",
                "no",
                "failed",
                "business_error",
                "the card is blocked",
            ),
            (
                "look",
                "broken",
                "failed",
                "system_error",
                "suggestion: retry_later",
            ),
            (
                "charge",
                "doubt",
                "in_doubt",
                "unknown",
                "It may have happened, do not repeat it",
            ),
        ] {
            let told = client.call(tool, &own(what)).await;
            assert_eq!(told["isError"], true, "{told}");
            assert!(told.get("structuredContent").is_none(), "{told}");
            assert!(
                texts(&told)[0]
                    .to_lowercase()
                    .contains(&word.to_lowercase()),
                "{told}"
            );
            assert_eq!(
                (&said(&told)["state"], &said(&told)["outcome"]),
                (&json!(state), &json!(outcome))
            );
        }

        // Refused, with everything that does not fit.
        let refused = result(
            &client
                .calling("strict", r#"{"what":[1],"n":30,"more":1}"#, "")
                .send()
                .await,
        );
        assert_eq!(refused["isError"], true);
        let violations = &said(&refused)["error"]["details"]["violations"];
        assert_eq!(violations.as_array().unwrap().len(), 3, "{refused}");
        for violation in violations.as_array().unwrap() {
            let path = violation["path"].as_str().unwrap();
            assert!(
                texts(&refused)[0].contains(path.trim_start_matches('/')),
                "{refused}"
            );
        }
        assert_eq!(
            (&said(&refused)["state"], &said(&refused)["id"]),
            (&json!("refused"), &json!(null))
        );
    }
    let deadline = modern(web).calling("look", r#"{"what":"hangs"}"#, "");
    witness.always("hangs", Reply::Hang);
    let expired = result(&deadline.header("Toolfleet-Deadline-Ms", "600").send().await);
    assert_eq!(expired["isError"], true, "{expired}");
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn what_cannot_run_now_or_was_taken_back_says_what_to_do() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("look", "read"),
        witness.tool("paused", "read"),
        witness.tool("asks", "once") + "approval: {by: operator}\n",
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let pause = json!({"do": "pause", "tool": "paused", "setting": "refuse", "told": "the bank migrates", "actor": "ada", "note": "n"});
    let paused = web.post("/v1/control", pause.to_string()).send().await;
    assert_eq!(paused.status, 200, "{}", paused.text());
    let client = modern(web);
    fleet_tests::wait::until_so("the pause to be known", async || {
        let told = client.call("paused", "a").await;
        said(&told)["error"]["code"] == "tool_paused"
    })
    .await;

    let waits = client.call("asks", "a").await;
    assert_eq!(waits["isError"], true);
    assert!(texts(&waits)[0].contains("calls approve"), "{waits}");
    assert_eq!(said(&waits)["state"], "awaiting_client", "{waits}");

    witness.always("slow", Reply::DoneWhenReleased);
    let cancel = async {
        witness.until_asked("slow", 1).await;
        let id = witness.look(|seen| {
            let asked = seen.requests.iter().find(|request| request.what == "slow");
            asked.unwrap().header("toolfleet-call-id").to_owned()
        });
        web.post(&format!("/v1/calls/{id}/cancel"), "{}")
            .send()
            .await
    };
    let (told, _) = tokio::join!(client.call("look", "slow"), cancel);
    assert_eq!(said(&told)["state"], "cancelled", "{told}");
    assert_eq!(told["isError"], true);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn arguments_reach_the_door_byte_for_byte() {
    let witness = Witness::start().await;
    let of = |name: &str, effect: &str| {
        witness.tool(name, effect).replace(
            "properties: {what: {type: string}}",
            "properties: {what: {type: string}, n: {type: number}, m: {type: number}}",
        )
    };
    let fleet = Fleet::start(Spec::with([of("look", "read"), of("charge", "once")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let exact = r#"{ "n": 9007199254740993 , "what":"exact", "m" : 1.10 }"#;
    let over_http = web.post("/v1/call/look", exact).send().await;
    for client in [modern(web), legacy(web)] {
        let done = result(&client.calling("look", exact, "").send().await);
        let id: CallId = said(&done)["id"].as_str().unwrap().parse().unwrap();
        let rows = "SELECT original_args::text AS original, args::text AS args FROM toolfleet.calls WHERE call_id = $1";
        let over_http: CallId = over_http.header("Toolfleet-Call-Id").parse().unwrap();
        let (mcp, http) = (
            fleet.rows(rows, id).await,
            fleet.rows(rows, over_http).await,
        );
        assert_eq!(mcp, http);
    }
    let bodies = witness.look(|seen| {
        let bodies = seen.requests.iter().map(|request| request.body.clone());
        bodies.collect::<Vec<_>>()
    });
    assert_eq!(bodies.len(), 3);
    for body in &bodies {
        let body = String::from_utf8_lossy(body);
        assert!(
            body.contains("9007199254740993") && body.contains("1.10"),
            "{body}"
        );
    }
    // The key is taken out, and nothing else changes.
    let keyed = r#"{"n":9007199254740993,"idempotency_key":"k","what":"keyed","m":1.10}"#;
    result(&modern(web).calling("charge", keyed, "").send().await);
    let body = witness.look(|seen| seen.requests.last().unwrap().body.clone());
    let body = String::from_utf8_lossy(&body);
    assert!(
        body.contains("9007199254740993") && body.contains("1.10"),
        "{body}"
    );
    assert!(!body.contains("idempotency_key"), "{body}");

    // What the door does not take over NATS it does not take here.
    for (tool, arguments, code) in [
        ("look", r#"{"what":"a","what":"b"}"#, "duplicate_key"),
        ("charge", r#"{"what":"a","what":"b"}"#, "duplicate_key"),
        (
            "charge",
            r#"{"what":"a","idempotency_key":"b","idempotency_key":"c"}"#,
            "duplicate_key",
        ),
        (
            "charge",
            r#"{"what":"a","idempotency_key":7}"#,
            "invalid_idempotency_key",
        ),
        ("look", r#"{"what":"a","n":1e999}"#, "number_out_of_range"),
        ("look", "null", "invalid_arguments"),
        ("look", "[1]", "invalid_arguments"),
        ("look", r#""text""#, "invalid_arguments"),
        ("charge", "[1]", "invalid_arguments"),
    ] {
        let told = result(&modern(web).calling(tool, arguments, "").send().await);
        assert_eq!(
            said(&told)["error"]["code"],
            code,
            "{tool} {arguments}: {told}"
        );
        assert_eq!(told["isError"], true);
    }
    assert_eq!(witness.asked("a"), 0);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn two_requests_with_one_id_are_two_calls_and_an_id_comes_back_as_it_was() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let client = modern(web);
    for id in ["1", "\"a\"", "1152921504606846976", "-3"] {
        let of = |what: &str| {
            let arguments = json!({"what": format!("{what}{}", id.len())}).to_string();
            client.calling_as(id, "charge", &arguments, "").send()
        };
        let (one, two) = tokio::join!(of("one"), of("two"));
        assert!(
            one.text().contains(&format!("\"id\":{id},")),
            "{}",
            one.text()
        );
        let calls: Vec<Value> = [one, two]
            .iter()
            .map(|answer| said(&result(answer))["id"].clone())
            .collect();
        assert_ne!(calls[0], calls[1]);
    }
    assert_eq!(witness.look(|seen| seen.requests.len()), 8);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_call_that_takes_long_is_still_at_work_and_is_waited_for_by_its_id() {
    let witness = Witness::start().await;
    let tools = [witness.tool("charge", "once") + "timeout: 60s\n"];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let client = modern(web);
    witness.always("slow", Reply::DoneWhenReleased);
    let began = std::time::Instant::now();
    let told = client.call("charge", "slow").await;
    let took = began.elapsed();
    assert!((24..29).contains(&took.as_secs()), "{took:?}");
    assert_eq!(told["isError"], true);
    let id = said(&told)["id"].as_str().unwrap().to_owned();
    let text = &texts(&told)[0];
    assert!(
        text.contains("Still at work") && text.contains("toolfleet_get") && text.contains(&id),
        "{text}"
    );
    let get = async |wait: u64| {
        let arguments = json!({"call_id": id, "wait_s": wait}).to_string();
        result(&client.calling("toolfleet_get", &arguments, "").send().await)
    };
    assert!(texts(&get(0).await)[0].contains("Still at work"));
    let release = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        witness.release("slow");
    };
    let (done, ()) = tokio::join!(get(20), release);
    assert_eq!(done["structuredContent"], json!({"done": "slow"}), "{done}");
    // Asked for again by its tool: it is known.
    let again = client.call("charge", "slow").await;
    assert_eq!(said(&again)["replayed"], true);
    assert_eq!(witness.asked("slow"), 1);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn the_trace_of_a_message_goes_before_that_of_its_connection() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let trace = |byte: &str| format!("00-{}-{}-01", byte.repeat(16), byte.repeat(8));
    let meta = format!(r#""traceparent":"{}""#, trace("ab"));
    for (meta, expected) in [("", "cd"), (meta.as_str(), "ab")] {
        let request = modern(web).calling("look", r#"{"what":"t"}"#, meta);
        let done = result(&request.header("traceparent", &trace("cd")).send().await);
        let id: CallId = said(&done)["id"].as_str().unwrap().parse().unwrap();
        let rows = fleet
            .rows(
                "SELECT trace_id FROM toolfleet.calls WHERE call_id = $1",
                id,
            )
            .await;
        assert_eq!(rows[0]["trace_id"], expected.repeat(16), "{rows:?}");
    }
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
