//! Streams for the vendors' own packages: the chunks of a call as its vendor sent them, or its reply as the smallest stream.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use fleet_tests::{
    fleet::{Fleet, Spec},
    web::{Web, WebAnswer, WebRequest},
};
use serde_json::{Value, json};

use crate::models::{PROTOCOLS, Scene, body, error};

/// The chunks of a stream, and what stands last in it.
fn chunks(protocol: &str, answer: &WebAnswer) -> Vec<Value> {
    assert_eq!(
        answer.header("Content-Type"),
        "text/event-stream",
        "{}",
        answer.text()
    );
    let text = answer.text();
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let chunks: Vec<Value> = lines
        .filter(|line| *line != "[DONE]")
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    if protocol != "openai_chat" {
        let named = text.lines().filter_map(|line| line.strip_prefix("event: "));
        let own = chunks.iter().map(|chunk| chunk["type"].as_str().unwrap());
        assert!(named.eq(own), "{text}");
    }
    chunks
}

/// The text that the deltas of a stream say.
fn deltas(chunks: &[Value]) -> Vec<String> {
    let text = |chunk: &Value| {
        let places = ["/choices/0/delta/content", "/delta/text", "/delta"];
        let mut said = places
            .iter()
            .filter_map(|place| chunk.pointer(place)?.as_str());
        said.next().map(ToOwned::to_owned)
    };
    chunks.iter().filter_map(text).collect()
}

fn stream(web: Web, protocol: &str, path: &str, words: &str) -> WebRequest {
    let mut body = body(protocol, protocol, words);
    body["stream"] = json!(true);
    web.post(path, body.to_string())
}

const STORY: &str = "Once upon a time there was a fleet.";

#[tokio::test]
async fn a_stream_is_the_vendors_chunks_and_a_replay_the_smallest_that_says_the_same() {
    let rules = json!([
        {"match": {"text": "wrong"}, "fault": {"kind": "status", "status": 422}},
        {"answer": {"text": STORY}, "chunk": 4, "chunk_ms": 60},
    ]);
    let scene = Scene::start(rules, "", &[]).await;
    for (protocol, path) in PROTOCOLS {
        let key = format!("k-{protocol}");
        let request = stream(scene.web, protocol, path, "tell").header("Idempotency-Key", &key);
        let told = request.clone().send().await;
        assert_eq!(told.status, 200, "{}", told.text());
        let id = told.header("Toolfleet-Call-Id").to_owned();
        assert!(!id.is_empty());
        assert_eq!(
            (
                told.header("Toolfleet-Answer"),
                told.header("Toolfleet-Route")
            ),
            ("call", "main")
        );
        let pieces = deltas(&chunks(protocol, &told));
        assert_eq!(pieces.concat(), STORY);
        assert!(
            pieces.iter().filter(|piece| !piece.is_empty()).count() > 5,
            "{pieces:?}"
        );
        let is_done = told.text().contains("data: [DONE]\n\n");
        assert_eq!(is_done, protocol == "openai_chat", "{}", told.text());
        // Who did not ask for the tokens has no chunk with them.
        assert!(
            protocol != "openai_chat" || !told.text().contains("total_tokens"),
            "{}",
            told.text()
        );

        let again = request.send().await;
        let pieces = deltas(&chunks(protocol, &again));
        let pieces: Vec<&String> = pieces.iter().filter(|piece| !piece.is_empty()).collect();
        assert_eq!(pieces, [STORY]);
        assert_eq!(again.header("Toolfleet-Call-Id"), id);

        // One that fails at once has a status.
        let failed = stream(scene.web, protocol, path, "wrong").send().await;
        assert_eq!(
            (failed.status, error(protocol, &failed).1.as_str()),
            (422, "tool_error")
        );
    }
    // A stream of each protocol, and one that failed.
    assert_eq!(scene.server.log().await.len(), 2 * PROTOCOLS.len());
    scene.end().await;
}

