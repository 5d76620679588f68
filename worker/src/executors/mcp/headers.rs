//! The headers that the newer revision wants beside a body: `Mcp-Name`, and `Mcp-Param-*` of arguments whose schema has
//! `x-mcp-header`. Pure.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use fleet::{outcome::ToolFailure, said, wire::code::Code};
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

/// The keyword.
const KEYWORD: &str = "x-mcp-header";

/// The most bytes of such headers in all. Servers refuse a request whose headers are larger than this or a little more, and what
/// they answer then may not say that they did nothing.
const MIRRORED_MAX: usize = 8 * 1024;

/// Whether they are larger than servers take.
pub(super) fn are_too_large(headers: &[(HeaderName, HeaderValue)]) -> bool {
    let sizes = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len());
    sizes.sum::<usize>() > MIRRORED_MAX
}

/// Nothing was sent, and nothing will be.
pub(super) fn too_large() -> ToolFailure {
    let what = said!(
        "the arguments that the MCP server wants in headers ({KEYWORD}) are larger than {MIRRORED_MAX} bytes in all",
        "MCP 服务器要求放入请求头的参数（{KEYWORD}）总共超过 {MIRRORED_MAX} 字节"
    );
    ToolFailure::new(Code::PayloadTooLarge, what)
}

/// The arguments of a tool that headers repeat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MirroredArguments(Vec<(HeaderName, String)>);

impl MirroredArguments {
    /// Of a tool's input schema.
    ///
    /// # Errors
    ///
    /// A sentence: the schema breaks the rules for them, and the protocol forbids to call such a tool.
    pub(super) fn of(schema: &Value) -> Result<Self, String> {
        let mut found = Vec::new();
        let mut names = BTreeSet::new();
        let properties = schema.get("properties").and_then(Value::as_object);
        for (property, schema) in properties.into_iter().flatten() {
            let Some(name) = schema.get(KEYWORD) else {
                continue;
            };
            let name = name.as_str().filter(|name| is_token(name));
            let name =
                name.ok_or_else(|| format!("{KEYWORD} of {property:?} is no name of a header"))?;
            if !names.insert(name.to_ascii_lowercase()) {
                return Err(format!("{KEYWORD} {name:?} stands twice"));
            }
            let kind = schema.get("type").and_then(Value::as_str);
            if !matches!(kind, Some("string" | "integer" | "boolean")) {
                return Err(format!(
                    "{KEYWORD} is for texts, integers and booleans, and {property:?} is none"
                ));
            }
            let header = HeaderName::try_from(format!("mcp-param-{}", name.to_ascii_lowercase()));
            let header = header
                .map_err(|_unfit| format!("{KEYWORD} of {property:?} is no name of a header"))?;
            found.push((header, property.clone()));
        }
        // Elsewhere it has no meaning, and the protocol has tools with it refused.
        let everywhere = count(schema);
        if everywhere > found.len() {
            return Err(format!(
                "{KEYWORD} stands elsewhere than at a top-level property"
            ));
        }
        Ok(Self(found))
    }

    /// The headers of a call with these arguments. An argument that is absent or null has none.
    pub(super) fn headers(
        &self,
        arguments: &Map<String, Value>,
    ) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        self.0.iter().filter_map(|(header, property)| {
            let text = match arguments.get(property)? {
                Value::String(text) => text.clone(),
                Value::Bool(truth) => truth.to_string(),
                Value::Number(number) => number.to_string(),
                Value::Null | Value::Array(_) | Value::Object(_) => return None,
            };
            Some((header.clone(), value(&text)))
        })
    }
}

/// A text as the value of such a header: as it is, or in base64 where a header cannot have it.
pub(super) fn value(text: &str) -> HeaderValue {
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && text.trim() == text
        && !(text.starts_with("=?base64?") && text.ends_with("?="));
    let written = if is_plain {
        text.to_owned()
    } else {
        format!("=?base64?{}?=", STANDARD.encode(text))
    };
    HeaderValue::try_from(written).expect("only visible ASCII and spaces are left")
}

fn is_token(name: &str) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (1..=100).contains(&name.len()) && name.bytes().all(token)
}

fn count(schema: &Value) -> usize {
    let mut open = vec![schema];
    let mut count = 0;
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => {
                count += usize::from(members.contains_key(KEYWORD));
                open.extend(members.values());
            }
            Value::Array(items) => open.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_header_cannot_have_is_in_base64() {
        for (text, header) in [
            ("us-east", "us-east"),
            ("", ""),
            ("a b", "a b"),
            (" a", "=?base64?IGE=?="),
            ("a\t", "=?base64?YQk=?="),
            ("é", "=?base64?w6k=?="),
            ("a\r\nX: y", "=?base64?YQ0KWDogeQ==?="),
            ("=?base64?eA==?=", "=?base64?PT9iYXNlNjQ/ZUE9PT89?="),
            ("=?base64?x", "=?base64?x"),
        ] {
            assert_eq!(value(text), header, "{text:?}");
        }
    }

    #[test]
    fn only_arguments_that_say_so_are_repeated() {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"}, "n": {"type": "integer", "x-mcp-header": "N"},
            "b": {"type": "boolean", "x-mcp-header": "Method"}, "none": {"type": "string", "x-mcp-header": "None"}, "q": {"type": "string"}}});
        let mirrored = MirroredArguments::of(&schema).unwrap();
        let arguments = json!({"region": "é", "n": 9_007_199_254_740_993_u64, "b": true, "none": null, "q": "x"});
        let mut headers: Vec<String> = mirrored
            .headers(arguments.as_object().unwrap())
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        headers.sort();
        assert_eq!(
            headers,
            [
                "mcp-param-method: true",
                "mcp-param-n: 9007199254740993",
                "mcp-param-region: =?base64?w6k=?="
            ]
        );
    }

    #[test]
    fn what_is_too_large_for_headers_is_not_sent() {
        let schema = json!({"properties": {"a": {"type": "string", "x-mcp-header": "A"}}});
        let mirrored = MirroredArguments::of(&schema).unwrap();
        for (length, is_too_large) in [(8_000, false), (8_200, true), (70_000, true)] {
            let arguments = json!({"a": "x".repeat(length)});
            let headers: Vec<_> = mirrored.headers(arguments.as_object().unwrap()).collect();
            assert_eq!(are_too_large(&headers), is_too_large, "{length}");
        }
    }

    #[test]
    fn a_tool_that_breaks_the_rules_is_not_called() {
        let of = |properties: Value| MirroredArguments::of(&json!({"properties": properties}));
        for broken in [
            json!({"a": {"type": "string", "x-mcp-header": ""}}),
            json!({"a": {"type": "string", "x-mcp-header": "a b"}}),
            json!({"a": {"type": "string", "x-mcp-header": "a\r\nb"}}),
            json!({"a": {"type": "string", "x-mcp-header": "é"}}),
            json!({"a": {"type": "string", "x-mcp-header": 7}}),
            json!({"a": {"type": "number", "x-mcp-header": "A"}}),
            json!({"a": {"type": "object", "x-mcp-header": "A"}}),
            json!({"a": {"x-mcp-header": "A"}}),
            json!({"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}),
            json!({"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}),
        ] {
            assert!(of(broken.clone()).is_err(), "{broken}");
        }
        assert_eq!(
            of(json!({"a": {"type": "string"}})),
            Ok(MirroredArguments::default())
        );
    }
}
