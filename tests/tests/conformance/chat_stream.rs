//! Streams of models: what is told of them, and that a stream comes to what a plain answer would have been. What follows one that
//! fails: `chat_stream_rows`.

use std::time::Duration;

use fleet::{
    call::Effect,
    outcome::{Outcome, OutcomeWord},
    secrets::Secrets,
    wire::code::Code,
};
use serde_json::{Value, json};
use worker::executors::Executor;

use super::chat_scene::{ChatScene, Vendor};

/// A result without what is new in each answer of the stand-in.
fn lasting(mut result: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(members) => {
                // A plain reply of a vendor has `annotations` where its stream says nothing.
                for name in ["id", "created", "created_at", "completed_at", "annotations"] {
                    members.remove(name);
                }
                members.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    strip(&mut result);
    // A guess by the length of texts counts ids, too.
    if result["usage"]["estimated"] == true {
        result["usage"]["output"] = Value::Null;
        result["cost"] = Value::Null;
    }
    result
}

/// A request that offers the tool of the script.
fn request(vendor: Vendor, text: &str) -> Value {
    let mut request = vendor.request(text);
    request["tools"] = match vendor {
        Vendor::Chat => json!([{"type": "function", "function": {"name": "get_weather"}}]),
        Vendor::Responses => json!([{"type": "function", "name": "get_weather"}]),
        Vendor::Anthropic => json!([{"name": "get_weather", "input_schema": {"type": "object"}}]),
    };
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_comes_to_the_reply_that_a_plain_request_gets() {
    let call = |id: &str, city: &str| json!({"name": "get_weather", "id": id, "arguments": {"city": city, "n": 1}});
    let answers = [
        ("text", json!({"text": "Grüße aus 東京 🎉, und so weiter."})),
        (
            "calls",
            json!({"tool_calls": [call("c1", "Oslo"), call("c2", "東京")]}),
        ),
        (
            "both",
            json!({"text": "Let me see.", "tool_calls": [call("c1", "Oslo")]}),
        ),
        ("refusal", json!({"refusal": "I do not answer that."})),
        ("length", json!({"text": "once upon", "finish": "length"})),
        (
            "cut-call",
            json!({"tool_calls": [{"name": "get_weather", "id": "c1", "arguments": "{\"city\": \"Os"}], "finish": "length"}),
        ),
        ("filtered", json!({"text": "I", "finish": "content_filter"})),
        ("no-usage", json!({"text": "hello", "usage": null})),
        (
            "thought",
            json!({"reasoning": "hm, the weather", "text": "hello", "usage": {"cached_input": 2, "reasoning": 3}}),
        ),
        (
            "unknown",
            json!({"text": "hello", "extra": {"unheard_of": [1]}, "message_extra": {"aside": "nobody knows this field"}}),
        ),
    ];
    let styles = [
        json!({}),
        json!({"chunk": 1, "write_bytes": 5, "sse": {"line_end": "\r\n", "comments": true}}),
        json!({"chunk": [3, 1], "write_bytes": 7, "sse": {"line_end": "\r", "interleave": true}}),
    ];
    for (number, style) in styles.iter().enumerate() {
        let mut rules = Vec::new();
        for (name, answer) in &answers {
            let mut rule = style.clone();
            rule["match"] = json!({"text": format!("^{name}$")});
            rule["answer"] = answer.clone();
            rules.push(rule);
        }
        for vendor in Vendor::ALL {
            let scene = ChatScene::start(&rules);
            let mut route = scene.route(vendor, "a");
            route["price"] = json!({"currency": "USD", "input": "1", "output": "2"});
            let routes = [route];
            for (name, _) in &answers {
                let request = request(vendor, name);
                let plain = scene.ask(vendor, &routes, &request).await.result();
                let came = scene.stream(vendor, &routes, &request).await;
                let streamed = came.told.result();
                assert!(plain["reply"].is_object(), "{vendor:?} {name} {number}");
                assert_eq!(
                    lasting(streamed),
                    lasting(plain),
                    "{vendor:?} {name} {number}: {came:?}"
                );
                assert_eq!(came.routes(), [("a", false)]);
                // Each chunk is the data of an event, in its order.
                let entry = scene.last_answered().await;
                assert_eq!(entry["stream"], true);
                assert!(came.chunks().len() > 2, "{vendor:?} {name}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_is_told_alike_in_a_stream_and_in_a_plain_answer() {
    let error = json!({"kind": "error", "message": "words of the vendor"});
    let scene = ChatScene::start(&[json!({"fault": error, "answer": {"text": "hello"}})]);
    for vendor in Vendor::ALL {
        let routes = [scene.route(vendor, "a")];
        let request = vendor.request("error");
        let plain = scene.ask(vendor, &routes, &request).await;
        let streamed = scene.stream(vendor, &routes, &request).await.told;
        assert_eq!(streamed.failed(), plain.failed(), "{vendor:?}");
        assert_eq!(streamed.said(), "words of the vendor", "{vendor:?}");
        assert_eq!(streamed.said(), plain.said(), "{vendor:?}");
        assert_eq!(streamed.details(), plain.details(), "{vendor:?}");
    }
}

/// A rule that answers with these bytes.
fn raw(text: &str, kind: &str, body: &str) -> Value {
    json!({"match": {"text": format!("^{text}$")}, "fault": {"kind": "raw", "status": 200, "content_type": kind, "body": body}})
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_are_told_as_they_came_and_marks_and_comments_are_none() {
    let chunks = [
        r#"{ "choices": [{"index":0,"delta":{"content":"\u00fc "}}], "n": 9007199254740993 }"#,
        r#"{"choices":[{"index":0,"delta":{"content":"1.50"}}],"half":1.50}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
    ];
    let [first, second, third] = chunks;
    let body = format!(
        ": ping\nid: 7\ndata: {first}\n\ndata:{second}\n\nevent: x\ndata:  {third}\n\n:\n\ndata:\n\ndata: [DONE]\n\ndata: {first}\n\n"
    );
    let plain = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}"#;
    let finished =
        r#"data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}"#;
    let scene = ChatScene::start(&[
        raw("exact", "text/event-stream", &body),
        raw("plain", "application/json", plain),
        raw("no-blank", "Text/Event-Stream; charset=utf-8", finished),
    ]);
    let (vendor, routes) = (Vendor::Chat, [scene.route(Vendor::Chat, "a")]);
    let came = scene
        .stream(vendor, &routes, &vendor.request("exact"))
        .await;
    assert_eq!(came.chunks(), chunks);
    let reply = &came.told.result()["reply"];
    assert_eq!(reply["choices"][0]["message"]["content"], "ü 1.50");
    assert_eq!(reply["n"].to_string(), "9007199254740993");
    assert_eq!(reply["half"].to_string(), "1.50");

    // A server that does not stream.
    let came = scene
        .stream(vendor, &routes, &vendor.request("plain"))
        .await;
    assert_eq!(
        came.told.result()["reply"],
        serde_json::from_str::<Value>(plain).unwrap()
    );
    assert_eq!(came.parts, []);
    // The end of the last line is the end of the stream.
    let came = scene
        .stream(vendor, &routes, &vendor.request("no-blank"))
        .await;
    assert_eq!(came.told.result()["finish"], "stop", "{came:?}");
    assert_eq!(came.chunks().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn characters_that_nobody_can_keep_are_replaced_and_said_so() {
    for bad in ["a\0b", r"a\u0000b", r"a\ud83db"] {
        let body = format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{bad}\"}},\"finish_reason\":\"stop\"}}]}}\n\n"
        );
        let scene = ChatScene::start(&[raw("bad", "text/event-stream", &body)]);
        let (vendor, routes) = (Vendor::Chat, [scene.route(Vendor::Chat, "a")]);
        let came = scene.stream(vendor, &routes, &vendor.request("bad")).await;
        let Outcome::Applied {
            result,
            flaw: Some(flaw),
        } = &came.told.0
        else {
            panic!("{came:?}")
        };
        assert!(flaw.is_mended(), "{flaw:?}");
        let result: Value = serde_json::from_str(result.get()).unwrap();
        let message = &result["reply"]["choices"][0]["message"];
        assert_eq!(message["content"], "a\u{fffd}b", "{bad:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_masked_in_chunks_and_reply_however_it_is_cut() {
    let (_folder, secrets) = super::secrets();
    let text = format!("Your key is {}, keep it.", conformance::SECRET);
    let rules: Vec<Value> = (1..6)
        .map(|size| json!({"match": {"text": format!("^cut-{size}$")}, "answer": {"text": text}, "chunk": size}))
        .collect();
    for vendor in Vendor::ALL {
        let scene = ChatScene::start(&rules);
        let mut route = scene.route(vendor, "a");
        route["headers"] = json!({"x-key": format!("secret://{}", conformance::SECRET_NAME)});
        for size in 1..6 {
            let request = vendor.request(&format!("cut-{size}"));
            let time = Duration::from_secs(20);
            let came = scene
                .stream_of(
                    vendor,
                    std::slice::from_ref(&route),
                    &request,
                    &secrets,
                    time,
                )
                .await;
            let result = came.told.result();
            let masked = "Your key is [secret], keep it.";
            assert!(result["reply"].to_string().contains(masked), "{came:?}");
            let mut told = String::new();
            for chunk in came.chunks() {
                let chunk: Value = serde_json::from_str(chunk).unwrap();
                let delta = match vendor {
                    Vendor::Chat => &chunk["choices"][0]["delta"]["content"],
                    Vendor::Responses => &chunk["delta"],
                    Vendor::Anthropic => &chunk["delta"]["text"],
                };
                told += delta.as_str().unwrap_or_default();
                assert!(!chunk.to_string().contains(conformance::SECRET));
            }
            assert_eq!(told, masked, "{vendor:?} {size}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vendor_is_asked_for_a_stream_and_its_count_whatever_the_caller_says() {
    for vendor in Vendor::ALL {
        let scene = ChatScene::start(&[json!({"answer": {"text": "hello"}})]);
        let routes = [scene.route(vendor, "a")];
        let mut requests = vec![vendor.request("asked")];
        if vendor == Vendor::Chat {
            for options in [json!({"include_obfuscation": false}), Value::Null] {
                requests.push(vendor.request("asked"));
                requests.last_mut().unwrap()["stream_options"] = options;
            }
        }
        for request in &requests {
            let came = scene.stream(vendor, &routes, request).await;
            assert_eq!(came.told.result()["finish"], "stop", "{came:?}");
        }
        let log = scene.server.log().await;
        let bodies: Vec<&Value> = log.iter().map(|entry| &entry["body"]).collect();
        assert!(bodies.iter().all(|body| body["stream"] == true));
        let options: Vec<&Value> = bodies.iter().map(|body| &body["stream_options"]).collect();
        let expected = match vendor {
            Vendor::Chat => vec![
                json!({"include_usage": true}),
                json!({"include_obfuscation": false, "include_usage": true}),
                // Whether it counts is not for the caller to say.
                json!({"include_usage": true}),
            ],
            Vendor::Responses | Vendor::Anthropic => vec![Value::Null],
        };
        assert_eq!(options, expected.iter().collect::<Vec<_>>(), "{vendor:?}");
    }
}

#[tokio::test]
async fn a_stream_that_nobody_may_hear_is_refused() {
    let scene = ChatScene::start(&[json!({"answer": {"text": "hello"}})]);
    let vendor = Vendor::Chat;
    let routes = [scene.route(vendor, "a")];
    let mut request = vendor.request("hello");
    for (stream, says) in [
        (json!(true), "Toolfleet-Session"),
        (json!("yes"), "true or false"),
    ] {
        request["stream"] = stream;
        let refused = scene.ask(vendor, &routes, &request).await;
        let failed = (OutcomeWord::NotStarted, Some(Code::InvalidArguments));
        assert_eq!(refused.failed(), failed);
        assert!(refused.said().contains(says), "{refused:?}");
    }
    for off in [json!(false), Value::Null] {
        request["stream"] = off;
        let came = scene.ask(vendor, &routes, &request).await;
        assert_eq!(came.result()["finish"], "stop", "{came:?}");
    }
    let executor = json!({"chat": {"protocol": "openai_chat", "routes": routes}});
    let sensitive = json!({"sensitive": {"pointers": ["/messages"]}});
    let manifest = super::manifest(Effect::Read, &executor, &sensitive);
    request["stream"] = json!(true);
    let (chat, _) = scene.executor().await;
    let refused = chat.prepare(&manifest, &request, &Secrets::new(None));
    let refused = refused.err().unwrap();
    assert_eq!(refused.code, Code::InvalidArguments);
    assert!(refused.message.english().contains("sensitive"));
    // Before its claim the worker asks whether the request needs a follower.
    let manifest = super::manifest(Effect::Read, &executor, &json!({}));
    for (stream, needs_one) in [(true, true), (false, false)] {
        request["stream"] = json!(stream);
        let prepared = chat.prepare(&manifest, &request, &Secrets::new(None));
        assert_eq!(prepared.unwrap().unfollowed().is_some(), needs_one);
    }
    assert_eq!(scene.asked("hello", ["a", "b"]).await, [2, 0]);
}
