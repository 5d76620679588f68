//! What a schema says of itself.

use serde_json::Value;

/// Whether a schema says this of itself.
pub(super) fn says(schema: &Value, keyword: &str) -> bool {
    schema.get(keyword).is_some()
}
