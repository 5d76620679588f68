//! The form of a call that a turn asks for. What is wrong with it is said before its turn is taken, while the key of the turn is free; of a
//! turn that was taken a call stays refused. What its tool wants of its arguments the door says. Pure.

use fleet::{
    said,
    wire::{code::Code, headers::RequestHeaders, message::Message},
};
use serde_json::{Value, value::RawValue};

use crate::{form::Fields, refusal::Refused, value};

/// The type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldKind {
    Text,
    Number,
    Object,
    Texts,
}

/// What a call of a turn may say beside `tool` and `args`, and the header that it stands for: as in a batch, without what the turn says.
const FIELDS: [(&str, &str, FieldKind); 12] = [
    ("deadline_ms", "Toolfleet-Deadline-Ms", FieldKind::Number),
    ("run", "Toolfleet-Run", FieldKind::Text),
    ("run_deadline", "Toolfleet-Run-Deadline", FieldKind::Text),
    ("priority", "Toolfleet-Priority", FieldKind::Text),
    ("tool_version", "Toolfleet-Tool-Version", FieldKind::Number),
    ("language", "Toolfleet-Language", FieldKind::Text),
    ("cache_control", "Cache-Control", FieldKind::Text),
    ("meta", "Toolfleet-Meta", FieldKind::Object),
    ("traceparent", "traceparent", FieldKind::Text),
    ("tracestate", "tracestate", FieldKind::Text),
    ("baggage", "baggage", FieldKind::Text),
    ("files", "Toolfleet-Files", FieldKind::Texts),
];
/// What a call of a turn may not say: the turn says it.
const OF_THE_TURN: [&str; 3] = ["idempotency_key", "session", "prefer"];

/// Checks the fields of the call at this place, and says its tool.
///
/// # Errors
///
/// One is wrong, missing, or there twice: which one is said.
pub(super) fn check(fields: &Fields, place: usize) -> Result<String, Refused> {
    for name in fields.names() {
        if OF_THE_TURN.contains(&name) {
            let what = said!(
                "a call of a turn may not have {name}: the turn says it",
                "turn 中的调用不能有 {name}：由 turn 决定"
            );
            return Err(invalid(what, place, name));
        }
        let is_field = FIELDS.iter().any(|(field, ..)| *field == name);
        if !is_field && name != "tool" && name != "args" {
            return Err(invalid(unknown(), place, name));
        }
        if fields.values(name).count() > 1 {
            let what = Message::fixed("the field stands there twice", "这个字段出现了两次");
            return Err(Refused::new(Code::DuplicateKey, what).at(pointer(place, name)));
        }
    }
    for name in ["tool", "args"] {
        if !fields.has(name) {
            let what = said!("the call has no {name}", "这个调用没有 {name}");
            return Err(invalid(what, place, name));
        }
    }
    check_headers(fields, place)?;
    tool(fields, place)
}

fn tool(fields: &Fields, place: usize) -> Result<String, Refused> {
    let named = fields.values("tool").next();
    let named = named.and_then(|tool| serde_json::from_str::<String>(tool.get()).ok());
    let Some(named) = named else {
        let what = Message::fixed("tool must be a string", "tool 必须是字符串");
        return Err(Refused::new(Code::InvalidToolName, what).at(pointer(place, "tool")));
    };
    match named.parse::<fleet::ids::ToolName>() {
        Ok(_fits) => Ok(named),
        Err(bad) => {
            let refused = Refused::name(Code::InvalidToolName, &bad);
            Err(refused.at(pointer(place, "tool")))
        }
    }
}

/// The fields that stand for headers are such as the door takes.
fn check_headers(fields: &Fields, place: usize) -> Result<(), Refused> {
    for (field, header, kind) in FIELDS {
        let Some(value) = fields.values(field).next() else {
            continue;
        };
        let Some(line) = line(value, kind).map_err(|rule| {
            let what = said!("{field} must be {rule}", "{field} 必须{rule}", rule);
            Refused::new(code_of(header), what).at(pointer(place, field))
        })?
        else {
            continue;
        };
        if let Err(bad) = RequestHeaders::read(&[(header, &line)]) {
            let rule = &bad.rule;
            let what = said!("{field} must be {rule}", "{field} 必须{rule}", rule);
            return Err(Refused::new(bad.code, what).at(pointer(place, field)));
        }
    }
    Ok(())
}

