//! Whether a value is within the limits of what may be sent.

use serde_json::Value;

use crate::{canonical, limits::Limits};

/// Whether a value that was made is within the limits of arguments: it is read again before the call runs.
pub(super) fn is_admitted(value: &Value) -> bool {
    let limits = Limits::DEFAULT;
    let mut nodes = limits.nodes;
    has_room(value, &mut nodes, limits.depth) && canonical::to_text(value).len() <= limits.bytes
}

fn has_room(value: &Value, nodes: &mut usize, depth: usize) -> bool {
    if *nodes == 0 {
        return false;
    }
    *nodes -= 1;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        Value::Array(items) => {
            depth > 0 && items.iter().all(|item| has_room(item, nodes, depth - 1))
        }
        Value::Object(entries) => {
            depth > 0
                && entries.len() <= Limits::DEFAULT.keys
                && entries
                    .values()
                    .all(|value| has_room(value, nodes, depth - 1))
        }
    }
}
