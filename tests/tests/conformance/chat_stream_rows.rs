//! What follows a stream of a model that fails, before its first chunk and behind it, with the requests counted at the server.

use std::time::Duration;

use fleet::{outcome::OutcomeWord, secrets::Secrets, wire::code::Code};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::chat_scene::{ChatScene, Vendor};

const TEXT: &str = "Once upon a time, in a land of many hills, there lived a king who had three daughters and one well.";

fn rule(text: &str, model: &str, what: &Value) -> Value {
    let mut rule = json!({"match": {"text": format!("^{text}$"), "model": model}, "chunk": 2});
    for (field, value) in what.as_object().unwrap() {
        rule[field] = value.clone();
    }
    rule
}

fn fault(fault: &Value) -> Value {
    json!({"answer": {"text": TEXT}, "fault": fault})
}

/// The beginning of a stream.
fn begun(vendor: Vendor) -> &'static str {
    match vendor {
        Vendor::Chat => r#"data: {"choices":[{"index":0,"delta":{"content":"Once"}}]}"#,
        Vendor::Responses => r#"data: {"type":"response.created","response":{"id":"r"}}"#,
        Vendor::Anthropic => {
            r#"data: {"type":"message_start","message":{"id":"m","content":[],"usage":{"input_tokens":1}}}"#
        }
    }
}

/// Streams that begin and go on with these lines.
fn raw(vendor: Vendor, lines: &str) -> Value {
    fault(&json!({"kind": "raw", "status": 200, "body": format!("{}\n\n{lines}", begun(vendor))}))
}

