//! What a stream is put together to: the object of a plain answer, in every digit.

use fleet::manifest::ChatProtocol;
use serde_json::{Map, Value, json};

use super::*;

const CHAT: ChatProtocol = ChatProtocol::OpenaiChat;
const RESPONSES: ChatProtocol = ChatProtocol::OpenaiResponses;
const ANTHROPIC: ChatProtocol = ChatProtocol::Anthropic;

/// How a stream of these events ends, and its reply.
fn streamed(protocol: ChatProtocol, events: &[&str]) -> (StreamStep, Value, usize) {
    let mut assembler = of(protocol).assembler();
    let mut step = StreamStep::More;
    for event in events {
        if *event == "[DONE]" {
            assembler.end();
            break;
        }
        let chunk: Map<String, Value> = serde_json::from_str(event).unwrap();
        step = assembler.add(chunk);
        if step != StreamStep::More {
            break;
        }
    }
    let size = assembler.size();
    let reply = assembler.reply().map_or(Value::Null, Value::Object);
    (step, reply, size)
}

fn reply(protocol: ChatProtocol, events: &[&str]) -> Value {
    streamed(protocol, events).1
}

fn is_reply(protocol: ChatProtocol, events: &[&str], plain: &str) {
    let plain: Value = serde_json::from_str(plain).unwrap();
    assert_eq!(reply(protocol, events), plain, "{events:?}");
}

#[test]
fn texts_of_chat_completions_are_joined_and_all_else_is_what_came_last() {
    is_reply(
        CHAT,
        &[
            r#"{"id":"c","object":"chat.completion.chunk","created":1.50,"model":"m","obfuscation":"x","usage":null,
                "choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}]}"#,
            r#"{"id":"c","object":"chat.completion.chunk","created":1.50,"model":"m","usage":null,
                "choices":[{"index":0,"delta":{"content":"once ","reasoning_content":"I ","n":1},"finish_reason":null}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":null,"reasoning_content":"think","n":9007199254740993}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"upon"}}],"system_fingerprint":"f"}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":9007199254740993,"completion_tokens":1e2}}"#,
        ],
        r#"{"id":"c","object":"chat.completion","created":1.50,"model":"m","system_fingerprint":"f",
            "usage":{"prompt_tokens":9007199254740993,"completion_tokens":1e2},
            "choices":[{"index":0,"finish_reason":"stop","logprobs":null,
                "message":{"role":"assistant","content":"once upon","refusal":null,"reasoning_content":"I think","n":9007199254740993}}]}"#,
    );
}

#[test]
fn calls_of_tools_and_choices_are_told_apart_by_their_index() {
    is_reply(
        CHAT,
        &[
            r#"{"choices":[{"index":1,"delta":{"content":"b"}},{"index":0,"delta":{"role":"assistant","content":null}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[
                {"index":1,"id":"t1","type":"function","function":{"name":"g","arguments":""}},
                {"index":0,"id":"t0","type":"function","function":{"name":"f","arguments":""}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t0","function":{"name":"f","arguments":"{\"a\":"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"","type":"function","function":{"arguments":"{}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1.50}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[]},"finish_reason":"tool_calls"},{"index":1,"delta":{},"finish_reason":"stop"}]}"#,
        ],
        r#"{"object":"chat.completion","choices":[
            {"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":null,"tool_calls":[
                {"id":"t0","type":"function","function":{"name":"f","arguments":"{\"a\":1.50}"}},
                {"id":"t1","type":"function","function":{"name":"g","arguments":"{}"}}]}},
            {"index":1,"finish_reason":"stop","message":{"role":"assistant","content":"b"}}]}"#,
    );
    // Servers that leave the index out.
    let calls = reply(
        CHAT,
        &[
            r#"{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{"}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"}"}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"id":"b","function":{"name":"g","arguments":"1"}},{"id":"a","function":{"arguments":" "}}]}}]}"#,
            "[DONE]",
        ],
    );
    assert_eq!(
        calls["choices"][0]["message"]["tool_calls"],
        json!([
            {"id": "a", "function": {"name": "f", "arguments": "{} "}},
            {"id": "b", "function": {"name": "g", "arguments": "1"}},
        ])
    );
}

