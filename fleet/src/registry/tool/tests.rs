use serde_json::json;

use super::*;

fn tool(output_schema: Value) -> Tool {
    let mut manifest = json!({
        "name": "t", "version": 1, "description": "d", "effect": "read", "input_schema": {"type": "object"},
        "executor": {"http": {"method": "GET", "url": "http://a/"}},
    });
    manifest["output_schema"] = output_schema;
    if manifest["output_schema"].is_null() {
        manifest.as_object_mut().unwrap().remove("output_schema");
    }
    Tool::read(&manifest.to_string()).unwrap()
}

fn problem(tool: &Tool, answer: &str) -> Option<String> {
    let answer = RawValue::from_string(answer.to_owned()).unwrap();
    let failure = tool.answer_problem(&answer)?;
    assert_eq!(failure.code, Code::OutputInvalid);
    let told = failure.message.english();
    assert!(told.len() <= ToolFailure::MESSAGE_MAX);
    Some(told.to_owned())
}

#[test]
fn an_answer_is_held_against_the_output_schema() {
    let exact = tool(json!({
        "type": "object", "required": ["id"],
        "properties": {"id": {"type": "integer", "maximum": 9_007_199_254_740_992_u64}, "kind": {"enum": ["card", "cash"]}},
    }));
    assert_eq!(problem(&exact, r#"{"id": 9007199254740992}"#), None);
    assert!(problem(&exact, r#"{"id": 9007199254740993}"#).is_some());
    assert!(problem(&exact, r#"{"id": 1, "id": 2}"#).is_some());
    assert!(
        problem(&exact, "null")
            .unwrap()
            .contains("the answer: expected object")
    );
    // Any kind of value can be promised; without a schema every answer is accepted.
    assert_eq!(problem(&tool(json!({"type": "array"})), "[]"), None);
    assert_eq!(problem(&tool(json!(null)), r#"{"id": 1, "id": 2}"#), None);
}

#[test]
fn what_is_wrong_with_an_answer_is_told_without_the_answer() {
    let promised = tool(json!({
        "properties": {
            "a": {"type": "integer"}, "b": {"enum": ["4111-1112"]}, "c": {"type": "string"}, "d": {"minimum": 5},
        },
        "propertyNames": {"maxLength": 3},
    }));
    let answer =
        r#"{"a": "4111-1111", "b": "4111-1111", "c": 41111111, "d": -4111.5, "4111-1111": 1}"#;
    let told = problem(&promised, answer).unwrap();
    for value in ["4111-1111", "41111111", "4111.5", "nearest"] {
        assert!(!told.contains(value), "{told}");
    }
    assert!(
        told.contains("/a: expected integer, found string"),
        "{told}"
    );
}

#[test]
fn a_large_answer_that_is_wrong_everywhere_is_told_shortly() {
    let promised = tool(json!({"type": "array", "items": {"type": "string"}}));
    let answer = format!("[{}1]", "1,".repeat(500_000));
    assert!(
        problem(&promised, &answer)
            .unwrap()
            .contains("found integer")
    );
}
