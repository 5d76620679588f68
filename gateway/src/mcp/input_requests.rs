//! What a tool asks in the protocol's own form: `{"inputRequests": {name: {"method", "params"}}}`. Pure.

use bytes::Bytes;
use fleet::call::Language;
use serde_json::{Value, json, value::RawValue};

use super::{
    askable::Askable,
    elicitation::{APPROVAL, QUESTION_MAX, asks, elicited},
    form_schema::{form_schema, is_seen, shown},
    members::RawMembers,
};

/// The most characters of the address of a page.
const URL_MAX: usize = 2_048;
/// The most tokens that a tool may ask a client's model for.
const TOKENS_MAX: u64 = 8_192;

/// A request of a tool in the protocol's own form.
#[derive(Debug)]
pub(super) struct InputRequest {
    pub(super) name: String,
    pub(super) kind: InputKind,
    /// As the tool has written it; a form with what a client shows of one.
    pub(super) request: Box<RawValue>,
}

/// Whom a request asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InputKind {
    Form,
    Url,
    Sampling,
    /// A model that may use tools of the request.
    SamplingWithTools,
    Roots,
}

impl InputKind {
    /// Of a request; `None`: it is none that the protocol has.
    fn of(request: &RawMembers) -> Option<Self> {
        let params = request.get("params").map(RawMembers::of);
        match request.text("method")?.as_str() {
            "elicitation/create" => {
                let mode = params?.ok()?.text("mode");
                match mode.as_deref() {
                    None | Some("form") => Some(Self::Form),
                    Some("url") => Some(Self::Url),
                    Some(_) => None,
                }
            }
            "sampling/createMessage" => {
                let params = params?.ok()?;
                let has = |name| params.get(name).is_some();
                Some(match has("tools") || has("toolChoice") {
                    true => Self::SamplingWithTools,
                    false => Self::Sampling,
                })
            }
            "roots/list" => Some(Self::Roots),
            _ => None,
        }
    }

    /// Whether a client declares that it can be asked this.
    pub(super) const fn is_declared(self, by: Askable) -> bool {
        match self {
            Self::Form => by.form,
            Self::Url => by.url,
            Self::Sampling => by.sampling,
            Self::SamplingWithTools => by.sampling_with_tools,
            Self::Roots => by.roots,
        }
    }

    /// The capability that it needs, and the part of it.
    const fn capability(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Form | Self::Url => ("elicitation", None),
            Self::Sampling => ("sampling", None),
            Self::SamplingWithTools => ("sampling", Some("tools")),
            Self::Roots => ("roots", None),
        }
    }

    /// Whether only a program answers it, and no person anywhere.
    pub(super) const fn is_of_programs(self) -> bool {
        matches!(self, Self::Sampling | Self::SamplingWithTools | Self::Roots)
    }

    /// Whether this is an answer to it.
    pub(super) fn is_answered_by(self, response: &Bytes) -> bool {
        let Ok(members) = RawMembers::of(response) else {
            return false;
        };
        match self {
            Self::Form | Self::Url => elicited(response).is_some(),
            Self::Sampling | Self::SamplingWithTools => members.get("content").is_some(),
            Self::Roots => members
                .get("roots")
                .is_some_and(|roots| roots.starts_with(b"[")),
        }
    }
}

/// The answers as their tool reads them.
pub(super) fn input(given: &[(&str, &Bytes)]) -> String {
    let mut text = r#"{"inputResponses":{"#.to_owned();
    for (place, (name, response)) in given.iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        text += &json!(name).to_string();
        text.push(':');
        text += &String::from_utf8_lossy(response);
    }
    text + "}}"
}

/// A form of a tool, or a page that it names, as its client is asked for it; `None`: no client shows it like that.
fn elicits(
    request: Value,
    kind: InputKind,
    tool: &str,
    language: Language,
) -> Option<Box<RawValue>> {
    let given = &request["params"];
    let message = asks(
        tool,
        &shown(given["message"].as_str()?, QUESTION_MAX)?,
        language,
    );
    let mut params = json!({ "message": message });
    if let Some(mode) = given.get("mode") {
        params["mode"] = mode.clone();
    }
    if kind == InputKind::Url {
        let url = given["url"].as_str()?;
        let is_plain = url
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        if !is_plain || url.len() > URL_MAX || !is_page(url) {
            return None;
        }
        params["url"] = url.into();
        if let Some(id) = given.get("elicitationId") {
            params["elicitationId"] = id.as_str().filter(|id| is_seen(id))?.into();
        }
    } else {
        params["requestedSchema"] = form_schema(&given["requestedSchema"])?;
    }
    let request = json!({ "method": "elicitation/create", "params": params });
    serde_json::value::to_raw_value(&request).ok()
}

