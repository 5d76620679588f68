//! A request that changes controls: its verb, the fields that go with it, and the value of a scope as canonical text.

use fleet::{
    arguments::Limits,
    canonical,
    controls::{ControlId, PauseMode},
    modes::InterceptMode,
    store::controls::ControlScope,
    wire::{code::Code, message::Message},
};
use serde::{Deserialize, Serialize};

use crate::{form, refusal::Refusal};

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verb {
    Pause,
    Resume,
    Set,
    Only,
    Breaker,
    Limit,
    Unset,
    Purge,
    List,
}

/// Where a breaker is forced.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Position {
    Open,
    Closed,
}

/// Enough for a value of the largest size, a note in which every character is escaped, and the members around them.
const LIMITS: Limits = Limits {
    bytes: 64 * 1024,
    ..Limits::DEFAULT
};

static VERBS: Message = Message::fixed(
    "do must be pause, resume, set, only, breaker, limit, unset, purge or list",
    "do 必须是 pause、resume、set、only、breaker、limit、unset、purge 或 list",
);
static PAUSE: Message = Message::fixed(
    "do: pause, tool, queue, tenant, or several of them, and with a tool perhaps pointer and value; setting: wait or refuse, \
     actor, note, and perhaps told, for_ms and replace",
    "do: pause, tool、queue、tenant 中的一个或几个，有 tool 时可以再加 pointer 和 value；setting: wait 或 refuse, actor, note，\
     可以再加 told、for_ms 和 replace",
);
static RESUME: Message = Message::fixed(
    "do: resume, actor, note, and control_id or the scope of the pause: tool, queue, tenant, pointer, value",
    "do: resume, actor, note，以及 control_id 或这个暂停的范围：tool, queue, tenant, pointer, value",
);
static SET: Message = Message::fixed(
    "do: set, interceptor, mode: enforce, observe or off, actor, note, and perhaps tool, tenant, for_ms and replace",
    "do: set, interceptor, mode: enforce、observe 或 off, actor, note，可以再加 tool、tenant、for_ms 和 replace",
);
static ONLY: Message = Message::fixed(
    "do: only, interceptors, a list of names, actor, note, and perhaps tool, tenant, for_ms and replace",
    "do: only, interceptors（名称列表）, actor, note，可以再加 tool、tenant、for_ms 和 replace",
);
static BREAKER: Message = Message::fixed(
    "do: breaker, tool, position: open or closed, actor, note, and perhaps for_ms",
    "do: breaker, tool, position: open 或 closed, actor, note，可以再加 for_ms",
);
static LIMIT: Message = Message::fixed(
    "do: limit, limit, its name, calls, per_ms, actor, note, and perhaps burst and for_ms, in whole numbers",
    "do: limit, limit（名称）, calls, per_ms, actor, note，可以再加 burst 和 for_ms，都是整数",
);
static UNSET: Message = Message::fixed(
    "do: unset, control_id, actor, note",
    "do: unset, control_id, actor, note",
);
static PURGE: Message = Message::fixed(
    "do: purge, tool, actor, note, and perhaps tenant",
    "do: purge, tool, actor, note，可以再加 tenant",
);
static LIST: Message = Message::fixed("do: list, and nothing else", "do: list，没有其他字段");

/// The fields of all verbs; the value of a scope is taken before, so that no number in it is rewritten.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    tool: Option<String>,
    queue: Option<String>,
    tenant: Option<String>,
    pointer: Option<String>,
    pub(super) setting: Option<PauseMode>,
    pub(super) told: Option<String>,
    interceptor: Option<String>,
    pub(super) mode: Option<InterceptMode>,
    pub(super) interceptors: Option<Vec<String>>,
    pub(super) position: Option<Position>,
    limit: Option<String>,
    pub(super) calls: Option<i64>,
    pub(super) per_ms: Option<i64>,
    pub(super) burst: Option<i64>,
    pub(super) for_ms: Option<i64>,
    pub(super) replace: Option<bool>,
    control_id: Option<i64>,
    pub(super) actor: Option<String>,
    note: Option<String>,
}

/// A request: its verb, its fields, and the value of its scope as canonical text.
pub(super) struct Wish {
    pub(super) verb: Verb,
    pub(super) asked: Asked,
    value: Option<String>,
}

