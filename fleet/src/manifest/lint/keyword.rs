//! The keywords of a schema.

use serde_json::Value;

/// Whether a schema has this keyword.
pub(super) fn says(schema: &Value, keyword: &str) -> bool {
    schema.get(keyword).is_some()
}
