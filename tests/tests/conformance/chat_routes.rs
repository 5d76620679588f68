//! What follows an answer of a model, row by row of the table in `docs/executors/chat.md`, with the requests counted at the server.

use std::time::Duration;

use fleet::{outcome::OutcomeWord, wire::code::Code};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::chat_scene::{ChatScene, Vendor};

/// A rule of the script: the answer of a model to a request with this last message.
fn rule(text: &str, model: &str, what: &Value) -> Value {
    let mut rule = json!({"match": {"text": format!("^{text}$"), "model": model}});
    for (field, value) in what.as_object().unwrap() {
        rule[field] = value.clone();
    }
    rule
}

fn status(status: u16) -> Value {
    json!({"fault": {"kind": "status", "status": status, "message": format!("words of {status}")}})
}

fn fault(kind: &str) -> Value {
    json!({"fault": {"kind": kind}})
}

/// What the first of two routes does, and what is told of it where the second one answers: the code and perhaps the status.
fn passed_on() -> Vec<(String, Value, Value)> {
    let mut rows = Vec::new();
    for (all, code) in [
        (&[408, 504][..], "timeout"),
        (&[409, 425, 429, 500, 502, 503, 529][..], "unavailable"),
        (&[401, 403, 404][..], "unavailable"),
    ] {
        for number in all {
            let told = json!({"route": "a", "code": code, "status": number});
            rows.push((format!("status-{number}"), status(*number), told));
        }
    }
    let broken = json!({"route": "a", "code": "unavailable"});
    let broken_body = json!({"route": "a", "code": "unavailable", "status": 200});
    let useless = json!({"route": "a", "code": "output_invalid", "status": 200});
    rows.extend([
        ("drop".to_owned(), fault("drop"), broken.clone()),
        (
            "cut".to_owned(),
            json!({"answer": {"text": "hello"}, "fault": {"kind": "cut", "at": 20}}),
            broken_body,
        ),
        (
            "error-inside".to_owned(),
            json!({"fault": {"kind": "error", "message": "words of the vendor"}}),
            broken,
        ),
        ("empty-body".to_owned(), fault("empty"), useless.clone()),
        ("html".to_owned(), fault("html"), useless.clone()),
        ("garbage".to_owned(), fault("garbage"), useless.clone()),
        (
            "gzip".to_owned(),
            json!({"answer": {"text": "hello"}, "gzip": true}),
            useless.clone(),
        ),
        (
            "other-json".to_owned(),
            json!({"fault": {"kind": "raw", "status": 200, "body": "{\"hello\": 1}"}}),
            useless.clone(),
        ),
        (
            "says-nothing".to_owned(),
            json!({"answer": {"text": ""}}),
            useless,
        ),
    ]);
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_that_fails_passes_the_request_on_and_is_asked_once() {
    let rows = passed_on();
    let mut rules: Vec<Value> = rows
        .iter()
        .map(|(name, what, _)| rule(name, "a", what))
        .collect();
    rules.push(json!({"answer": {"text": "from the other one"}}));
    for vendor in Vendor::ALL {
        let scene = ChatScene::start(&rules);
        let routes = [scene.route(vendor, "a"), scene.route(vendor, "b")];
        for (name, _, told) in &rows {
            let came = scene.ask(vendor, &routes, &vendor.request(name)).await;
            let result = came.result();
            assert_eq!(result["route"], "b", "{vendor:?} {name}: {came:?}");
            assert_eq!(result["finish"], "stop", "{vendor:?} {name}");
            assert_eq!(result["tried"], json!([told]), "{vendor:?} {name}");
            let asked = scene.asked(name, ["a", "b"]).await;
            assert_eq!(asked, [1, 1], "{vendor:?} {name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_the_request_is_told_in_the_vendors_words_and_goes_nowhere_else() {
    let rows = [400, 402, 413, 422, 451].map(|number| (format!("status-{number}"), number));
    let mut rules: Vec<Value> = rows
        .iter()
        .map(|(name, number)| rule(name, "a", &status(*number)))
        .collect();
    rules.push(rule("endless", "a", &fault("endless")));
    rules.push(json!({"answer": {"text": "from the other one"}}));
    for vendor in Vendor::ALL {
        let scene = ChatScene::start(&rules);
        let routes = [scene.route(vendor, "a"), scene.route(vendor, "b")];
        for (name, number) in &rows {
            let came = scene.ask(vendor, &routes, &vendor.request(name)).await;
            let failed = (OutcomeWord::DefiniteFailure, Some(Code::ToolError));
            assert_eq!(came.failed(), failed, "{vendor:?} {name}");
            assert_eq!(came.said(), format!("words of {number}"), "{vendor:?}");
            assert_eq!(came.details(), json!({"status": number}), "{vendor:?}");
            assert_eq!(
                scene.asked(name, ["a", "b"]).await,
                [1, 0],
                "{vendor:?} {name}"
            );
        }
        let came = scene.ask(vendor, &routes, &vendor.request("endless")).await;
        let failed = (OutcomeWord::DefiniteFailure, Some(Code::OutputTooLarge));
        assert_eq!(came.failed(), failed, "{vendor:?}");
        assert_eq!(scene.asked("endless", ["a", "b"]).await, [1, 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_long_for_a_model_goes_to_one_with_more_room() {
    let long = json!({"fault": {"kind": "status", "status": 400, "code": "context_length_exceeded", "message": "This model's maximum context length is 9 tokens."}});
    let rules = [
        rule("long", "a", &long),
        json!({"answer": {"text": "from the other one"}}),
    ];
    let vendor = Vendor::Chat;
    let scene = ChatScene::start(&rules);
    let sized = |model: &str, tokens: u64| {
        let mut route = scene.route(vendor, model);
        route["context_tokens"] = json!(tokens);
        route
    };
    let request = vendor.request("long");
    let came = scene
        .ask(
            vendor,
            &[sized("a", 100), sized("c", 100), sized("b", 101)],
            &request,
        )
        .await;
    let tried = json!([{"route": "a", "code": "tool_error", "status": 400}, {"route": "c", "code": "not_larger"}]);
    assert_eq!(
        (&came.result()["route"], &came.result()["tried"]),
        (&json!("b"), &tried)
    );
    assert_eq!(scene.asked("long", ["a", "b"]).await, [1, 1]);
    assert_eq!(scene.asked("long", ["c", "b"]).await, [0, 1]);

    // Nowhere is more room: the vendor's words.
    let came = scene
        .ask(vendor, &[sized("a", 100), sized("c", 99)], &request)
        .await;
    assert_eq!(
        came.failed(),
        (OutcomeWord::DefiniteFailure, Some(Code::ToolError))
    );
    assert!(
        came.said().contains("maximum context length is 9 tokens"),
        "{came:?}"
    );
    assert_eq!(scene.asked("long", ["a", "c"]).await, [2, 0]);

    // What is surely too long is not sent at all.
    let came = scene
        .ask(vendor, &[sized("a", 1), sized("b", 100)], &request)
        .await;
    assert_eq!(
        came.result()["tried"],
        json!([{"route": "a", "code": "too_long"}])
    );
    assert_eq!(scene.asked("long", ["a", "b"]).await, [2, 2]);
    let came = scene
        .ask(vendor, &[sized("a", 1), sized("b", 1)], &request)
        .await;
    assert_eq!(
        came.failed(),
        (OutcomeWord::NotStarted, Some(Code::InvalidArguments))
    );
    assert!(
        came.said().contains("a (too_long), b (too_long)"),
        "{came:?}"
    );
    assert_eq!(scene.asked("long", ["a", "b"]).await, [2, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_lacks_what_is_needed_is_not_asked() {
    let scene = ChatScene::start(&[json!({"answer": {"text": "hello"}})]);
    let vendor = Vendor::Chat;
    let mut route = scene.route(vendor, "a");
    route["lacks"] = json!(["tools"]);
    let routes = [route, scene.route(vendor, "b")];
    let mut request = vendor.request("tools");
    request["tools"] = json!([{"type": "function", "function": {"name": "f"}}]);
    let came = scene.ask(vendor, &routes, &request).await;
    assert_eq!(
        came.result()["tried"],
        json!([{"route": "a", "code": "lacks_tools"}]),
        "{came:?}"
    );
    assert_eq!(scene.asked("tools", ["a", "b"]).await, [0, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_tool_calls_and_cut_answers_are_replies() {
    let call = json!({"name": "get_weather", "arguments": {"city": "Oslo"}});
    let rows = [
        ("refusal", json!({"refusal": "no"}), "refusal"),
        (
            "length",
            json!({"text": "once upon", "finish": "length"}),
            "length",
        ),
        ("calls", json!({"tool_calls": [call, call]}), "tool_calls"),
        (
            "text",
            json!({"text": "hello", "extra": {"unheard_of": [1]}}),
            "stop",
        ),
    ];
    let rules: Vec<Value> = rows
        .iter()
        .map(|(name, answer, _)| rule(name, "a", &json!({"answer": answer})))
        .collect();
    for vendor in Vendor::ALL {
        let scene = ChatScene::start(&rules);
        let mut route = scene.route(vendor, "a");
        route["price"] = json!({"currency": "USD", "input": "1", "output": "2"});
        for (name, _, finish) in &rows {
            let mut request = vendor.request(name);
            if vendor == Vendor::Responses {
                request["tools"] = json!([{"type": "function", "name": "get_weather"}]);
            } else if vendor == Vendor::Chat {
                request["tools"] =
                    json!([{"type": "function", "function": {"name": "get_weather"}}]);
            } else {
                request["tools"] =
                    json!([{"name": "get_weather", "input_schema": {"type": "object"}}]);
            }
            let came = scene
                .ask(vendor, &[route.clone(), scene.route(vendor, "b")], &request)
                .await;
            let result = came.result();
            assert_eq!(result["finish"], *finish, "{vendor:?} {name}: {came:?}");
            assert_eq!(
                (&result["route"], &result["tried"]),
                (&json!("a"), &json!([]))
            );
            // What was told is what was counted there, and the cost is made of it.
            let entry = scene.last_answered().await;
            let usage = &result["usage"];
            for kind in ["input", "output"] {
                assert_eq!(
                    usage[kind], entry["usage"][kind],
                    "{vendor:?} {name}: {entry}"
                );
            }
            assert_eq!(usage["estimated"], false);
            let count = |kind: &str| usage[kind].as_u64().unwrap();
            let millionths = count("input") + 2 * count("output");
            let amount = format!("0.{millionths:06}");
            let amount = amount.trim_end_matches('0');
            assert_eq!(result["cost"], json!({"amount": amount, "currency": "USD"}));
            if *name == "text" {
                assert_eq!(result["reply"]["unheard_of"], json!([1]), "{vendor:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_all_fail_the_first_error_is_told_with_the_shortest_pause() {
    let busy = |number: u16, seconds: &str| json!({"fault": {"kind": "status", "status": number, "headers": {"Retry-After": seconds}}});
    let rules = [
        rule("busy", "a", &busy(503, "9")),
        rule("busy", "b", &busy(429, "2")),
        rule("late", "a", &status(500)),
        rule("late", "b", &fault("hang")),
    ];
    let scene = ChatScene::start(&rules);
    let vendor = Vendor::Anthropic;
    let routes = [scene.route(vendor, "a"), scene.route(vendor, "b")];
    let came = scene.ask(vendor, &routes, &vendor.request("busy")).await;
    assert_eq!(
        came.failed(),
        (OutcomeWord::DefiniteFailure, Some(Code::Unavailable))
    );
    assert_eq!(came.0.failure().unwrap().retry_after_ms, Some(2000));
    let details = came.details();
    assert_eq!(
        (
            &details["status"],
            details["tried"].as_array().unwrap().len()
        ),
        (&json!(503), 2)
    );
    assert_eq!(scene.asked("busy", ["a", "b"]).await, [1, 1]);

    // An attempt whose time is over ends as one.
    let context = conformance::context(Duration::from_millis(800));
    let came = scene
        .ask_in(vendor, &routes, &vendor.request("late"), context)
        .await;
    assert_eq!(came.failed(), (OutcomeWord::Unknown, Some(Code::Timeout)));
    // The route at which it was over is told last.
    assert_eq!(
        came.details()["tried"],
        json!([{"route": "a", "code": "unavailable", "status": 500}, {"route": "b", "code": "timeout"}])
    );

    // A port on which nothing listens: nothing was sent, unless another route was asked.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nowhere = format!("http://{}/v1/messages", listener.local_addr().unwrap());
    drop(listener);
    let gone = |name: &str| json!({"name": name, "url": nowhere, "model": "m"});
    let came = scene
        .ask(vendor, &[gone("x"), gone("y")], &vendor.request("gone"))
        .await;
    assert_eq!(
        came.failed(),
        (OutcomeWord::NotStarted, Some(Code::Unavailable))
    );
    let came = scene
        .ask(
            vendor,
            &[gone("x"), scene.route(vendor, "b")],
            &vendor.request("busy"),
        )
        .await;
    assert_eq!(
        came.failed(),
        (OutcomeWord::DefiniteFailure, Some(Code::Unavailable))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vendor_is_sent_the_request_as_it_is_and_told_nothing_of_who_calls() {
    let rules = [
        rule("exact", "a", &status(503)),
        json!({"answer": {"text": "hello"}}),
    ];
    for vendor in Vendor::ALL {
        let scene = ChatScene::start(&rules);
        let routes = [scene.route(vendor, "a"), scene.route(vendor, "b")];
        let mut request = vendor.request("exact");
        let exact = r#"{"big": 9007199254740993, "decimal": 1.50, "text": "\u00fc \ud83d\ude00"}"#;
        request["metadata"] = serde_json::from_str(exact).unwrap();
        request["model"] = json!("the caller's own");
        let context = conformance::context(Duration::from_secs(20));
        let (key, attempt) = (context.idempotency_key.clone(), context.attempt_id);
        let came = scene.ask_in(vendor, &routes, &request, context).await;
        assert_eq!(came.result()["route"], "b", "{came:?}");
        let log = scene.server.log().await;
        for (entry, (model, key)) in log
            .iter()
            .zip([("a", key.clone()), ("b", format!("{key}/b"))])
        {
            let raw = entry["raw"].as_str().unwrap();
            assert!(
                raw.contains(r#""big":9007199254740993,"decimal":1.50"#),
                "{raw}"
            );
            let mut expected = request.clone();
            expected["model"] = json!(model);
            assert_eq!(raw, expected.to_string());
            let headers = &entry["headers"];
            assert_eq!(headers["idempotency-key"], key.as_str());
            assert_eq!(headers["toolfleet-attempt-id"], attempt.to_string());
            let names = headers.as_object().unwrap().keys();
            let strange: Vec<&String> = names
                .filter(|name| {
                    let known = [
                        "accept",
                        "anthropic-version",
                        "content-length",
                        "content-type",
                        "host",
                        "idempotency-key",
                        "toolfleet-attempt-id",
                        "user-agent",
                    ];
                    !known.contains(&name.as_str())
                })
                .collect();
            assert!(strange.is_empty(), "{strange:?}");
        }
        assert_eq!(log.len(), 2);
    }
}
