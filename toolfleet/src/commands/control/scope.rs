//! What a control is about: read from the command line, and shown.

use std::{fmt::Write as _, time::Duration};

use fleet::{
    controls::ArgumentEquals,
    ids::{Label, QueueName, ToolName},
    manifest::format_duration,
    store::controls::{ControlKind, ControlScope},
};
use fleet_history::{
    controls::{ListedControl, ListedScope},
    tools::ClientTool,
};
use serde_json::Value;

use crate::commands::{holds::Holds, plain::plain};

/// What calls a pause covers: all that its flags say.
#[derive(Debug, clap::Args)]
pub(super) struct ScopeFlags {
    /// Calls of this tool
    #[arg(long)]
    pub(super) tool: Option<ToolName>,
    /// Calls of this queue
    #[arg(long)]
    pub(super) queue: Option<QueueName>,
    /// Calls of this tenant
    #[arg(long)]
    pub(super) tenant: Option<Label>,
    /// Calls of the tool with this value in their arguments: JSON pointer, =, and the value as JSON, else as text
    #[arg(long = "where", value_name = "/POINTER=VALUE", requires = "tool")]
    pub(super) holds: Option<Holds>,
}

impl ScopeFlags {
    /// As the ledger is asked.
    pub(super) fn scope(&self) -> ControlScope<'_> {
        ControlScope {
            tool: self.tool.as_ref().map(ToolName::as_str),
            queue: self.queue.as_ref().map(QueueName::as_str),
            tenant: self.tenant.as_ref().map(Label::as_str),
            pointer: self.holds.as_ref().map(|holds| holds.pointer.as_str()),
            value: self.holds.as_ref().map(|holds| holds.value.as_str()),
            subject: None,
        }
    }

    /// Whether it names nothing.
    pub(super) const fn is_empty(&self) -> bool {
        self.tool.is_none() && self.queue.is_none() && self.tenant.is_none()
    }
}

/// What a control is about, in a few words.
pub(super) fn told(scope: &ListedScope) -> String {
    let named = [
        ("tool ", &scope.tool),
        ("queue ", &scope.queue),
        ("tenant ", &scope.tenant),
        (subject_of(&scope.kind), &scope.subject),
    ];
    let named = named
        .iter()
        .filter_map(|(what, name)| Some(format!("{what}{}", name.as_ref()?)));
    let mut told = named.collect::<Vec<_>>().join(", ");
    if let Some(pointer) = &scope.pointer {
        // The value null is none in a row of JSON.
        let value = scope.value.as_ref().unwrap_or(&Value::Null);
        write!(told, ", {pointer} = {value}").expect("a String takes everything");
    }
    if told.is_empty() {
        told.push_str("every call");
    }
    told
}

/// Whether some call may be in both.
pub(super) fn may_meet(one: &ListedScope, other: &ListedScope) -> bool {
    let agree = |one: &Option<String>, other: &Option<String>| match (one, other) {
        (Some(one), Some(other)) => one == other,
        (_anything, None) | (None, _anything) => true,
    };
    // The value null is none in a row of JSON.
    let value = |scope: &ListedScope| scope.value.clone().unwrap_or(Value::Null);
    let has_other_value = one.pointer.is_some()
        && one.pointer == other.pointer
        && !ArgumentEquals::is_same(&value(one), &value(other));
    agree(&one.tool, &other.tool)
        && agree(&one.queue, &other.queue)
        && agree(&one.tenant, &other.tenant)
        && !has_other_value
}

/// The command that takes a control away that is no pause.
pub(super) fn takes_away(control: &ListedControl) -> String {
    let (id, scope) = (control.control_id, &control.scope);
    match (scope.kind.parse(), &scope.tool, &scope.subject) {
        (Ok(ControlKind::Breaker), Some(tool), _) => {
            format!("toolfleet control breaker {tool} auto --note WHY")
        }
        (Ok(ControlKind::Limit), _, Some(name)) => {
            format!("toolfleet control limit {name} auto --note WHY")
        }
        (_other, _, _) => format!("toolfleet control unset {id} --note WHY"),
    }
}

/// What stands in front of the subject of a control; the kind of a limit says that its subject is one.
fn subject_of(kind: &str) -> &'static str {
    if kind == ControlKind::Limit.as_str() {
        ""
    } else {
        "interceptor "
    }
}

/// How the time of a control that was there already begins anew.
pub(super) fn anew(control: &ListedControl, word: &str) -> &'static str {
    if word == "already_set" && control.expires_at.is_some() {
        " (say --replace to begin its time anew)"
    } else {
        ""
    }
}

/// Whether a pause refuses new calls although it is one that lets them wait: what callers' programs run cannot be kept waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusing {
    /// None of them.
    None,
    /// Those of client tools, which others share its scope with.
    Some,
    /// All: it is about a client tool.
    All,
}