/// The value as a header has it; `None`: it says nothing.
fn line(field: &RawValue, kind: FieldKind) -> Result<Option<String>, Message> {
    // What no program reads the door refuses by itself.
    let Some(read) = value::read(field.get().as_bytes()) else {
        return Ok(None);
    };
    match (read, kind) {
        (Value::Null, _) => Ok(None),
        (Value::String(text), FieldKind::Text) => Ok(Some(text)),
        (Value::Number(number), FieldKind::Number) => Ok(Some(number.to_string())),
        (Value::Object(_), FieldKind::Object) => Ok(Some(field.get().to_owned())),
        (Value::Array(_), FieldKind::Texts) => {
            let texts = serde_json::from_str::<Vec<String>>(field.get());
            let texts = texts.map_err(|_other| LIST)?;
            Ok((!texts.is_empty()).then(|| texts.join(",")))
        }
        (_, FieldKind::Texts) => Err(LIST),
        (_, FieldKind::Text) => Err(Message::fixed("a string", "是字符串")),
        (_, FieldKind::Number) => Err(Message::fixed("a number", "是数字")),
        (_, FieldKind::Object) => Err(Message::fixed("an object", "是对象")),
    }
}

const LIST: Message = Message::fixed("a list of strings", "是字符串列表");

fn code_of(header: &str) -> Code {
    match header {
        "Toolfleet-Deadline-Ms" | "Toolfleet-Run-Deadline" => Code::DeadlineInvalid,
        _other => Code::HeaderInvalid,
    }
}

fn unknown() -> Message {
    let names: Vec<&str> = FIELDS.iter().map(|(field, ..)| *field).collect();
    let names = names.join(", ");
    said!(
        "a call of a turn has no such field; it has tool and args, and may have {names}",
        "turn 中的调用没有这个字段；它有 tool 和 args，还可以有 {names}"
    )
}

/// The pointer to a call of the body, or to a field of it.
pub(super) fn pointer(place: usize, field: &str) -> String {
    let mut pointer = format!("/calls/{place}");
    if !field.is_empty() {
        let field: String = field.chars().take(64).collect();
        pointer.push('/');
        pointer.push_str(&field.replace('~', "~0").replace('/', "~1"));
    }
    pointer
}

fn invalid(what: Message, place: usize, field: &str) -> Refused {
    Refused::new(Code::InvalidArguments, what).at(pointer(place, field))
}

#[cfg(test)]
mod tests {
    use fleet::call::Language;

    use super::*;

    fn checked(call: &str) -> Result<String, (String, Code)> {
        let fields = Fields::of(call).unwrap();
        check(&fields, 3).map_err(|refused| {
            let error = refused.envelope(Language::En).error.unwrap();
            (error.path.unwrap(), error.code)
        })
    }

    #[test]
    fn a_call_of_its_form_is_for_the_door() {
        for call in [
            r#"{"tool":"look","args":[]}"#,
            r#"{"args":{},"tool":"look","deadline_ms":1000,"run":"r","priority":"low","tool_version":2,"language":"zh","cache_control":"no-store","meta":{"a":1},"run_deadline":null}"#,
        ] {
            assert_eq!(checked(call), Ok("look".to_owned()), "{call}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (call, field, code) in [
            (r#"{"args":{}}"#, "tool", Code::InvalidArguments),
            (r#"{"tool":"look"}"#, "args", Code::InvalidArguments),
            (r#"{"tool":7,"args":{}}"#, "tool", Code::InvalidToolName),
            (r#"{"tool":"a b","args":{}}"#, "tool", Code::InvalidToolName),
            (
                r#"{"tool":"look","arguments":{}}"#,
                "arguments",
                Code::InvalidArguments,
            ),
            (
                r#"{"tool":"look","args":{},"args":{}}"#,
                "args",
                Code::DuplicateKey,
            ),
            (
                r#"{"tool":"look","args":{},"session":"s"}"#,
                "session",
                Code::InvalidArguments,
            ),
            (
                r#"{"tool":"look","args":{},"deadline_ms":"1"}"#,
                "deadline_ms",
                Code::DeadlineInvalid,
            ),
            (
                r#"{"tool":"look","args":{},"deadline_ms":0}"#,
                "deadline_ms",
                Code::DeadlineInvalid,
            ),
            (
                r#"{"tool":"look","args":{},"priority":"x"}"#,
                "priority",
                Code::HeaderInvalid,
            ),
            (
                r#"{"tool":"look","args":{},"meta":1}"#,
                "meta",
                Code::HeaderInvalid,
            ),
        ] {
            let expected = (format!("/calls/3/{field}"), code);
            assert_eq!(checked(call), Err(expected), "{call}");
        }
    }
}