#[test]
fn lists_that_grow_by_index_and_odd_streams_of_chat_are_read() {
    let logprobs = reply(
        CHAT,
        &[
            r#"{"choices":[{"index":0,"delta":{"details":[{"index":0,"text":"a"}]},"logprobs":{"content":[{"token":"a"}],"refusal":null}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"details":[{"index":0,"text":"b"},{"index":1,"text":"c"}]},"logprobs":{"content":[{"token":"b"}]}}]}"#,
            "[DONE]",
        ],
    );
    let choice = &logprobs["choices"][0];
    assert_eq!(
        choice["logprobs"],
        json!({"content": [{"token": "a"}, {"token": "b"}], "refusal": null})
    );
    assert_eq!(
        choice["message"]["details"],
        json!([{"index": 0, "text": "ab"}, {"index": 1, "text": "c"}])
    );
    // All at once, as some servers answer.
    let whole = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}"#;
    assert_eq!(
        reply(CHAT, &[whole])["choices"][0]["message"]["content"],
        "hi"
    );
    for odd in [
        r#"{"choices":{}}"#,
        r#"{"choices":[1]}"#,
        r#"{"choices":[{"index":-1,"delta":{}}]}"#,
    ] {
        assert_eq!(streamed(CHAT, &[odd]).0, StreamStep::Unfit, "{odd}");
    }
    let many: Vec<String> = (0..300)
        .map(|index| format!(r#"{{"choices":[{{"index":{index},"delta":{{}}}}]}}"#))
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(streamed(CHAT, &many).0, StreamStep::Unfit);
}

#[test]
fn a_message_of_anthropic_is_its_blocks() {
    is_reply(
        ANTHROPIC,
        &[
            r#"{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],
                "stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":3,"cache_read_input_tokens":2,"output_tokens":1,"service_tier":"standard"}}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
            r#"{"type":"ping"}"#,
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\": 1."}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":"","citations":null}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"citations_delta","citation":{"cited_text":"x"}}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"50}"}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"once "}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"citations_delta","citation":{"cited_text":"y"}}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"upon"}}"#,
            r#"{"type":"content_block_stop","index":1}"#,
            r#"{"type":"content_block_stop","index":2}"#,
            r#"{"type":"of_a_later_day","index":9}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null,"container":{"id":"c"}},"usage":{"output_tokens":9,"input_tokens":null},"context_management":{"applied_edits":[]}}"#,
            r#"{"type":"message_stop"}"#,
        ],
        r#"{"id":"m","type":"message","role":"assistant","model":"m","stop_reason":"tool_use","stop_sequence":null,"container":{"id":"c"},
            "context_management":{"applied_edits":[]},
            "usage":{"input_tokens":3,"cache_read_input_tokens":2,"output_tokens":9,"service_tier":"standard"},
            "content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},
                {"type":"text","text":"once upon","citations":[{"cited_text":"x"},{"cited_text":"y"}]},
                {"type":"tool_use","id":"t","name":"f","input":{"a":1.50}}]}"#,
    );
}

#[test]
fn arguments_that_broke_off_are_as_in_the_vendors_own_reply() {
    let call = |json: &str| {
        let delta = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": json}});
        let told = [
            r#"{"type":"message_start","message":{"content":[]}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","input":{}}}"#,
            &delta.to_string(),
            r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"}}"#,
            r#"{"type":"message_stop"}"#,
        ];
        reply(ANTHROPIC, &told)["content"][0]["input"].clone()
    };
    assert_eq!(call(r#"{"city": "Os"#), json!({}));
    assert_eq!(call(" "), json!({}));
    assert_eq!(call("[1]"), json!([1]));
    // Nobody reads it, so there is no reply.
    assert_eq!(
        call(r#"{"$serde_json::private::RawValue": "1"}"#),
        Value::Null
    );
    assert_eq!(call(&"[".repeat(200)), json!({}));
    assert_eq!(
        call(&format!("{}{}", "[".repeat(200), "]".repeat(200))),
        Value::Null
    );
    let chat = reply(
        CHAT,
        &[
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t","function":{"name":"f","arguments":"{\"city\": \"Os"}}]},"finish_reason":"length"}]}"#,
        ],
    );
    let call = &chat["choices"][0]["message"]["tool_calls"][0];
    assert_eq!(call["function"]["arguments"], r#"{"city": "Os"#);
}