/// Which new calls a pause refuses.
pub(super) fn refusing(scope: &ListedScope, clients: &[ClientTool]) -> Refusing {
    let waits = scope.kind == ControlKind::Pause.as_str() && setting(scope) == "wait";
    let covers = |of: &ClientTool| {
        scope.tool.as_ref().is_none_or(|tool| *tool == of.tool)
            && scope.queue.as_ref().is_none_or(|queue| *queue == of.queue)
    };
    match waits && clients.iter().any(covers) {
        false => Refusing::None,
        true if scope.tool.is_some() => Refusing::All,
        true => Refusing::Some,
    }
}

/// What it does there, in a word.
pub(super) fn setting(scope: &ListedScope) -> String {
    match &scope.setting {
        Value::String(word) => word.clone(),
        Value::Array(names) => {
            let names = names.iter().filter_map(Value::as_str);
            names.collect::<Vec<_>>().join(", ")
        }
        other if scope.kind == ControlKind::Limit.as_str() => {
            rate(other).unwrap_or_else(|| other.to_string())
        }
        other => other.to_string(),
    }
}

/// The same with the kind and the setting in front: `mode off for tenant acme, interceptor audit`.
pub(super) fn whole(scope: &ListedScope) -> String {
    let (kind, setting, about) = (&scope.kind, setting(scope), told(scope));
    plain(&format!("{kind} {setting} for {about}"))
}

/// The numbers of a limit as the command takes them.
fn rate(setting: &Value) -> Option<String> {
    let calls = setting["calls"].as_u64()?;
    let per = format_duration(Duration::from_millis(setting["per_ms"].as_u64()?));
    let burst = setting["burst"].as_u64().unwrap_or(1);
    Some(format!("{calls}/{per} burst {burst}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pause_of_the_value_null_is_not_shown_as_one_of_the_whole_tool() {
        let scope = json!({
            "kind": "pause", "tool": "charge", "queue": null, "tenant": null, "pointer": "/id", "value": null, "subject": null,
            "setting": "wait"});
        let scope: ListedScope = serde_json::from_value(scope).unwrap();
        assert_eq!(told(&scope), "tool charge, /id = null");
    }

    #[test]
    fn a_pause_that_lets_calls_wait_refuses_those_that_callers_run() {
        let scope = |tool: Value, queue: Value, setting: &str| -> ListedScope {
            let scope = json!({
                "kind": "pause", "tool": tool, "queue": queue, "tenant": null, "pointer": null, "value": null, "subject": null,
                "setting": setting});
            serde_json::from_value(scope).unwrap()
        };
        let clients = [ClientTool {
            tool: "shell".to_owned(),
            queue: "default".to_owned(),
        }];
        let (shell, none) = (json!("shell"), Value::Null);
        for (scope, expected) in [
            (scope(shell.clone(), none.clone(), "wait"), Refusing::All),
            (scope(shell, none.clone(), "refuse"), Refusing::None),
            (scope(json!("charge"), none.clone(), "wait"), Refusing::None),
            (
                scope(none.clone(), json!("default"), "wait"),
                Refusing::Some,
            ),
            (
                scope(none.clone(), json!("payments"), "wait"),
                Refusing::None,
            ),
            (scope(none.clone(), none, "wait"), Refusing::Some),
        ] {
            assert_eq!(refusing(&scope, &clients), expected, "{scope:?}");
        }
    }

    #[test]
    fn two_pauses_may_hold_the_same_call_whatever_the_spelling_of_a_number_within_their_values() {
        let holds = |value: Value| -> ListedScope {
            let scope = json!({
                "kind": "pause", "tool": "charge", "queue": null, "tenant": null, "pointer": "/id", "value": value, "subject": null,
                "setting": "wait"});
            serde_json::from_str(&scope.to_string()).unwrap()
        };
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        for (one, other, expected) in [
            ("[7]", "[7.0]", true),
            ("{\"a\":1e2}", "{\"a\":100}", true),
            ("[7]", "[8]", false),
            ("null", "null", true),
            ("null", "0", false),
        ] {
            let met = may_meet(&holds(read(one)), &holds(read(other)));
            assert_eq!(met, expected, "{one} {other}");
        }
    }

    #[test]
    fn a_value_is_json_if_it_can_be_and_text_otherwise() {
        let read = |text: &str| {
            let holds: Holds = text.parse().unwrap();
            (holds.pointer, holds.value)
        };
        let pair = |pointer: &str, value: &str| (pointer.to_owned(), value.to_owned());
        assert_eq!(read("/account=DE-001"), pair("/account", "\"DE-001\""));
        assert_eq!(read("/a/b=17"), pair("/a/b", "17"));
        assert_eq!(read("/a=\"17\""), pair("/a", "\"17\""));
        assert_eq!(read("/a=x=y"), pair("/a", "\"x=y\""));
        assert_eq!(
            read("/a={\"c\": 1, \"b\": 2}"),
            pair("/a", "{\"b\":2,\"c\":1}")
        );
        assert_eq!(read("/a="), pair("/a", "\"\""));
        for wrong in ["", "a=1", "/a", "/a={\"b\":1,\"b\":2}"] {
            assert!(wrong.parse::<Holds>().is_err(), "{wrong}");
        }
    }
}
