//! What a manifest of a chat tool need not say. It is filled in as the file is read, so what is stored says it.

use serde_json::{Map, Value, json};

/// Fills in the fields that have other defaults for a model than for other tools.
pub(super) fn fill_in(manifest: &mut Value) {
    let Some(manifest) = manifest.as_object_mut() else {
        return;
    };
    let protocol = manifest
        .get("executor")
        .and_then(|executor| executor.get("chat"))
        .filter(|chat| chat.is_object())
        .map(|chat| chat.get("protocol").and_then(Value::as_str));
    let Some(protocol) = protocol else { return };
    let schema = input_schema(protocol);
    // A model is slow, its arguments are long, and almost right is another request.
    for (field, value) in [
        ("timeout", Some(json!("120s"))),
        ("deadline", Some(json!("10m"))),
        ("coercion", Some(json!("off"))),
        ("output_limit", Some(json!("4MiB"))),
        ("input_schema", schema),
    ] {
        if let (Some(value), false) = (value, manifest.contains_key(field)) {
            manifest.insert(field.to_owned(), value);
        }
    }
}

/// An open object that demands only the messages. A protocol that is none is refused by its own name.
fn input_schema(protocol: Option<&str>) -> Option<Value> {
    let (messages, schema) = match protocol? {
        "openai_responses" => (
            "input",
            json!({
                "description": "A text, or the items so far, the newest last, in the vendor's own form",
                "type": ["string", "array"], "minLength": 1, "minItems": 1,
                "items": { "type": "object", "properties": { "type": { "description": "What kind of item it is", "type": "string" } } },
            }),
        ),
        _messages => (
            "messages",
            json!({
                "description": "The messages so far, the newest last, in the vendor's own form",
                "type": "array", "minItems": 1,
                "items": { "type": "object", "properties": { "role": { "description": "Who says it", "type": "string" } } },
            }),
        ),
    };
    let mut properties = Map::new();
    properties.insert(messages.to_owned(), schema);
    Some(json!({"type": "object", "properties": properties, "required": [messages]}))
}
