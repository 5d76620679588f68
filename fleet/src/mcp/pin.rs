//! The hash of what a server says of a tool: a call is made only where the server still says what it said when the tool was
//! applied.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::canonical;

/// The fields of a definition that are pinned, as MCP names them. Others, such as `_meta` and icons, say nothing to a model.
pub const PINNED: [&str; 6] = [
    "name",
    "title",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
];

/// The fields that only describe.
const WORDS: [&str; 2] = ["title", "description"];

/// The hashes of a definition, each `sha256:` and 64 digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// Of all that is pinned.
    pub whole: String,
    /// Of that without title and description.
    pub shape: String,
}

impl Pin {
    /// Of a definition as `tools/list` has it. A field that is absent and one that is null are not the same.
    pub fn of(definition: &Value) -> Self {
        let mut pinned: Map<String, Value> = PINNED
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), definition.get(name)?.clone())))
            .collect();
        let whole = hash(&pinned);
        for word in WORDS {
            pinned.remove(word);
        }
        let shape = hash(&pinned);
        Self { whole, shape }
    }
}

fn hash(pinned: &Map<String, Value>) -> String {
    let digest = canonical::hash(&Value::Object(pinned.clone()));
    digest.iter().fold("sha256:".to_owned(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whatever_a_model_or_the_door_would_see_moves_the_pin() {
        let tool = json!({
            "name": "t", "title": "T", "description": "d", "inputSchema": {"type": "object"},
            "outputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}
        });
        let pin = Pin::of(&tool);
        assert!(pin.whole.starts_with("sha256:") && pin.whole.len() == 71);
        assert_ne!(pin.whole, pin.shape);
        for (field, is_shape) in [
            ("name", true),
            ("title", false),
            ("description", false),
            ("inputSchema", true),
            ("outputSchema", true),
            ("annotations", true),
        ] {
            for other in [json!("x"), Value::Null] {
                let mut changed = tool.clone();
                changed[field] = other;
                let changed = Pin::of(&changed);
                assert_ne!(changed.whole, pin.whole, "{field}");
                assert_eq!(changed.shape != pin.shape, is_shape, "{field}");
            }
            let mut without = tool.clone();
            without.as_object_mut().unwrap().remove(field);
            assert_ne!(Pin::of(&without).whole, pin.whole, "{field}");
        }
    }

    #[test]
    fn order_and_what_is_not_pinned_do_not_move_it() {
        let one = json!({"name": "t", "inputSchema": {"a": 1, "b": 2}});
        let other: Value = serde_json::from_str(
            r#"{"_meta": {"x": 1}, "inputSchema": {"b": 2, "a": 1}, "icons": [], "name": "t"}"#,
        )
        .unwrap();
        assert_eq!(Pin::of(&one), Pin::of(&other));
    }
}
