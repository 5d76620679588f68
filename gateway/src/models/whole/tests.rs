//! That the vendors' own packages make the reply of these events again the proof `door` shows; here, which events there are.

use serde_json::json;

use super::{members::text, *};

fn told(protocol: ChatProtocol, reply: &Value, wants_usage: bool) -> Vec<Value> {
    let mut told = Vec::new();
    events(protocol, reply.clone(), wants_usage, &mut |kind, json| {
        let event: Value = serde_json::from_str(json).unwrap();
        let is_chunk = protocol == ChatProtocol::OpenaiChat;
        assert!(
            is_chunk || text(&event, "type") == Some(kind),
            "{kind}: {event}"
        );
        told.push(event);
    });
    told
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let kind = |event| text(event, "type").unwrap();
    events.iter().map(kind).collect()
}

#[test]
fn a_completion_is_a_chunk_with_everything_and_one_with_its_end() {
    let reply = json!({
        "id": "x", "object": "chat.completion", "created": 1, "model": "m", "unknown": 15,
        "choices": [{"index": 0, "finish_reason": "tool_calls", "logprobs": null, "message": {
            "role": "assistant", "content": null,
            "tool_calls": [{"id": "a", "type": "function"}, {"id": "b", "type": "function"}],
        }}],
        "usage": {"total_tokens": 3},
    });
    let told = |wants| told(ChatProtocol::OpenaiChat, &reply, wants);
    let events = told(true);
    assert_eq!(events.len(), 3);
    for event in &events {
        assert_eq!(event["object"], "chat.completion.chunk");
        assert_eq!(
            (&event["id"], event["unknown"].to_string()),
            (&json!("x"), "15".to_owned())
        );
    }
    let first = &events[0]["choices"][0];
    assert_eq!(first["finish_reason"], Value::Null);
    assert_eq!(
        first["delta"]["tool_calls"][1],
        json!({"index": 1, "id": "b", "type": "function"})
    );
    assert_eq!(events[1]["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(
        (&events[2]["choices"], &events[2]["usage"]),
        (&json!([]), &reply["usage"])
    );
    let without = told(false);
    assert_eq!(without.len(), 2);
    assert!(without.iter().all(|event| event.get("usage").is_none()));
}

#[test]
fn a_response_is_created_grows_and_ends_as_it_ended() {
    let reply = json!({"id": "r", "status": "incomplete", "usage": {"n": 1}, "output": [
        {"id": "rs", "type": "reasoning", "summary": []},
        {"id": "m", "type": "message", "status": "completed", "content": [
            {"type": "output_text", "text": "hello", "annotations": []}, {"type": "refusal", "refusal": "no"},
        ]},
        {"id": "f", "type": "function_call", "name": "look", "arguments": "{}", "status": "completed"},
    ]});
    let events = told(ChatProtocol::OpenaiResponses, &reply, false);
    let expected = [
        "created",
        "in_progress",
        "output_item.added",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "content_part.added",
        "refusal.delta",
        "refusal.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "incomplete",
    ];
    let expected: Vec<String> = expected
        .iter()
        .map(|kind| format!("response.{kind}"))
        .collect();
    assert_eq!(kinds(&events), expected);
    let numbers: Vec<u64> = events
        .iter()
        .map(|event| event["sequence_number"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (0..19).collect::<Vec<u64>>());
    assert_eq!(events[0]["response"]["output"], json!([]));
    assert_eq!(
        (&events[4]["item"]["content"], &events[4]["output_index"]),
        (&json!([]), &json!(1))
    );
    assert_eq!(
        (&events[6]["delta"], &events[6]["item_id"]),
        (&json!("hello"), &json!("m"))
    );
    assert_eq!(events[18]["response"], reply);
}

#[test]
fn a_message_starts_empty_and_its_input_is_text() {
    let reply = json!({"id": "m", "type": "message", "stop_reason": "tool_use", "usage": {"output_tokens": 7}, "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "hello"},
        {"type": "tool_use", "id": "t", "name": "look", "input": {"n": 1}},
        {"type": "redacted_thinking", "data": "x"},
    ]});
    let events = told(ChatProtocol::Anthropic, &reply, false);
    let block = |deltas: usize| {
        let deltas = std::iter::repeat_n("content_block_delta", deltas);
        std::iter::once("content_block_start")
            .chain(deltas)
            .chain(["content_block_stop"])
    };
    let blocks = [2, 1, 1, 0].into_iter().flat_map(block);
    let expected: Vec<&str> = std::iter::once("message_start")
        .chain(blocks)
        .chain(["message_delta", "message_stop"])
        .collect();
    assert_eq!(kinds(&events), expected);
    assert_eq!(
        (
            &events[0]["message"]["content"],
            &events[0]["message"]["stop_reason"]
        ),
        (&json!([]), &Value::Null)
    );
    assert_eq!(events[8]["content_block"]["input"], json!({}));
    assert_eq!(
        events[9]["delta"],
        json!({"type": "input_json_delta", "partial_json": "{\"n\":1}"})
    );
    assert_eq!(events[events.len() - 2]["delta"]["stop_reason"], "tool_use");
}

#[test]
fn an_odd_reply_breaks_nothing() {
    for protocol in ChatProtocol::ALL {
        for reply in [
            json!({}),
            json!({"choices": 1, "output": 1, "content": "x"}),
            json!({"choices": [1, {}], "output": [1, {"type": "message", "content": [1]}], "content": [1, {"type": "text"}]}),
        ] {
            assert!(!told(*protocol, &reply, true).is_empty());
        }
    }
}
