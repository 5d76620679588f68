//! A message as its events: it starts, each block starts, grows once and stops, and the message stops.

use serde_json::Value;

use super::members::{around, json, list, object, quoted, taken, text};

pub(super) fn events(mut reply: Value, tell: &mut dyn FnMut(&str, &str)) {
    let mut tell = |kind: &str, members: &[(&str, &str)]| {
        let event = object(&[("type", &quoted(kind))]);
        tell(kind, &around(&event, members));
    };
    let content = list(&mut reply, "content");
    let usage = json(reply.get("usage"));
    let mut end = Vec::new();
    for name in ["stop_reason", "stop_sequence", "stop_details", "container"] {
        if let Some(value) = reply.get(name) {
            end.push((name, value.to_string()));
        }
    }
    let empty = [
        ("content", "[]"),
        ("stop_reason", "null"),
        ("stop_sequence", "null"),
    ];
    for (name, _) in empty {
        taken(&mut reply, name);
    }
    let begun = around(&reply.to_string(), &empty);
    drop(reply);
    tell("message_start", &[("message", &begun)]);
    drop(begun);
    for (index, block) in content.into_iter().enumerate() {
        let index = index.to_string();
        let (bare, deltas) = grown(block);
        tell(
            "content_block_start",
            &[("index", &index), ("content_block", &bare)],
        );
        for delta in deltas {
            tell(
                "content_block_delta",
                &[("index", &index), ("delta", &delta)],
            );
        }
        tell("content_block_stop", &[("index", &index)]);
    }
    let end: Vec<(&str, &str)> = end
        .iter()
        .map(|(name, json)| (*name, json.as_str()))
        .collect();
    tell(
        "message_delta",
        &[("delta", &object(&end)), ("usage", &usage)],
    );
    tell("message_stop", &[]);
}

/// A block as it starts, and what it says then.
fn grown(mut block: Value) -> (String, Vec<String>) {
    let delta =
        |kind: &str, field: &str, json: &str| object(&[("type", &quoted(kind)), (field, json)]);
    match text(&block, "type") {
        Some("text") => {
            let said = json(taken(&mut block, "text").as_ref());
            let mut deltas = vec![delta("text_delta", "text", &said)];
            let citations = block.get("citations").and_then(Value::as_array);
            let mut empty = vec![("text", "\"\"")];
            if citations.is_some_and(|citations| !citations.is_empty()) {
                let citations = list(&mut block, "citations").into_iter();
                deltas.extend(
                    citations.map(|one| delta("citations_delta", "citation", &one.to_string())),
                );
                empty.push(("citations", "[]"));
            }
            (around(&block.to_string(), &empty), deltas)
        }
        Some("thinking") => {
            let thinking = json(taken(&mut block, "thinking").as_ref());
            let signature = json(taken(&mut block, "signature").as_ref());
            let empty = [("thinking", "\"\""), ("signature", "\"\"")];
            let deltas = vec![
                delta("thinking_delta", "thinking", &thinking),
                delta("signature_delta", "signature", &signature),
            ];
            (around(&block.to_string(), &empty), deltas)
        }
        Some("tool_use" | "server_tool_use" | "mcp_tool_use") => {
            let input = taken(&mut block, "input").map(|input| input.to_string());
            let input = quoted(&input.unwrap_or_default());
            let bare = around(&block.to_string(), &[("input", "{}")]);
            (
                bare,
                vec![delta("input_json_delta", "partial_json", &input)],
            )
        }
        _other => (block.to_string(), Vec::new()),
    }
}
