//! A value as one line of YAML, as a person would write it: quotes only where they are needed.

use serde_json::Value;

/// Writes a value.
pub(super) fn flow(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) if is_plain(text) => text.clone(),
        Value::String(text) => format!("'{}'", text.replace('\'', "''")),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(flow).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(entries) => {
            let entry = |(name, value): (&String, &Value)| format!("{name}: {}", flow(value));
            let entries: Vec<String> = entries.iter().map(entry).collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

/// Whether YAML reads it as a text without quotes, in a list too.
fn is_plain(text: &str) -> bool {
    let is_other = || {
        text.parse::<f64>().is_ok()
            || ["true", "false", "null", "~"].contains(&text.to_lowercase().as_str())
    };
    let first = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'/' || byte == b'_';
    text.bytes().next().is_some_and(first)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.contains(['[', ']', '{', '}', ',', '\'', '"', '\n', '\t'])
        && !is_other()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let value = json!({
            "a": ["look", "up", "1", 1, 1.5, "true", true, null, "null", "https://a.example/{city}", "it's", "a: b", "- x", ""],
            "b": {"c": "30s", "d": "/card/number", "e": "a #b", "f": "say so."},
        });
        let written = flow(&value);
        assert_eq!(
            super::super::document::read(&written).unwrap(),
            value,
            "{written}"
        );
        assert_eq!(
            flow(&json!({"process": {"command": ["python3", "tool.py"]}})),
            "{process: {command: [python3, tool.py]}}"
        );
    }
}
