use fleet::manifest::ChatProtocol;
use serde_json::json;

use super::*;
use crate::executors::chat::dialect;

fn route(changes: Value) -> ChatRoute {
    let mut route = json!({"name": "a", "url": "https://x/", "model": "m"});
    for (field, value) in changes.as_object().unwrap() {
        route[field] = value.clone();
    }
    serde_json::from_value(route).unwrap()
}

fn needs(protocol: ChatProtocol, request: Value) -> RouteNeeds {
    RouteNeeds::of(dialect::of(protocol), request.as_object().unwrap())
}

#[test]
fn routes_are_passed_over_for_what_they_lack_and_for_their_size() {
    use ChatProtocol::{Anthropic, OpenaiChat, OpenaiResponses};
    let lacks = |lack: &str| json!({"lacks": [lack]});
    let text = json!({"messages": [{"role": "user", "content": "abcd"}]});
    let with = |member: &str, value: Value| {
        let mut request = text.clone();
        request[member] = value;
        request
    };
    let content = |part: Value| json!({"messages": [{"role": "user", "content": [part]}]});
    for (protocol, request, of_route, expected) in [
        (
            OpenaiChat,
            text.clone(),
            json!({"lacks": ["tools", "images", "schema"]}),
            None,
        ),
        (
            OpenaiChat,
            with("tools", json!([{}])),
            lacks("tools"),
            Some(Skipped::LacksTools),
        ),
        (
            OpenaiChat,
            with("functions", json!([{}])),
            lacks("tools"),
            Some(Skipped::LacksTools),
        ),
        (OpenaiChat, with("tools", json!([])), lacks("tools"), None),
        (
            OpenaiChat,
            with("tools", json!([{}])),
            lacks("images"),
            None,
        ),
        (
            OpenaiChat,
            content(json!({"type": "image_url"})),
            lacks("images"),
            Some(Skipped::LacksImages),
        ),
        (
            OpenaiChat,
            content(json!({"type": "text", "text": "image_url"})),
            lacks("images"),
            None,
        ),
        (
            OpenaiChat,
            with("response_format", json!({"type": "json_schema"})),
            lacks("schema"),
            Some(Skipped::LacksSchema),
        ),
        (
            OpenaiChat,
            with("response_format", json!({"type": "json_object"})),
            lacks("schema"),
            None,
        ),
        (
            OpenaiResponses,
            json!({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}),
            lacks("images"),
            Some(Skipped::LacksImages),
        ),
        (
            OpenaiResponses,
            json!({"input": [{"type": "function_call_output", "output": [{"type": "input_image"}]}]}),
            lacks("images"),
            Some(Skipped::LacksImages),
        ),
        (
            OpenaiResponses,
            json!({"input": "hi"}),
            lacks("images"),
            None,
        ),
        (
            OpenaiResponses,
            json!({"input": "hi", "text": {"format": {"type": "json_schema"}}}),
            lacks("schema"),
            Some(Skipped::LacksSchema),
        ),
        (
            Anthropic,
            content(json!({"type": "tool_result", "content": [{"type": "image"}]})),
            lacks("images"),
            Some(Skipped::LacksImages),
        ),
        (
            Anthropic,
            content(json!({"type": "tool_use", "input": {"type": "image"}})),
            lacks("images"),
            None,
        ),
        (
            Anthropic,
            with("output_config", json!({"format": {"type": "json_schema"}})),
            lacks("schema"),
            Some(Skipped::LacksSchema),
        ),
        // "user" and "abcd" are two tokens.
        (OpenaiChat, text.clone(), json!({"context_tokens": 2}), None),
        (
            OpenaiChat,
            text.clone(),
            json!({"context_tokens": 1}),
            Some(Skipped::TooLong),
        ),
        (
            OpenaiChat,
            with("max_tokens", json!(7)),
            json!({"context_tokens": 9}),
            None,
        ),
        (
            OpenaiChat,
            with("max_tokens", json!(8)),
            json!({"context_tokens": 9}),
            Some(Skipped::TooLong),
        ),
        (
            Anthropic,
            with("max_tokens", json!(u64::MAX)),
            json!({"context_tokens": 9}),
            Some(Skipped::TooLong),
        ),
    ] {
        let needs = needs(protocol, request.clone());
        let why = skipped(&route(of_route.clone()), &needs);
        assert_eq!(why, expected, "{protocol} {request} {of_route}");
    }
}

#[test]
fn only_a_route_with_more_room_takes_what_was_too_long() {
    let sized = |tokens: Option<u64>| match tokens {
        Some(tokens) => route(json!({"context_tokens": tokens})),
        None => route(json!({})),
    };
    for (room, than, larger) in [
        (Some(9), Some(8), true),
        (Some(8), Some(8), false),
        (None, Some(8), true),
        (Some(9), None, false),
        (None, None, false),
    ] {
        assert_eq!(
            is_larger(&sized(room), &sized(than)),
            larger,
            "{room:?} {than:?}"
        );
    }
}