/// What the first of two routes does, what is told of it where the second answers, and whether chunks of it were told.
fn rows(vendor: Vendor) -> Vec<(String, Value, Value, bool)> {
    let mut rows = Vec::new();
    for (all, code) in [
        (&[408, 504][..], "timeout"),
        (&[409, 425, 429, 500, 502, 503, 529][..], "unavailable"),
        (&[401, 403, 404][..], "unavailable"),
    ] {
        for number in all {
            let told = json!({"route": "a", "code": code, "status": number});
            let status = fault(&json!({"kind": "status", "status": number}));
            rows.push((format!("status-{number}"), status, told, false));
        }
    }
    let broken = json!({"route": "a", "code": "unavailable"});
    let broken_body = json!({"route": "a", "code": "unavailable", "status": 200});
    let useless = json!({"route": "a", "code": "output_invalid", "status": 200});
    let silent = json!({"route": "a", "code": "timeout"});
    let mut add = |name: &str, what: Value, told: &Value, has_told: bool| {
        rows.push((name.to_owned(), what, told.clone(), has_told));
    };
    let cut = |at: u32, end: &str| fault(&json!({"kind": "cut", "at": at, "end": end}));
    // Before the first chunk.
    add("drop", fault(&json!({"kind": "drop"})), &broken, false);
    add("cut", cut(20, "close"), &broken_body, false);
    // Twenty bytes are half of the first chunk, or the name of an event: that is no stream at all.
    let half = match vendor {
        Vendor::Chat => &broken_body,
        Vendor::Responses | Vendor::Anthropic => &useless,
    };
    add("cut-clean", cut(20, "clean"), half, false);
    add("error", fault(&json!({"kind": "error"})), &broken, false);
    add("empty", fault(&json!({"kind": "empty"})), &useless, false);
    add("html", fault(&json!({"kind": "html"})), &useless, false);
    add(
        "garbage",
        fault(&json!({"kind": "garbage"})),
        &useless,
        false,
    );
    add(
        "gzip",
        json!({"answer": {"text": TEXT}, "gzip": true}),
        &useless,
        false,
    );
    add("hang", fault(&json!({"kind": "hang"})), &silent, false);
    add(
        "hang-early",
        fault(&json!({"kind": "hang", "at": 10})),
        &silent,
        false,
    );
    // Behind it.
    add("late-cut", cut(4_000, "close"), &broken_body, true);
    add("late-clean", cut(4_000, "clean"), &broken_body, true);
    add(
        "late-error",
        fault(&json!({"kind": "error", "after": 2})),
        &broken,
        true,
    );
    add(
        "late-failed",
        fault(&json!({"kind": "error", "after": 2, "failed": true})),
        &broken,
        true,
    );
    add(
        "late-hang",
        fault(&json!({"kind": "hang", "at": 4_000})),
        &silent,
        true,
    );
    add(
        "says-nothing",
        json!({"answer": {"text": ""}}),
        &useless,
        true,
    );
    add("no-json", raw(vendor, "data: {\"a\":\n\n"), &useless, true);
    add("no-object", raw(vendor, "data: 7\n\n"), &useless, true);
    add(
        "named-error",
        raw(vendor, "event: error\ndata: {\"message\": \"words\"}\n\n"),
        &broken,
        true,
    );
    let reserved = r#"data: {"$serde_json::private::RawValue": "1"}"#;
    add(
        "reserved",
        raw(vendor, &format!("{reserved}\n\n")),
        &useless,
        true,
    );
    add(
        "half-a-line",
        raw(vendor, "data: {\"a\":"),
        &broken_body,
        true,
    );
    if vendor == Vendor::Anthropic {
        let no_mark = json!({"answer": {"text": TEXT}, "sse": {"done": false}});
        add("no-mark", no_mark, &broken_body, true);
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_fails_passes_the_request_on_and_nothing_is_continued() {
    for vendor in Vendor::ALL {
        let rows = rows(vendor);
        let mut rules: Vec<Value> = rows
            .iter()
            .map(|(name, what, ..)| rule(name, "a", what))
            .collect();
        rules.push(json!({"answer": {"text": "from the other one"}, "chunk": 3}));
        let scene = ChatScene::start(&rules);
        let routes = [scene.route(vendor, "a"), scene.route(vendor, "b")];
        for (name, _, told, has_told) in &rows {
            let came = scene.stream(vendor, &routes, &vendor.request(name)).await;
            let result = came.told.result();
            assert_eq!(result["route"], "b", "{vendor:?} {name}: {came:?}");
            assert_eq!(result["finish"], "stop", "{vendor:?} {name}");
            assert_eq!(result["tried"], json!([told]), "{vendor:?} {name}");
            let expected = if *has_told {
                &[("a", false), ("b", true)][..]
            } else {
                &[("b", false)]
            };
            assert_eq!(came.routes(), expected, "{vendor:?} {name}");
            assert!(came.chunks().len() > 3, "{vendor:?} {name}");
            let asked = scene.asked(name, ["a", "b"]).await;
            assert_eq!(asked, [1, 1], "{vendor:?} {name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_of_the_request_or_is_too_large_goes_nowhere_else() {
    let statuses = [400, 402, 413, 422].map(|number| (format!("status-{number}"), number));
    let mut rules: Vec<Value> = statuses
        .iter()
        .map(|(name, number)| {
            let refusal = json!({"kind": "status", "status": number, "message": format!("words of {number}")});
            rule(name, "a", &fault(&refusal))
        })
        .collect();
    let long = json!({"answer": {"text": "x".repeat(120_000)}, "chunk": 1_000});
    rules.push(rule("long", "a", &long));
    rules.push(json!({"answer": {"text": "from the other one"}}));
    for vendor in Vendor::ALL {
        let scene = ChatScene::start(&rules);
        let routes = [scene.route(vendor, "a"), scene.route(vendor, "b")];
        for (name, number) in &statuses {
            let came = scene.stream(vendor, &routes, &vendor.request(name)).await;
            let failed = (OutcomeWord::DefiniteFailure, Some(Code::ToolError));
            assert_eq!(came.told.failed(), failed, "{vendor:?} {name}");
            assert_eq!(came.told.said(), format!("words of {number}"));
            assert_eq!(came.parts, []);
            assert_eq!(scene.asked(name, ["a", "b"]).await, [1, 0]);
        }
        let came = scene.stream(vendor, &routes, &vendor.request("long")).await;
        let failed = (OutcomeWord::DefiniteFailure, Some(Code::OutputTooLarge));
        assert_eq!(came.told.failed(), failed, "{vendor:?}");
        assert_eq!(came.routes(), [("a", false)]);
        assert_eq!(scene.asked("long", ["a", "b"]).await, [1, 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_long_for_a_model_is_streamed_by_one_with_more_room() {
    let long = json!({"kind": "status", "status": 400, "code": "context_length_exceeded"});
    let rules = [
        rule("long", "a", &fault(&long)),
        json!({"answer": {"text": "from the other one"}}),
    ];
    let vendor = Vendor::Chat;
    let scene = ChatScene::start(&rules);
    let sized = |model: &str, tokens: u64| {
        let mut route = scene.route(vendor, model);
        route["context_tokens"] = json!(tokens);
        route
    };
    let routes = [sized("a", 100), sized("c", 100), sized("b", 101)];
    let came = scene.stream(vendor, &routes, &vendor.request("long")).await;
    let tried = json!([{"route": "a", "code": "tool_error", "status": 400}, {"route": "c", "code": "not_larger"}]);
    assert_eq!(came.told.result()["tried"], tried, "{came:?}");
    assert_eq!(came.routes(), [("b", false)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_stream_ends_with_the_attempt() {
    let rules = [
        rule("endless", "a", &fault(&json!({"kind": "endless"}))),
        json!({"answer": {"text": "from the other one"}}),
    ];
    for vendor in Vendor::ALL {
        let scene = ChatScene::start(&rules);
        let routes = [scene.route(vendor, "a"), scene.route(vendor, "b")];
        let (request, none) = (vendor.request("endless"), Secrets::new(None));
        let time = Duration::from_millis(1_500);
        let came = scene
            .stream_of(vendor, &routes, &request, &none, time)
            .await;
        let failed = (OutcomeWord::Unknown, Some(Code::Timeout));
        assert_eq!(came.told.failed(), failed, "{vendor:?}");
        assert_eq!(came.routes(), [("a", false)]);
        assert_eq!(scene.asked("endless", ["a", "b"]).await, [1, 0]);
        assert_eq!(scene.last_answered().await["ended"], "client_left");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_answer_to_a_request_for_a_stream_that_hangs_is_silent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap();
    let hanging = async {
        let mut held = Vec::new();
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"choices\":";
            let mut asked = Vec::new();
            while !asked.ends_with(b"}") {
                assert_ne!(client.read_buf(&mut asked).await.unwrap(), 0);
            }
            client.write_all(head.as_bytes()).await.unwrap();
            held.push(client);
        }
    };
    let scene = ChatScene::start(&[json!({"answer": {"text": "from the other one"}})]);
    let vendor = Vendor::Chat;
    let mut hangs = scene.route(vendor, "a");
    hangs["url"] = json!(format!("http://{place}/"));
    let (routes, request) = ([hangs, scene.route(vendor, "b")], vendor.request("hello"));
    let came = tokio::select! {
        came = scene.stream(vendor, &routes, &request) => came,
        () = hanging => unreachable!("it accepts for ever"),
    };
    let tried = json!([{"route": "a", "code": "timeout"}]);
    assert_eq!(came.told.result()["tried"], tried, "{came:?}");
    assert_eq!(came.routes(), [("b", false)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_ten_mebibytes_is_a_broken_answer() {
    let mebibytes = "x".repeat(10 * 1024 * 1024);
    for vendor in Vendor::ALL {
        for line in [
            format!("data: \"{mebibytes}\"\n\n"),
            format!(": {mebibytes}"),
            mebibytes.clone(),
        ] {
            let scene = ChatScene::start(&[
                rule("line", "a", &raw(vendor, &line)),
                json!({"answer": {"text": "from the other one"}}),
            ]);
            let routes = [scene.route(vendor, "a"), scene.route(vendor, "b")];
            let came = scene.stream(vendor, &routes, &vendor.request("line")).await;
            let result = came.told.result();
            let tried = json!([{"route": "a", "code": "unavailable", "status": 200}]);
            assert_eq!(result["tried"], tried, "{vendor:?} {:?}", came.told);
            assert_eq!(came.routes(), [("a", false), ("b", true)]);
        }
    }
}