impl Verb {
    /// What a request with it has to look like.
    const fn form(self) -> &'static Message {
        match self {
            Self::Pause => &PAUSE,
            Self::Resume => &RESUME,
            Self::Set => &SET,
            Self::Only => &ONLY,
            Self::Breaker => &BREAKER,
            Self::Limit => &LIMIT,
            Self::Unset => &UNSET,
            Self::Purge => &PURGE,
            Self::List => &LIST,
        }
    }

    /// The fields that go with it.
    const fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Pause => &[
                "tool", "queue", "tenant", "pointer", "value", "setting", "told", "actor", "note",
                "for_ms", "replace",
            ],
            Self::Resume => &[
                "control_id",
                "tool",
                "queue",
                "tenant",
                "pointer",
                "value",
                "actor",
                "note",
            ],
            Self::Set => &[
                "interceptor",
                "mode",
                "tool",
                "tenant",
                "actor",
                "note",
                "for_ms",
                "replace",
            ],
            Self::Only => &[
                "interceptors",
                "tool",
                "tenant",
                "actor",
                "note",
                "for_ms",
                "replace",
            ],
            Self::Breaker => &["tool", "position", "actor", "note", "for_ms"],
            Self::Limit => &[
                "limit", "calls", "per_ms", "burst", "actor", "note", "for_ms",
            ],
            Self::Unset => &["control_id", "actor", "note"],
            Self::Purge => &["tool", "tenant", "actor", "note"],
            Self::List => &[],
        }
    }
}

impl Wish {
    /// Reads a request.
    ///
    /// # Errors
    ///
    /// It has no verb, lacks a field that goes with it, or has one that does not.
    pub(super) fn read(body: &[u8]) -> Result<Self, Refusal> {
        let mut body = form::parse(body, &LIMITS)?;
        let mut taken = |field: &str| body.as_object_mut().and_then(|fields| fields.remove(field));
        let (verb, value) = (taken("do"), taken("value"));
        let Some(verb) = verb.and_then(|verb| serde_json::from_value::<Verb>(verb).ok()) else {
            return Err(Refusal::new(Code::InvalidArguments, VERBS.clone()).at("/do"));
        };
        let named = |field: &str| verb.fields().contains(&field);
        let is_stray = value.is_some() && !named("value")
            || body
                .as_object()
                .is_some_and(|fields| fields.keys().any(|field| !named(field)));
        let asked: Asked = form::of_form(body, verb.form())?;
        let wish = Self {
            verb,
            asked,
            value: value.as_ref().map(canonical::to_text),
        };
        if is_stray || !wish.is_whole() {
            return Err(form::mismatch(verb.form()));
        }
        Ok(wish)
    }

    /// Whether the fields are there without which the ledger could not be asked; what else is missing it says itself.
    const fn is_whole(&self) -> bool {
        let asked = &self.asked;
        let has_scope = asked.tool.is_some()
            || asked.queue.is_some()
            || asked.tenant.is_some()
            || asked.pointer.is_some()
            || self.value.is_some();
        match self.verb {
            Verb::Pause | Verb::List => true,
            Verb::Resume => asked.control_id.is_some() != has_scope,
            Verb::Set => asked.interceptor.is_some() && asked.mode.is_some(),
            Verb::Only => asked.interceptors.is_some(),
            Verb::Breaker => asked.tool.is_some() && asked.position.is_some(),
            Verb::Limit => asked.limit.is_some() && asked.calls.is_some() && asked.per_ms.is_some(),
            Verb::Unset => asked.control_id.is_some(),
            Verb::Purge => asked.tool.is_some(),
        }
    }