#[tokio::test]
async fn an_answer_that_begins_anew_ends_the_stream_and_is_kept() {
    let rules = json!([
        {"match": {"model": "large"}, "answer": {"text": STORY}, "chunk": 4, "chunk_ms": 60, "fault": {"kind": "error", "status": 500, "after": 4}},
        {"answer": {"text": "Another story."}, "chunk": 4, "chunk_ms": 60},
    ]);
    let scene = Scene::start(rules, "", &[]).await;
    for (protocol, path) in PROTOCOLS {
        let key = format!("k-{protocol}");
        let request = stream(scene.web, protocol, path, "tell").header("Idempotency-Key", &key);
        let told = request.clone().send().await;
        assert_eq!(told.status, 200, "{}", told.text());
        let id = told.header("Toolfleet-Call-Id").to_owned();
        let sent = chunks(protocol, &told);
        let last = sent.last().unwrap();
        assert_eq!(last["error"]["code"], "unavailable", "{last}");
        let message = last["error"]["message"].as_str().unwrap();
        assert!(
            message.contains(&id) && message.contains("if the request had an Idempotency-Key"),
            "{message}"
        );
        assert!(
            !told.text().contains("[DONE]") && !told.text().contains("Another"),
            "{}",
            told.text()
        );
        // Its key has the reply, when that is there.
        let reply = request.send().await;
        assert!(
            deltas(&chunks(protocol, &reply))
                .concat()
                .contains("Another story.")
        );
        assert_eq!(reply.header("Toolfleet-Call-Id"), id);
    }
    assert_eq!(scene.server.log().await.len(), 2 * PROTOCOLS.len());
    scene.end().await;
}

#[tokio::test]
async fn an_odd_member_of_a_chunk_does_not_hide_its_end() {
    let rules = json!([
        {"answer": {"text": STORY, "extra": {"type": 5, "sequence_number": "x"}}, "chunk": 4, "chunk_ms": 60},
    ]);
    let scene = Scene::start(rules, "", &[]).await;
    let (protocol, path) = PROTOCOLS[0];
    let told = stream(scene.web, protocol, path, "tell").send().await;
    assert_eq!(deltas(&chunks(protocol, &told)).concat(), STORY);
    assert!(told.text().contains("data: [DONE]\n\n"), "{}", told.text());
    scene.end().await;
}

/// Answers a request with a stream that does not say why it stops.
fn answer_endless(mut stream: TcpStream) {
    let mut request = BufReader::new(stream.try_clone().unwrap());
    let mut length = 0;
    loop {
        let mut line = String::new();
        request.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        let line = line.to_ascii_lowercase();
        if let Some(told) = line.strip_prefix("content-length:") {
            length = told.trim().parse().unwrap();
        }
    }
    request.read_exact(&mut vec![0; length]).unwrap();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    for piece in STORY.split_inclusive(' ') {
        let chunk = json!({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [
            {"index": 0, "delta": {"role": "assistant", "content": piece}},
        ]});
        write!(stream, "data: {chunk}\n\n").unwrap();
        thread::sleep(Duration::from_millis(100));
    }
    stream.write_all(b"data: [DONE]\n\n").unwrap();
}

#[tokio::test]
async fn a_stream_that_ends_without_a_reason_is_whole() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().flatten().for_each(answer_endless));
    let tool = format!(
        r#"
name: endless
version: 1
description: Answers a conversation.
effect: read
executor:
  chat:
    protocol: openai_chat
    routes: [{{ name: main, url: "http://{address}/v1/chat/completions", model: m }}]
"#
    );
    let fleet = Fleet::start(Spec::with([tool])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let (protocol, path) = PROTOCOLS[0];
    let mut body = body(protocol, "endless", "tell");
    body["stream"] = json!(true);
    let told = web.post(path, body.to_string()).send().await;
    let pieces = deltas(&chunks(protocol, &told));
    assert_eq!(pieces.concat(), STORY, "{}", told.text());
    assert!(pieces.len() > 3, "{pieces:?}");
    assert!(told.text().contains("data: [DONE]\n\n"), "{}", told.text());
    gateway.drain().await;
}

#[tokio::test]
async fn a_reply_of_very_many_values_is_had_without_a_stream() {
    let rules = json!([{"answer": {"text": "Hi.", "extra": {"many": vec![0; 300_000]}}}]);
    let scene = Scene::start(rules, "", &[]).await;
    for (protocol, path) in PROTOCOLS {
        let told = stream(scene.web, protocol, path, "tell").send().await;
        let text = told.text();
        assert!(text.len() < 4_096, "{} bytes: {text:.4000}", text.len());
        assert!(text.contains("output_too_large"), "{text}");
        let id = told.header("Toolfleet-Call-Id");
        assert!(!id.is_empty() && text.contains(id), "{text}");
        let plain = body(protocol, protocol, "tell").to_string();
        let plain = scene.web.post(path, plain).send().await;
        assert_eq!((plain.status, plain.body.len() > 600_000), (200, true));
    }
    scene.end().await;
}
