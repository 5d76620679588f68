//! What a tool asks in the protocol's own form: `{"inputRequests": {name: {"method", "params"}}}`. Pure.

use bytes::Bytes;
use serde_json::{Value, json, value::RawValue};

use super::{
    askable::Askable,
    elicitation::{QUESTION_MAX, elicited},
    form_schema::{form_schema, is_seen, shown},
    members::RawMembers,
};

/// The most characters of the address of a page.
const URL_MAX: usize = 2_048;

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
fn elicits(request: Value, kind: InputKind) -> Option<Box<RawValue>> {
    let given = &request["params"];
    let message = shown(given["message"].as_str()?, QUESTION_MAX)?;
    let mut params = json!({ "message": message });
    if let Some(mode) = given.get("mode") {
        params["mode"] = mode.clone();
    }
    if kind == InputKind::Url {
        let url = given["url"].as_str()?;
        let is_web = url.starts_with("https://") || url.starts_with("http://");
        let is_plain = url.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_web || !is_plain || url.len() > URL_MAX {
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
pub(super) fn of_protocol(requests: &RawValue) -> Option<Vec<InputRequest>> {
    let members = |text: &Bytes| RawMembers::of(text).ok();
    let outer = members(&Bytes::copy_from_slice(requests.get().as_bytes()))?;
    let inner = members(outer.get("inputRequests")?)?;
    let read = inner.iter().map(|(name, request)| {
        let kind = InputKind::of(&members(request)?)?;
        let is_form = matches!(kind, InputKind::Form | InputKind::Url);
        Some(InputRequest {
            name: name.to_owned(),
            kind,
            request: match is_form {
                true => elicits(serde_json::from_slice(request).ok()?, kind)?,
                false => serde_json::from_slice(request).ok()?,
            },
        })
    });
    let requests: Vec<InputRequest> = read.collect::<Option<_>>()?;
    (!requests.is_empty()).then_some(requests)
}
