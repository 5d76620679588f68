//! The request of a call: the manifest's template, filled with the arguments. Pure: the secrets are arguments.

use fleet::{
    manifest::HttpSpec,
    outcome::ToolFailure,
    secrets::Secrets,
    wire::{code::Code, message::Message},
};
use reqwest::{
    Method, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use secrecy::SecretString;
use serde_json::{Map, Value};

use super::{
    address,
    part::{Part, defect, header_name, placeholder},
};

/// The longest URL that is sent. Servers are asked to take 8,000 bytes; the library stops at 65,534.
const URL_MAX: usize = 32 * 1024;

/// A request without the headers that every attempt carries.
pub(super) struct HttpRequest {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Vec<u8>>,
}

/// The manifest's request with its secrets resolved.
pub(super) struct Template {
    method: Method,
    url: String,
    headers: Vec<(HeaderName, Part)>,
    query: Vec<(String, Part)>,
    body: Option<Value>,
    accept: HeaderValue,
}

impl Template {
    /// Reads the manifest's request.
    ///
    /// # Errors
    ///
    /// `tool_gone` when the manifest is wrong, `unavailable` when this worker lacks a secret.
    pub(super) fn new(spec: &HttpSpec, secrets: &Secrets) -> Result<Self, ToolFailure> {
        let header =
            |(name, text): (&String, &String)| Ok((header_name(name)?, Part::read(text, secrets)?));
        let query =
            |(name, text): (&String, &String)| Ok((name.clone(), Part::read(text, secrets)?));
        Ok(Self {
            method: method(&spec.method)?,
            url: spec.url.clone(),
            headers: spec
                .headers
                .iter()
                .map(header)
                .collect::<Result<_, ToolFailure>>()?,
            query: spec
                .query
                .iter()
                .map(query)
                .collect::<Result<_, ToolFailure>>()?,
            body: spec.body.clone(),
            accept: HeaderValue::from_static(if spec.stream {
                "text/event-stream, application/json"
            } else {
                "application/json"
            }),
        })
    }

    /// Fills in the arguments.
    ///
    /// # Errors
    ///
    /// `tool_error` when an argument may not stand where the manifest puts it.
    pub(super) fn render(
        &self,
        arguments: &Map<String, Value>,
    ) -> Result<HttpRequest, ToolFailure> {
        let mut url = address::render(&self.url, arguments)?;
        for (name, part) in &self.query {
            for text in part.query_texts(arguments)? {
                url.query_pairs_mut().append_pair(name, &text);
            }
        }
        if url.as_str().len() > URL_MAX {
            let message = Message::fixed(
                "the arguments make the URL too long: use shorter ones",
                "这些参数使 URL 过长：请用更短的参数",
            );
            return Err(ToolFailure::new(Code::ToolError, message));
        }
        let body = self.body(arguments);
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, self.accept.clone());
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        for (name, part) in &self.headers {
            if let Some(value) = part.header_value(name, arguments)? {
                headers.insert(name, value);
            }
        }
        Ok(HttpRequest {
            method: self.method.clone(),
            url,
            headers,
            body,
        })
    }

    /// The secrets in this request. They are masked in messages, for a server may repeat them.
    pub(super) fn secrets(&self) -> Vec<SecretString> {
        let parts = self
            .headers
            .iter()
            .map(|(_, part)| part)
            .chain(self.query.iter().map(|(_, part)| part));
        parts
            .filter_map(|part| match part {
                Part::Secret(secret) => Some(secret.clone()),
                Part::Text(_) | Part::Argument(_) => None,
            })
            .collect()
    }

    fn body(&self, arguments: &Map<String, Value>) -> Option<Vec<u8>> {
        let body = match &self.body {
            Some(template) => Some(fill(template, arguments)?),
            None if matches!(self.method, Method::POST | Method::PUT | Method::PATCH) => {
                Some(Value::Object(arguments.clone()))
            }
            None => None,
        };
        // Numbers are kept as decimal text, so they are sent exactly as they came.
        body.map(|value| value.to_string().into_bytes())
    }
}

fn method(name: &str) -> Result<Method, ToolFailure> {
    match name {
        "GET" => Ok(Method::GET),
        "POST" => Ok(Method::POST),
        "PUT" => Ok(Method::PUT),
        "PATCH" => Ok(Method::PATCH),
        "DELETE" => Ok(Method::DELETE),
        _ => Err(defect(Message::fixed(
            "the method in the manifest must be GET, POST, PUT, PATCH or DELETE",
            "清单中的 method 必须是 GET、POST、PUT、PATCH 或 DELETE",
        ))),
    }
}