/// Whether a person may be sent to this address: over TLS, or to a program of their own machine.
fn is_page(url: &str) -> bool {
    if let Some(rest) = url.strip_prefix("https://") {
        return !rest.is_empty() && !host_and_more(rest).0.is_empty();
    }
    let Some(rest) = url.strip_prefix("http://") else {
        return false;
    };
    let (host, port) = host_and_more(rest);
    let is_own = ["localhost", "127.0.0.1", "[::1]"].contains(&host);
    is_own && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// The host of what stands behind a scheme, and its port. Names before an `@` are part of the host, which then is none.
fn host_and_more(rest: &str) -> (&str, &str) {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = &rest[..end];
    if authority.contains('@') {
        return ("", "");
    }
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        Some(_) | None => (authority, ""),
    }
}

/// A request to a model as its client is asked: nothing of what its client has talked about goes into it, and it is bounded.
fn samples(request: &RawMembers) -> Option<Box<RawValue>> {
    let params = RawMembers::of(request.get("params")?).ok()?;
    let mut params = RawMembers::of(&params.without("includeContext")).ok()?;
    let wanted = params.get("maxTokens");
    let wanted = wanted.and_then(|wanted| serde_json::from_slice::<u64>(wanted).ok());
    if params.get("maxTokens").is_some() && wanted.is_none_or(|wanted| wanted > TOKENS_MAX) {
        params = params.with("maxTokens", Bytes::from(TOKENS_MAX.to_string()));
    }
    let request = request.clone().with("params", params.to_object());
    serde_json::from_slice(&request.to_object()).ok()
}

/// What a client lacks that declares none of what these requests need: capabilities.
pub(super) fn lacked(requests: &[InputRequest]) -> Value {
    let mut lacked = json!({});
    for (name, part) in requests.iter().map(|one| one.kind.capability()) {
        if lacked.get(name).is_none() {
            lacked[name] = json!({});
        }
        if let Some(part) = part {
            lacked[name][part] = json!({});
        }
    }
    lacked
}

/// The requests of a tool that asks in the protocol's own form.
pub(super) fn of_protocol(
    requests: &RawValue,
    tool: &str,
    language: Language,
) -> Option<Vec<InputRequest>> {
    let members = |text: &Bytes| RawMembers::of(text).ok();
    let outer = members(&Bytes::copy_from_slice(requests.get().as_bytes()))?;
    let inner = members(outer.get("inputRequests")?)?;
    let read = inner.iter().map(|(name, request)| {
        // A person would take it for a question of the fleet's own, or for another one of the tool's.
        if name == APPROVAL || !is_seen(name) {
            return None;
        }
        let read = members(request)?;
        let kind = InputKind::of(&read)?;
        Some(InputRequest {
            name: name.to_owned(),
            kind,
            request: match kind {
                InputKind::Form | InputKind::Url => {
                    elicits(serde_json::from_slice(request).ok()?, kind, tool, language)?
                }
                InputKind::Sampling | InputKind::SamplingWithTools => samples(&read)?,
                InputKind::Roots => serde_json::from_slice(request).ok()?,
            },
        })
    });
    let requests: Vec<InputRequest> = read.collect::<Option<_>>()?;
    (!requests.is_empty()).then_some(requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(requests: &Value) -> Option<Value> {
        let requests = json!({ "inputRequests": requests }).to_string();
        let raw = RawValue::from_string(requests).unwrap();
        let read = of_protocol(&raw, "pay", Language::En)?;
        Some(serde_json::to_value(&read[0].request).unwrap())
    }

    #[test]
    fn a_page_is_one_over_tls_or_of_the_own_machine() {
        let of = |url: &str| {
            let params = json!({"mode": "url", "message": "Sign in.", "url": url});
            read(&json!({"a": {"method": "elicitation/create", "params": params}}))
        };
        for url in [
            "https://pay.example/a?b=c",
            "http://localhost:8080/",
            "http://127.0.0.1/x",
            "http://[::1]:80",
        ] {
            assert_eq!(of(url).unwrap()["params"]["url"], url);
        }
        for url in [
            "javascript:alert(1)",
            "file:///etc/passwd",
            "http://169.254.169.254/latest",
            "http://pay.example/",
            "http://localhost@evil.example/",
            "http://localhost.evil.example/",
            "https://bank.example@evil.example/",
            "https://",
            "https://p\u{430}y.example/",
            "http://localhost\\@evil.example/",
        ] {
            assert!(of(url).is_none(), "{url}");
        }
    }

    #[test]
    fn what_a_tool_asks_says_that_it_does_and_is_bounded() {
        let params = json!({"message": "Your password?", "requestedSchema": {"type": "object", "properties": {}}});
        let form = json!({"method": "elicitation/create", "params": params});
        let asked = read(&json!({ "a": form })).unwrap();
        assert_eq!(
            asked["params"]["message"],
            "The tool pay asks: Your password?"
        );
        for name in ["approval", "approval\u{200b}", "a\u{202e}"] {
            assert!(read(&json!({ name: form })).is_none(), "{name:?}");
        }
        let params =
            json!({"messages": [], "maxTokens": 1_000_000, "includeContext": "allServers"});
        let model = json!({"method": "sampling/createMessage", "params": params});
        let asked = read(&json!({ "m": model })).unwrap();
        assert_eq!(
            asked["params"],
            json!({"messages": [], "maxTokens": TOKENS_MAX})
        );
    }
}