    /// What it is about.
    pub(super) fn scope(&self) -> ControlScope<'_> {
        let asked = &self.asked;
        ControlScope {
            tool: asked.tool.as_deref(),
            queue: asked.queue.as_deref(),
            tenant: asked.tenant.as_deref(),
            pointer: asked.pointer.as_deref(),
            value: self.value.as_deref(),
            subject: asked.interceptor.as_deref().or(asked.limit.as_deref()),
        }
    }

    /// The control that it names by its id.
    pub(super) fn control_id(&self) -> Option<ControlId> {
        self.asked.control_id.map(ControlId)
    }

    pub(super) fn note(&self) -> &str {
        self.asked.note.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_control_is_refused() {
        for body in [
            "[]",
            "{}",
            r#"{"do":"stop","tool":"charge","actor":"a","note":"n"}"#,
            r#"{"do":7}"#,
            r#"{"do":"pause","tool":"charge","actor":"a","note":"n","forever":true}"#,
            r#"{"do":"pause","tool":["charge"],"actor":"a","note":"n"}"#,
            r#"{"do":"pause","tool":"charge","setting":"sleep","actor":"a","note":"n"}"#,
            r#"{"do":"pause","tool":"charge","for_ms":"1h","actor":"a","note":"n"}"#,
            r#"{"do":"pause","tool":"charge","for_ms":1.5,"actor":"a","note":"n"}"#,
            r#"{"do":"pause","control_id":7,"actor":"a","note":"n"}"#,
            r#"{"do":"resume","actor":"a","note":"n"}"#,
            r#"{"do":"resume","control_id":7,"tool":"charge","actor":"a","note":"n"}"#,
            r#"{"do":"resume","control_id":7,"setting":"wait","actor":"a","note":"n"}"#,
            r#"{"do":"set","interceptor":"redact","actor":"a","note":"n"}"#,
            r#"{"do":"set","mode":"off","actor":"a","note":"n"}"#,
            r#"{"do":"set","interceptor":"redact","mode":"on","actor":"a","note":"n"}"#,
            r#"{"do":"set","interceptor":"redact","mode":"off","queue":"q","actor":"a","note":"n"}"#,
            r#"{"do":"set","interceptor":"redact","mode":"off","setting":"wait","actor":"a","note":"n"}"#,
            r#"{"do":"only","actor":"a","note":"n"}"#,
            r#"{"do":"only","interceptors":"redact","actor":"a","note":"n"}"#,
            r#"{"do":"only","interceptors":["redact"],"mode":"off","actor":"a","note":"n"}"#,
            r#"{"do":"unset","actor":"a","note":"n"}"#,
            r#"{"do":"unset","control_id":7,"tool":"charge","actor":"a","note":"n"}"#,
            r#"{"do":"pause","tool":"charge","interceptor":"redact","actor":"a","note":"n"}"#,
            r#"{"do":"resume","control_id":7,"mode":"off","actor":"a","note":"n"}"#,
            r#"{"do":"breaker","tool":"charge","actor":"a","note":"n"}"#,
            r#"{"do":"breaker","position":"open","actor":"a","note":"n"}"#,
            r#"{"do":"breaker","tool":"charge","position":"auto","actor":"a","note":"n"}"#,
            r#"{"do":"breaker","tool":"charge","position":"open","tenant":"acme","actor":"a","note":"n"}"#,
            r#"{"do":"limit","limit":"bank","calls":5,"actor":"a","note":"n"}"#,
            r#"{"do":"limit","calls":5,"per_ms":1000,"actor":"a","note":"n"}"#,
            r#"{"do":"limit","limit":"bank","calls":"5","per_ms":1000,"actor":"a","note":"n"}"#,
            r#"{"do":"limit","limit":"bank","calls":5,"per_ms":1000,"tool":"charge","actor":"a","note":"n"}"#,
            r#"{"do":"list","value":7}"#,
            r#"{"do":"list","interceptors":[]}"#,
            r#"{"do":"list","tool":"charge"}"#,
            r#"{"do":"list","actor":"a"}"#,
        ] {
            let refused = Wish::read(body.as_bytes()).err();
            assert_eq!(
                refused.map(|refusal| refusal.code),
                Some(Code::InvalidArguments),
                "{body}"
            );
        }
    }

    #[test]
    fn a_value_keeps_every_digit_and_null_is_one() {
        let value = |text: &str| {
            let body = format!(
                r#"{{"do":"pause","tool":"charge","pointer":"/a","value":{text},"actor":"a","note":"n"}}"#
            );
            Wish::read(body.as_bytes()).unwrap().value.unwrap()
        };
        assert_eq!(value("9007199254740993"), "9007199254740993");
        assert_eq!(value(r#"{"b":1,"a":[]}"#), r#"{"a":[],"b":1}"#);
        assert_eq!(value("null"), "null");
    }
}