/// The body with its placeholders replaced. A member or item whose argument is absent is left out.
///
/// Placeholders inside an argument are not replaced: `{x}` and `secret://X` in an argument's text stay as they are.
fn fill(template: &Value, arguments: &Map<String, Value>) -> Option<Value> {
    match template {
        Value::String(text) => match placeholder(text) {
            Some(name) => arguments.get(name).cloned(),
            None => Some(template.clone()),
        },
        Value::Array(items) => Some(
            items
                .iter()
                .filter_map(|item| fill(item, arguments))
                .collect(),
        ),
        Value::Object(members) => {
            let filled = members
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), fill(value, arguments)?)));
            Some(Value::Object(filled.collect()))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(template.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(spec: Value) -> HttpSpec {
        serde_json::from_value(spec).unwrap()
    }

    fn render(manifest: Value, arguments: Value) -> Result<HttpRequest, ToolFailure> {
        Template::new(&spec(manifest), &Secrets::new(None))?.render(arguments.as_object().unwrap())
    }

    fn body(manifest: Value, arguments: &str) -> Option<String> {
        let request = render(manifest, serde_json::from_str(arguments).unwrap()).unwrap();
        request.body.map(|body| String::from_utf8(body).unwrap())
    }

    #[test]
    fn a_body_takes_values_and_keeps_every_digit() {
        let template = json!({"method": "POST", "url": "http://h/", "body":
            {"a": "{n}", "b": ["{x}", "{gone}", 1], "c": {"d": "{gone}"}, "e": "{gone}", "f": "has {n}", "g": null}});
        assert_eq!(
            body(template, r#"{"n": 9007199254740993, "x": {"y": 1.10}}"#).unwrap(),
            r#"{"a":9007199254740993,"b":[{"y":1.10},1],"c":{},"f":"has {n}","g":null}"#
        );
    }

    #[test]
    fn without_a_body_the_arguments_are_the_body() {
        for method in ["POST", "PUT", "PATCH"] {
            let sent = body(
                json!({"method": method, "url": "http://h/"}),
                r#"{"n":12345678901234567890123}"#,
            );
            assert_eq!(sent.as_deref(), Some(r#"{"n":12345678901234567890123}"#));
        }
        for method in ["GET", "DELETE"] {
            assert_eq!(
                body(json!({"method": method, "url": "http://h/"}), r#"{"n":1}"#),
                None
            );
        }
    }

    #[test]
    fn an_argument_is_never_read_as_a_template_or_a_reference() {
        let manifest = json!({"method": "POST", "url": "http://h/{a}", "headers": {"x-a": "{a}"},
            "query": {"a": "{a}"}, "body": {"a": "{a}"}});
        for text in ["secret://API_KEY", "{b}"] {
            let request = render(manifest.clone(), json!({"a": text, "b": "other"})).unwrap();
            assert_eq!(request.headers["x-a"], text);
            assert_eq!(
                request.body.unwrap(),
                json!({"a": text}).to_string().into_bytes()
            );
            assert_eq!(request.url.query_pairs().next().unwrap().1, text);
        }
    }

    #[test]
    fn the_query_repeats_lists_and_leaves_out_what_is_absent() {
        let manifest = json!({"method": "GET", "url": "http://h/p{?z}", "query":
            {"a": "{a}", "b": "{b}", "c": "fixed&x=1", "d": "{gone}", "e": "{null}"}});
        let request = render(
            manifest,
            json!({"a": [1, "two"], "b": true, "null": null, "z": 0}),
        )
        .unwrap();
        assert_eq!(
            request.url.as_str(),
            "http://h/p?z=0&a=1&a=two&b=true&c=fixed%26x%3D1"
        );
        let nested = render(
            json!({"method": "GET", "url": "http://h/", "query": {"a": "{a}"}}),
            json!({"a": {"b": 1}}),
        );
        assert_eq!(nested.err().unwrap().code, Code::ToolError);
    }

    #[test]
    fn a_url_has_a_longest_length() {
        let long = json!({"id": "x".repeat(40_000)});
        for http in [
            json!({"method": "GET", "url": "http://h/{id}"}),
            json!({"method": "GET", "url": "http://h/", "query": {"id": "{id}"}}),
        ] {
            assert_eq!(
                render(http, long.clone()).err().unwrap().code,
                Code::ToolError
            );
        }
    }

    #[test]
    fn a_header_takes_one_scalar_without_control_characters() {
        let manifest = json!({"method": "GET", "url": "http://h/", "headers": {"X-A": "{a}"}});
        for hostile in [
            "a\r\nx-evil: 1",
            "a\nb",
            "a\0b",
            "a\tb",
            "a\u{7f}b",
            "\u{85}",
        ] {
            let failure = render(manifest.clone(), json!({"a": hostile}))
                .err()
                .unwrap();
            assert_eq!(failure.code, Code::ToolError, "{hostile:?}");
            let told = failure.message.english();
            assert!(!told.contains("evil"), "{told}");
        }
        assert!(render(manifest.clone(), json!({"a": ["x"]})).is_err());
        assert!(
            render(manifest.clone(), json!({}))
                .unwrap()
                .headers
                .get("x-a")
                .is_none()
        );
        let request = render(manifest, json!({"a": 9_007_199_254_740_993_u64})).unwrap();
        assert_eq!(request.headers["x-a"], "9007199254740993");
    }

    #[test]
    fn a_manifest_cannot_frame_the_message_or_speak_for_us() {
        for name in [
            "Host",
            "content-length",
            "Transfer-Encoding",
            "Connection",
            "TE",
            "Toolfleet-Call-Id",
            "idempotency-key",
            "traceparent",
            "bad name",
            "",
        ] {
            let manifest = json!({"method": "GET", "url": "http://h/", "headers": {name: "x"}});
            assert_eq!(
                render(manifest, json!({})).err().unwrap().code,
                Code::ToolGone,
                "{name}"
            );
        }
        assert!(render(json!({"method": "TRACE", "url": "http://h/"}), json!({})).is_err());
    }

    #[test]
    fn json_is_asked_for_unless_the_manifest_says_otherwise() {
        let plain = render(json!({"method": "POST", "url": "http://h/"}), json!({})).unwrap();
        for name in ["accept", "content-type"] {
            assert_eq!(plain.headers[name], "application/json");
        }
        let own = json!({"method": "POST", "url": "http://h/", "headers": {"Accept": "text/csv", "content-type": "a/b"}});
        let own = render(own, json!({})).unwrap();
        assert_eq!(own.headers["accept"], "text/csv");
        assert_eq!(own.headers["content-type"], "a/b");
    }
}
