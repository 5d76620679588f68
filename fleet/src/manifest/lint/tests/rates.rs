//! Warnings about limits of starts.

use serde_json::{Value, json};

use super::{GOOD, warned};

#[test]
fn a_limit_for_each_value_of_a_free_text_is_warned_of() {
    let by = |property: Value| {
        let changes = json!({
            "rate_limit": {"calls": 5, "per": "1s", "by": "/account/id"},
            "input_schema": {"type": "object", "required": ["account"], "additionalProperties": false, "properties": {"account": {
                "type": "object", "required": ["id"], "additionalProperties": false, "description": "The account to look at",
                "properties": {"id": property}}}},
        });
        let warnings = warned(&changes).into_iter();
        let told = warnings.filter(|(path, _)| path == "/rate_limit/by");
        told.map(|(_, message)| message).collect::<Vec<_>>()
    };
    let told = by(json!({"type": "string", "minLength": 1, "description": GOOD}));
    assert!(
        told[0].contains("give it an enum, a pattern or a format, or write tenant"),
        "{told:?}"
    );
    for narrow in [
        json!({"type": "string", "pattern": "^A-[0-9]+$", "description": GOOD}),
        json!({"enum": ["a", "b"], "type": "string", "description": GOOD}),
        json!({"type": "string", "format": "uuid", "description": GOOD}),
        json!({"type": "integer", "description": GOOD}),
    ] {
        assert_eq!(by(narrow.clone()), [""; 0], "{narrow}");
    }
}
