//! One part of a request: a text, a secret or an argument.

use fleet::{
    outcome::ToolFailure,
    said,
    secrets::Secrets,
    wire::{code::Code, message::Message},
};
use reqwest::header::{HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use crate::executors::redact::missing_secret;

/// The content of a header or of a query parameter.
pub(in crate::executors) enum Part {
    Text(String),
    Secret(SecretString),
    Argument(String),
}

impl Part {
    pub(in crate::executors) fn read(text: &str, secrets: &Secrets) -> Result<Self, ToolFailure> {
        if let Some(name) = placeholder(text) {
            return Ok(Self::Argument(name.to_owned()));
        }
        if !text.starts_with(Secrets::SCHEME) {
            return Ok(Self::Text(text.to_owned()));
        }
        let secret = secrets.resolve(text).map(Self::Secret);
        secret.map_err(|error| missing_secret(&error))
    }

    pub(in crate::executors) fn header_value(
        &self,
        name: &HeaderName,
        arguments: &Map<String, Value>,
    ) -> Result<Option<HeaderValue>, ToolFailure> {
        match self {
            Self::Text(text) => header_text(text).map(Some).ok_or_else(|| {
                defect(said!(
                    "the header {name} in the manifest holds a control character: remove it",
                    "清单中的请求头 {name} 含有控制字符：请删除"
                ))
            }),
            Self::Secret(secret) => {
                let mut value = header_text(secret.expose_secret()).ok_or_else(|| {
                    let message = said!(
                        "the secret for the header {name} holds a control character: store it without",
                        "用于请求头 {name} 的密钥含有控制字符：请去掉后再存"
                    );
                    ToolFailure::new(Code::Unavailable, message)
                })?;
                value.set_sensitive(true);
                Ok(Some(value))
            }
            Self::Argument(argument) => {
                let refuse = || {
                    let message = said!(
                        "argument {argument:?} cannot stand in a header: give one text, number or boolean without control characters",
                        "参数 {argument:?} 不能放进请求头：请给出单个文本、数字或布尔值，不含控制字符"
                    );
                    ToolFailure::new(Code::ToolError, message)
                };
                let Some(value) = given(arguments, argument) else {
                    return Ok(None);
                };
                let text = scalar(value).ok_or_else(refuse)?;
                header_text(&text).ok_or_else(refuse).map(Some)
            }
        }
    }

    /// None for an absent argument, several for an array.
    pub(super) fn query_texts(
        &self,
        arguments: &Map<String, Value>,
    ) -> Result<Vec<String>, ToolFailure> {
        match self {
            Self::Text(text) => Ok(vec![text.clone()]),
            Self::Secret(secret) => Ok(vec![secret.expose_secret().to_owned()]),
            Self::Argument(argument) => {
                let items = match given(arguments, argument) {
                    None => &[],
                    Some(Value::Array(items)) => items.as_slice(),
                    Some(value) => std::slice::from_ref(value),
                };
                let texts: Option<Vec<String>> = items.iter().map(scalar).collect();
                texts.ok_or_else(|| {
                    let message = said!(
                        "argument {argument:?} cannot stand in the query: give a text, a number, a boolean or a list of them",
                        "参数 {argument:?} 不能放进查询部分：请给出文本、数字、布尔值或它们的列表"
                    );
                    ToolFailure::new(Code::ToolError, message)
                })
            }
        }
    }
}

/// An argument that is there. Null counts as absent wherever it would become text.
pub(super) fn given<'a>(arguments: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    arguments.get(name).filter(|value| !value.is_null())
}

/// A text, number or boolean as text; numbers keep every digit.
pub(super) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The name in a text that is `{name}` and nothing else.
pub(super) fn placeholder(text: &str) -> Option<&str> {
    let name = text.strip_prefix('{')?.strip_suffix('}')?;
    (!name.is_empty() && !name.contains(['{', '}'])).then_some(name)
}

/// A header value without control characters, so that no value can begin another header.
pub(in crate::executors) fn header_text(text: &str) -> Option<HeaderValue> {
    if text.chars().any(char::is_control) {
        return None;
    }
    HeaderValue::from_bytes(text.as_bytes()).ok()
}

/// The name of a header that a manifest may set.
///
/// # Errors
///
/// It is not a header name, frames the message, or is a header that every request carries.
pub(in crate::executors) fn header_name(name: &str) -> Result<HeaderName, ToolFailure> {
    const FRAMING: [&str; 11] = [
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "te",
        "trailer",
        "upgrade",
        "expect",
    ];
    const OURS: [&str; 4] = ["idempotency-key", "traceparent", "tracestate", "baggage"];
    let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_cause| {
        defect(said!(
            "{name:?} in the manifest is not a header name",
            "清单中的 {name:?} 不是请求头的名字"
        ))
    })?;
    let lower = parsed.as_str();
    if FRAMING.contains(&lower) || OURS.contains(&lower) || lower.starts_with("toolfleet-") {
        return Err(defect(said!(
            "the manifest sets the header {lower}, which is set for every request: remove it",
            "清单设置了请求头 {lower}，而它由每个请求自动设置：请删除"
        )));
    }
    Ok(parsed)
}

/// A failure that only the author of the manifest can fix.
pub(in crate::executors) fn defect(message: Message) -> ToolFailure {
    ToolFailure::new(Code::ToolGone, message)
}
