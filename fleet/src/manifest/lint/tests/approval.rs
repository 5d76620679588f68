//! Warnings about which calls wait for a yes.

use serde_json::{Value, json};

use super::{GOOD, warned};

/// What is said of a condition on this pointer.
fn about(pointer: &str, schema: &Value) -> Vec<String> {
    let when = json!([
        {"pointer": "/amount", "op": "gt", "value": 1},
        {"pointer": pointer, "op": "gt", "value": 1},
    ]);
    let told = warned(&json!({"approval": {"when": when}, "input_schema": schema}));
    let told = told
        .into_iter()
        .filter(|(path, _)| path == "/approval/when/1/pointer");
    told.map(|(_, message)| message).collect()
}

fn closed() -> Value {
    json!({"type": "object", "additionalProperties": false, "$defs": {"money": {
            "type": "object", "additionalProperties": false, "properties": {"cents/eur": {"type": "integer", "description": GOOD}}}},
        "properties": {
            "amount": {"type": "integer", "description": GOOD},
            "total": {"$ref": "#/$defs/money"},
            "more": {"type": "object", "description": GOOD, "properties": {"a": {"type": "integer", "description": GOOD}}},
            "list": {"type": "array", "description": GOOD, "items": {"type": "integer"}}}})
}

#[test]
fn a_condition_on_what_no_call_can_have_is_warned_of() {
    for (pointer, part) in [
        (
            "/amout",
            "in its place may stand /amount, /list, /more, /total",
        ),
        ("/total/cents", "in its place may stand /total/cents~1eur"),
        ("/amount/cents", "nothing can stand in that place"),
    ] {
        let told = about(pointer, &closed());
        assert_eq!(told.len(), 1, "{pointer}: {told:?}");
        assert!(
            told[0].contains(pointer) && told[0].contains(part),
            "{told:?}"
        );
    }
}

#[test]
fn a_condition_on_what_a_call_may_have_is_not() {
    for pointer in [
        "",
        "/amount",
        "/total/cents~1eur",
        "/more/b",
        "/list/0",
        "/list/x",
    ] {
        assert_eq!(about(pointer, &closed()), [""; 0], "{pointer}");
    }
    let mut open = closed();
    open.as_object_mut().unwrap().remove("additionalProperties");
    assert_eq!(about("/amout", &open), [""; 0]);
}