#[test]
fn the_last_event_of_responses_has_the_reply() {
    for kind in ["completed", "incomplete"] {
        let last =
            format!(r#"{{"type":"response.{kind}","response":{{"id":"r","n":1.50,"output":[]}}}}"#);
        let (step, reply, size) = streamed(
            RESPONSES,
            &[
                r#"{"type":"response.created","response":{"id":"r","output":[]}}"#,
                r#"{"type":"response.output_text.delta","delta":"once"}"#,
                &last,
            ],
        );
        assert_eq!((step, size), (StreamStep::Ended, 4));
        assert_eq!(reply.to_string(), r#"{"id":"r","n":1.50,"output":[]}"#);
    }
    let failed =
        r#"{"type":"response.failed","response":{"status":"failed","error":{"message":"words"}}}"#;
    let (step, ..) = streamed(RESPONSES, &[failed]);
    let StreamStep::Failed(words) = step else {
        panic!("{step:?}")
    };
    assert_eq!(words["error"]["message"], "words");
    assert_eq!(
        streamed(RESPONSES, &[r#"{"type":"response.completed"}"#]).0,
        StreamStep::Unfit
    );
}

#[test]
fn a_stream_without_its_mark_has_no_reply_and_an_error_ends_it() {
    let begun = r#"{"choices":[{"index":0,"delta":{"content":"a"}}]}"#;
    let finished = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    let start = r#"{"type":"message_start","message":{"content":[]}}"#;
    let stopped = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
    for (protocol, events, is_whole) in [
        (CHAT, &[begun][..], false),
        (CHAT, &[begun, finished], true),
        (CHAT, &[begun, "[DONE]"], true),
        (CHAT, &[], false),
        (ANTHROPIC, &[start, stopped], false),
        (ANTHROPIC, &[start, "[DONE]"], false),
        (ANTHROPIC, &[start, r#"{"type":"message_stop"}"#], true),
        (ANTHROPIC, &[r#"{"type":"message_stop"}"#], false),
        (RESPONSES, &["[DONE]"], false),
    ] {
        let reply = reply(protocol, events);
        assert_eq!(!reply.is_null(), is_whole, "{protocol:?} {events:?}");
    }
    for (protocol, error) in [
        (CHAT, r#"{"error":{"message":"words"}}"#),
        (CHAT, r#"{"object":"error","message":"words"}"#),
        (ANTHROPIC, r#"{"type":"error","error":{"message":"words"}}"#),
        (RESPONSES, r#"{"type":"error","message":"words"}"#),
        (RESPONSES, r#"{"error":{"message":"words"}}"#),
    ] {
        let (step, ..) = streamed(protocol, &[error, begun]);
        assert!(matches!(step, StreamStep::Failed(_)), "{error}");
    }
    for odd in [
        r#"{"type":"message_start"}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}"#,
        r#"{"type":"message_delta","delta":{}}"#,
    ] {
        assert_eq!(streamed(ANTHROPIC, &[odd]).0, StreamStep::Unfit, "{odd}");
    }
}

#[test]
fn the_size_of_what_is_held_is_known() {
    let text = "x".repeat(1_000);
    let delta = json!({"choices": [{"index": 0, "delta": {"content": text}}]}).to_string();
    let (_, _, size) = streamed(CHAT, &[delta.as_str(); 50]);
    assert!((50_000..51_000).contains(&size), "{size}");
    // What is replaced is not held.
    let last = json!({"choices": [], "usage": {"note": text}}).to_string();
    let (_, _, size) = streamed(CHAT, &[last.as_str(); 50]);
    assert!((1_000..2_000).contains(&size), "{size}");
}
