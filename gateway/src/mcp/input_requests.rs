//! What a tool asks in the protocol's own form: `{"inputRequests": {name: {"method", "params"}}}`. Pure.

use bytes::Bytes;
use serde_json::{json, value::RawValue};

use super::{askable::Askable, elicitation::elicited, members::RawMembers};

/// A request of a tool in the protocol's own form.
#[derive(Debug)]
pub(super) struct InputRequest {
    pub(super) name: String,
    pub(super) kind: InputKind,
    /// As the tool has written it.
    pub(super) request: Box<RawValue>,
}

/// Whom a request asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InputKind {
    Form,
    Url,
    Sampling,
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
            "sampling/createMessage" => params?.ok().map(|_object| Self::Sampling),
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
            Self::Roots => by.roots,
        }
    }

    /// The capability that it needs.
    pub(super) const fn capability(self) -> &'static str {
        match self {
            Self::Form | Self::Url => "elicitation",
            Self::Sampling => "sampling",
            Self::Roots => "roots",
        }
    }

    /// Whether only a program answers it, and no person anywhere.
    pub(super) const fn is_of_programs(self) -> bool {
        matches!(self, Self::Sampling | Self::Roots)
    }

    /// Whether this is an answer to it.
    pub(super) fn is_answered_by(self, response: &Bytes) -> bool {
        let Ok(members) = RawMembers::of(response) else {
            return false;
        };
        match self {
            Self::Form | Self::Url => elicited(response).is_some(),
            Self::Sampling => members.get("content").is_some(),
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

/// The requests of a tool that asks in the protocol's own form.
pub(super) fn of_protocol(requests: &RawValue) -> Option<Vec<InputRequest>> {
    let members = |text: &Bytes| RawMembers::of(text).ok();
    let outer = members(&Bytes::copy_from_slice(requests.get().as_bytes()))?;
    let inner = members(outer.get("inputRequests")?)?;
    let read = inner.iter().map(|(name, request)| {
        let kind = InputKind::of(&members(request)?)?;
        Some(InputRequest {
            name: name.to_owned(),
            kind,
            request: serde_json::from_slice(request).ok()?,
        })
    });
    let requests: Vec<InputRequest> = read.collect::<Option<_>>()?;
    (!requests.is_empty()).then_some(requests)
}
