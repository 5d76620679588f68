use serde_json::{Map, Value, json};

use super::*;

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => panic!("{other} is no object"),
    }
}

const CHAT: ChatProtocol = ChatProtocol::OpenaiChat;
const RESPONSES: ChatProtocol = ChatProtocol::OpenaiResponses;
const ANTHROPIC: ChatProtocol = ChatProtocol::Anthropic;

fn chat(message: Value, finish: &str) -> Value {
    json!({"choices": [{"index": 0, "message": message, "finish_reason": finish}]})
}

fn response(status: &str, output: Value) -> Value {
    json!({"object": "response", "status": status, "output": output})
}

fn message(content: Value, stop: &str) -> Value {
    json!({"type": "message", "role": "assistant", "content": content, "stop_reason": stop})
}

fn item(part: Value) -> Value {
    json!([{"type": "reasoning", "summary": []}, {"type": "message", "content": [part]}])
}

/// Why each reply ended, and whether it says nothing.
#[test]
fn replies_are_read_in_the_words_of_their_vendor() {
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let long = json!({"object": "response", "status": "incomplete", "output": [], "incomplete_details": {"reason": "max_output_tokens"}});
    let filtered = json!({"object": "response", "status": "incomplete", "output": [], "incomplete_details": {"reason": "content_filter"}});
    for (protocol, reply, finish, is_empty) in [
        (
            CHAT,
            chat(json!({"content": "hi"}), "stop"),
            Finish::Stop,
            false,
        ),
        (
            CHAT,
            chat(json!({"content": [{"type": "text", "text": "hi"}]}), "stop"),
            Finish::Stop,
            false,
        ),
        (
            CHAT,
            chat(json!({"content": ""}), "stop"),
            Finish::Stop,
            true,
        ),
        (
            CHAT,
            chat(json!({"content": null, "tool_calls": []}), "stop"),
            Finish::Stop,
            true,
        ),
        (
            CHAT,
            chat(json!({"content": null, "reasoning_content": "hm"}), "stop"),
            Finish::Stop,
            true,
        ),
        (
            CHAT,
            chat(json!({"content": null, "audio": {"id": "a"}}), "stop"),
            Finish::Stop,
            false,
        ),
        (
            CHAT,
            chat(json!({"content": null, "refusal": "no"}), "stop"),
            Finish::Refusal,
            false,
        ),
        (
            CHAT,
            chat(json!({"content": null, "tool_calls": [call]}), "tool_calls"),
            Finish::ToolCalls,
            false,
        ),
        (
            CHAT,
            chat(json!({"content": null, "tool_calls": [call]}), "stop"),
            Finish::ToolCalls,
            false,
        ),
        (
            CHAT,
            chat(
                json!({"content": null, "function_call": {"name": "f"}}),
                "function_call",
            ),
            Finish::ToolCalls,
            false,
        ),
        (
            CHAT,
            chat(json!({"content": "h"}), "length"),
            Finish::Length,
            false,
        ),
        (
            CHAT,
            chat(json!({"content": ""}), "content_filter"),
            Finish::Refusal,
            true,
        ),
        (
            CHAT,
            chat(json!({"content": "h"}), "eos"),
            Finish::Other,
            false,
        ),
        (
            RESPONSES,
            response(
                "completed",
                item(json!({"type": "output_text", "text": "hi"})),
            ),
            Finish::Stop,
            false,
        ),
        (
            RESPONSES,
            response(
                "completed",
                item(json!({"type": "output_text", "text": ""})),
            ),
            Finish::Stop,
            true,
        ),
        (
            RESPONSES,
            response("completed", json!([])),
            Finish::Stop,
            true,
        ),
        (
            RESPONSES,
            response(
                "completed",
                item(json!({"type": "refusal", "refusal": "no"})),
            ),
            Finish::Refusal,
            false,
        ),
        (
            RESPONSES,
            response("completed", json!([{"type": "function_call", "name": "f"}])),
            Finish::ToolCalls,
            false,
        ),
        (
            RESPONSES,
            response(
                "completed",
                json!([{"type": "image_generation_call", "result": "x"}]),
            ),
            Finish::Stop,
            false,
        ),
        (RESPONSES, long, Finish::Length, true),
        (RESPONSES, filtered, Finish::Refusal, true),
        (
            RESPONSES,
            response("queued", json!([])),
            Finish::Other,
            true,
        ),
        (
            ANTHROPIC,
            message(json!([{"type": "text", "text": "hi"}]), "end_turn"),
            Finish::Stop,
            false,
        ),
        (
            ANTHROPIC,
            message(json!([{"type": "thinking", "thinking": "hm"}]), "end_turn"),
            Finish::Stop,
            true,
        ),
        (
            ANTHROPIC,
            message(json!([]), "end_turn"),
            Finish::Stop,
            true,
        ),
        (
            ANTHROPIC,
            message(
                json!([{"type": "tool_use", "id": "c", "name": "f", "input": {}}]),
                "tool_use",
            ),
            Finish::ToolCalls,
            false,
        ),
        (
            ANTHROPIC,
            message(json!([{"type": "text", "text": "h"}]), "max_tokens"),
            Finish::Length,
            false,
        ),
        (
            ANTHROPIC,
            message(json!([]), "refusal"),
            Finish::Refusal,
            true,
        ),
        (
            ANTHROPIC,
            message(json!([{"type": "text", "text": "h"}]), "pause_turn"),
            Finish::Other,
            false,
        ),
        (
            ANTHROPIC,
            message(json!([{"type": "server_tool_use"}]), "end_turn"),
            Finish::Stop,
            false,
        ),
    ] {
        let told = reply.to_string();
        let (dialect, reply) = (of(protocol), object(reply));
        assert!(dialect.answer(&reply).is_some(), "{told}");
        assert!(!dialect.has_failed(&reply), "{told}");
        assert_eq!(
            (dialect.finish(&reply), dialect.is_empty(&reply)),
            (finish, is_empty),
            "{told}"
        );
    }
}

