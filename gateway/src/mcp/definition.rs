//! A tool as a client is shown it: the fleet's definition, and what MCP adds to it.

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::{
    get, key_argument,
    mirrored::{IN_HEADER, unmirrored},
};

/// A tool that is listed.
#[derive(Debug, Clone)]
pub(super) struct McpTool {
    pub(super) name: String,
    pub(super) definition: Box<RawValue>,
}

impl McpTool {
    /// Of a definition in the fleet's format `mcp`; `None` where it is none that this release can read.
    pub(super) fn of(definition: &RawValue) -> Option<Self> {
        #[derive(Deserialize)]
        struct Head {
            name: String,
            #[serde(default)]
            annotations: Annotations,
        }
        #[derive(Default, Deserialize)]
        struct Annotations {
            #[serde(default, rename = "readOnlyHint")]
            read_only: bool,
        }

        let head: Head = serde_json::from_str(definition.get()).ok()?;
        if head.annotations.read_only && !definition.get().contains(IN_HEADER) {
            return Some(Self {
                name: head.name,
                definition: definition.to_owned(),
            });
        }
        let mut changed: Value = serde_json::from_str(definition.get()).ok()?;
        let schema = changed.get_mut("inputSchema")?;
        unmirrored(schema);
        if !head.annotations.read_only {
            key_argument::show(schema);
        }
        Some(Self {
            name: head.name,
            definition: serde_json::value::to_raw_value(&changed).ok()?,
        })
    }

    /// The tool that the gateway answers itself.
    pub(super) fn get() -> Self {
        let definition = json!({
            "name": get::NAME,
            "description": "Waits for a call that is still at work, and answers as its tool would have. Use it with the call_id that \
                            such an answer names, instead of calling the tool again.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "call_id": {"type": "string", "description": "The call, as an earlier answer named it"},
                    "wait_s": {
                        "type": "integer", "minimum": 0, "maximum": get::WAIT_MAX_S,
                        "description": "How many seconds to wait for it at most; 25 if left out"
                    }
                },
                "required": ["call_id"],
                "additionalProperties": false
            },
            "annotations": {
                "readOnlyHint": true, "idempotentHint": true, "destructiveHint": false, "openWorldHint": false
            },
        });
        Self {
            name: get::NAME.to_owned(),
            definition: serde_json::value::to_raw_value(&definition)
                .expect("it has only string keys"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(definition: &Value) -> Value {
        let definition = serde_json::value::to_raw_value(definition).unwrap();
        let shown = McpTool::of(&definition).unwrap();
        serde_json::from_str(shown.definition.get()).unwrap()
    }

    #[test]
    fn a_tool_that_writes_shows_the_key_and_one_that_reads_does_not() {
        let read = json!({"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}});
        assert_eq!(of(&read), read);
        for annotations in [json!({"readOnlyHint": false}), json!({})] {
            let write = json!({"name": "charge", "inputSchema": {"type": "object"}, "annotations": annotations});
            let shown = of(&write);
            assert!(
                shown["inputSchema"]["properties"]["idempotency_key"].is_object(),
                "{shown}"
            );
        }
    }

    #[test]
    fn no_argument_is_to_be_repeated_in_a_header() {
        let mirrored = json!({
            "name": "look",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "a": {"type": "string", "x-mcp-header": "A", "default": {"x-mcp-header": 1}},
                    "x-mcp-header": {"type": "string"},
                }
            },
            "annotations": {"readOnlyHint": true},
        });
        let properties = of(&mirrored)["inputSchema"]["properties"].clone();
        assert_eq!(
            properties["a"],
            json!({"type": "string", "default": {"x-mcp-header": 1}})
        );
        assert!(properties["x-mcp-header"].is_object());
    }

    #[test]
    fn numbers_of_a_definition_keep_their_digits() {
        let text = r#"{"name":"c","inputSchema":{"type":"object","properties":{"n":{"maximum":9007199254740993,"minimum":1.10}}}}"#;
        let raw = RawValue::from_string(text.to_owned()).unwrap();
        let shown = McpTool::of(&raw).unwrap();
        let shown = shown.definition.get();
        assert!(
            shown.contains("9007199254740993") && shown.contains("1.10"),
            "{shown}"
        );
    }
}
