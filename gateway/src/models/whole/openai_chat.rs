//! A chat completion as its chunks: one with what every choice says, one with why it stopped, and its tokens where they are wanted.

use serde_json::{Value, json};

use super::members::{around, list, taken};

pub(super) fn events(mut reply: Value, wants_usage: bool, tell: &mut dyn FnMut(&str, &str)) {
    let choices = list(&mut reply, "choices");
    let usage = taken(&mut reply, "usage").filter(|usage| !usage.is_null());
    reply["object"] = json!("chat.completion.chunk");
    let shared = reply.to_string();
    drop(reply);
    let mut chunk = |choices: Vec<Value>, usage: Option<Value>| {
        let choices = Value::Array(choices).to_string();
        let usage = usage.map(|usage| usage.to_string());
        let usage = usage.iter().map(|usage| ("usage", usage.as_str()));
        let members: Vec<(&str, &str)> = std::iter::once(("choices", choices.as_str()))
            .chain(usage)
            .collect();
        // Chunks of a completion have no word for what they are.
        tell("", &around(&shared, &members));
    };
    let stops = choices.iter().map(stopped).collect();
    chunk(choices.into_iter().map(said).collect(), None);
    chunk(stops, None);
    if let Some(usage) = usage.filter(|_| wants_usage) {
        chunk(Vec::new(), Some(usage));
    }
}

/// A choice with all that it says.
fn said(mut choice: Value) -> Value {
    let Some(members) = choice.as_object_mut() else {
        return choice;
    };
    let mut delta = members.remove("message").unwrap_or_else(|| json!({}));
    // By these the pieces of a call are found again.
    let calls = delta.get_mut("tool_calls").and_then(Value::as_array_mut);
    for (index, call) in calls.into_iter().flatten().enumerate() {
        if let Some(call) = call.as_object_mut() {
            call.insert("index".to_owned(), json!(index));
        }
    }
    members.insert("delta".to_owned(), delta);
    members.insert("finish_reason".to_owned(), Value::Null);
    choice
}

/// Why it stopped.
fn stopped(choice: &Value) -> Value {
    json!({
        "index": choice.get("index").cloned().unwrap_or_else(|| json!(0)),
        "delta": {},
        "logprobs": null,
        "finish_reason": choice.get("finish_reason"),
    })
}
