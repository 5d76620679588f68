//! Properties that look like a key.

use super::*;

#[test]
fn a_key_that_a_model_fills_in_is_warned_of_and_one_that_the_fleet_fills_in_is_not() {
    let tool = |name: &str, effect: &str, argument: Option<&str>| {
        let mut changes = json!({"effect": effect, "input_schema": {
            "type": "object", "additionalProperties": false,
            "properties": {name: {"type": "string", "minLength": 1, "description": GOOD}},
        }});
        if let Some(argument) = argument {
            changes["idempotency"] = json!({"argument": argument});
        }
        warned(&changes)
    };
    for name in [
        "tool_call_id",
        "toolCallId",
        "idempotency_key",
        "client-token",
    ] {
        let at = format!("/input_schema/properties/{name}");
        let found = tool(name, "once", None);
        assert!(
            found
                .iter()
                .any(|(path, message)| *path == at && message.contains("makes up another")),
            "{name}: {found:?}"
        );
        assert!(
            !tool(name, "read", None)
                .iter()
                .any(|(_, message)| message.contains("makes up another")),
            "{name}: a read may be asked again"
        );
    }
    assert_eq!(tool("idempotency_key", "once", Some("idempotency_key")), []);
    assert_eq!(tool("order_id", "once", None), []);
}