#[test]
fn what_is_no_reply_of_the_protocol_is_none() {
    for (protocol, reply) in [
        (CHAT, json!({})),
        (CHAT, json!({"choices": []})),
        (CHAT, json!({"choices": {}})),
        (CHAT, json!({"choices": [{"delta": {"content": "hi"}}]})),
        (
            CHAT,
            message(json!([{"type": "text", "text": "hi"}]), "end_turn"),
        ),
        (RESPONSES, chat(json!({"content": "hi"}), "stop")),
        (ANTHROPIC, chat(json!({"content": "hi"}), "stop")),
        (ANTHROPIC, json!({"content": "hi"})),
    ] {
        let told = reply.to_string();
        assert!(of(protocol).answer(&object(reply)).is_none(), "{told}");
    }
}

#[test]
fn errors_inside_a_success_are_found() {
    for (protocol, reply, has_failed) in [
        (CHAT, json!({"error": {"message": "overloaded"}}), true),
        (CHAT, json!({"error": "overloaded"}), true),
        (
            CHAT,
            json!({"object": "error", "message": "overloaded"}),
            true,
        ),
        (CHAT, chat(json!({"content": "h"}), "error"), true),
        (CHAT, json!({"error": null, "choices": []}), false),
        (
            RESPONSES,
            json!({"status": "failed", "error": {"code": "server_error"}, "output": []}),
            true,
        ),
        (
            RESPONSES,
            json!({"status": "cancelled", "error": null, "output": []}),
            true,
        ),
        (
            RESPONSES,
            json!({"status": "completed", "error": null, "output": []}),
            false,
        ),
        (
            ANTHROPIC,
            json!({"type": "error", "error": {"type": "overloaded_error"}}),
            true,
        ),
        (ANTHROPIC, message(json!([]), "end_turn"), false),
    ] {
        let told = reply.to_string();
        assert_eq!(
            of(protocol).has_failed(&object(reply)),
            has_failed,
            "{told}"
        );
    }
}

#[test]
fn every_vendors_count_becomes_the_same_one() {
    let usage = |input, cached_input, cache_write, output, reasoning| TokenUsage {
        input,
        cached_input,
        cache_write,
        output,
        reasoning,
        estimated: false,
    };
    for (protocol, said, expected) in [
        (
            CHAT,
            json!({"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 60},
                   "completion_tokens_details": {"reasoning_tokens": 5}}),
            Some(usage(100, 60, 0, 20, 5)),
        ),
        (
            CHAT,
            json!({"prompt_tokens": 100, "completion_tokens": 20, "prompt_cache_hit_tokens": 40}),
            Some(usage(100, 40, 0, 20, 0)),
        ),
        (
            CHAT,
            json!({"prompt_tokens": 7, "completion_tokens": 1e2}),
            None,
        ),
        (
            CHAT,
            json!({"prompt_tokens": 7, "completion_tokens": 2_000_000_000_000_u64}),
            None,
        ),
        (CHAT, json!({"prompt_tokens": 7}), None),
        (CHAT, json!({"prompt_tokens": "7"}), None),
        (CHAT, json!(null), None),
        (
            RESPONSES,
            json!({"input_tokens": 100, "output_tokens": 20, "input_tokens_details": {"cached_tokens": 60},
                   "output_tokens_details": {"reasoning_tokens": 5}}),
            Some(usage(100, 60, 0, 20, 5)),
        ),
        (
            ANTHROPIC,
            json!({"input_tokens": 10, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 30, "output_tokens": 20}),
            Some(usage(100, 60, 30, 20, 0)),
        ),
        (
            ANTHROPIC,
            json!({"input_tokens": 10, "cache_read_input_tokens": null, "output_tokens": 20}),
            Some(usage(10, 0, 0, 20, 0)),
        ),
    ] {
        let told = said.to_string();
        let reply = object(json!({"usage": said}));
        assert_eq!(of(protocol).usage(&reply), expected, "{told}");
    }
}
