//! JSON pointers, taken apart and put together.

use serde_json::Value;

/// The place of a part.
pub(crate) fn under(at: &str, segment: &str) -> String {
    format!("{at}/{}", segment.replace('~', "~0").replace('/', "~1"))
}

/// The place of the whole, and the name of the part in it; `None` for the root.
pub(crate) fn split(at: &str) -> Option<(&str, String)> {
    let (parent, segment) = at.rsplit_once('/')?;
    Some((parent, segment.replace("~1", "/").replace("~0", "~")))
}

/// Whether one place is the other or holds it.
pub(crate) fn overlap(one: &str, other: &str) -> bool {
    let holds = |outer: &str, inner: &str| {
        inner
            .strip_prefix(outer)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    holds(one, other) || holds(other, one)
}

/// Every value with its place, the root first.
pub(crate) fn places(value: &Value) -> Vec<(String, &Value)> {
    fn walk<'a>(at: String, value: &'a Value, found: &mut Vec<(String, &'a Value)>) {
        found.push((at.clone(), value));
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    walk(under(&at, &index.to_string()), item, found);
                }
            }
            Value::Object(entries) => {
                for (name, part) in entries {
                    walk(under(&at, name), part, found);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut found = Vec::new();
    walk(String::new(), value, &mut found);
    found
}
