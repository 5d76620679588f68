//! Forms that a client shows to its user: those that are made here, and what its user did with one. Pure.

use bytes::Bytes;
use fleet::{call::Language, said};
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

use super::members::RawMembers;

/// The most fields of a form that is made here.
const FIELDS_MAX: usize = 32;
/// What a field of a form may say of itself.
const OF_FIELDS: [&str; 10] = [
    "type",
    "title",
    "description",
    "minLength",
    "maxLength",
    "format",
    "minimum",
    "maximum",
    "default",
    "enum",
];
/// Why somebody has decided who does not say it.
pub(super) const NO_NOTE: &str = "decided in a form of the client";
/// The most characters of a note.
const NOTE_MAX: usize = 500;

/// What a user did with a form.
pub(super) enum FormAnswer {
    Accepted(Box<RawValue>),
    Declined,
    Dismissed,
}

/// Of a response; `None`: it is none.
pub(super) fn elicited(response: &Bytes) -> Option<FormAnswer> {
    let members = RawMembers::of(response).ok()?;
    match members.text("action")?.as_str() {
        "accept" => {
            let content = members.get("content").map_or(&b"{}"[..], |content| content);
            let content: Box<RawValue> = serde_json::from_slice(content).ok()?;
            let is_object = content.get().starts_with('{');
            is_object.then_some(FormAnswer::Accepted(content))
        }
        "decline" => Some(FormAnswer::Declined),
        "cancel" => Some(FormAnswer::Dismissed),
        _ => None,
    }
}

/// What was decided in the form of [`approval`], and why; `None`: nothing.
pub(super) fn decided(form: &RawValue) -> Option<(bool, String)> {
    #[derive(Deserialize)]
    struct DecisionForm {
        decision: String,
        #[serde(default)]
        note: Option<String>,
    }

    let DecisionForm { decision, note } = serde_json::from_str(form.get()).ok()?;
    let is_yes = match decision.as_str() {
        "approve" => true,
        "deny" => false,
        _ => return None,
    };
    let note = note.unwrap_or_default();
    let note: String = note.trim().chars().take(NOTE_MAX).collect();
    match note.is_empty() {
        true => Some((is_yes, NO_NOTE.to_owned())),
        false => Some((is_yes, note)),
    }
}

/// The text and the form of what a tool asks in words of its own, if it can be one: a `question`, and a `schema` of plain fields.
pub(super) fn form(requests: &RawValue, tool: &str, language: Language) -> Option<(String, Value)> {
    #[derive(Deserialize)]
    struct OwnWords {
        question: String,
        schema: Map<String, Value>,
    }

    let OwnWords { question, schema } = serde_json::from_str(requests.get()).ok()?;
    let (fields, required) = match (schema.get("properties"), schema.get("required")) {
        (Some(Value::Object(fields)), required) => (fields, required),
        _ => (&schema, None),
    };
    let fields: Map<String, Value> = fields
        .iter()
        .map(|(name, field)| Some((name.clone(), plain_field(field)?)))
        .collect::<Option<_>>()?;
    if fields.is_empty() || fields.len() > FIELDS_MAX {
        return None;
    }
    let all: Value = fields.keys().cloned().collect();
    let required = required.cloned().unwrap_or(all);
    let message = said!(
        "The tool {tool} asks: {question}",
        "工具 {tool} 询问：{question}"
    );
    let schema = json!({ "type": "object", "properties": fields, "required": required });
    Some((message.told(language).to_owned(), schema))
}

/// A field that a form can have: a kind by its word, or a schema of one.
fn plain_field(field: &Value) -> Option<Value> {
    const KINDS: [&str; 4] = ["string", "integer", "number", "boolean"];
    match field {
        Value::String(kind) if KINDS.contains(&kind.as_str()) => Some(json!({ "type": kind })),
        Value::Object(schema) => {
            let kind = schema.get("type")?.as_str()?;
            let is_known = schema.keys().all(|name| OF_FIELDS.contains(&name.as_str()));
            (KINDS.contains(&kind) && is_known).then(|| field.clone())
        }
        _ => None,
    }
}

/// The text and the form in which a yes is asked for.
pub(super) fn approval(
    tool: &str,
    arguments: &str,
    reason: Option<&str>,
    language: Language,
) -> (String, Value) {
    let reason = reason.map_or_else(String::new, |reason| format!("\n{reason}"));
    let message = said!(
        "May the tool {tool} run with exactly these arguments? Nothing has happened yet.{reason}\n\n{arguments}",
        "是否允许工具 {tool} 以下列参数执行？目前尚未执行任何操作。{reason}\n\n{arguments}"
    );
    let (decision, note) = match language {
        Language::En => ("Decision", "Why"),
        Language::Zh => ("决定", "原因"),
    };
    // Nothing is chosen before: who sends a form as it came has not decided.
    let schema = json!({
        "type": "object",
        "properties": {
            "decision": { "type": "string", "title": decision, "enum": ["approve", "deny"] },
            "note": { "type": "string", "title": note, "maxLength": NOTE_MAX },
        },
        "required": ["decision"],
    });
    (message.told(language).to_owned(), schema)
}

/// A form as the protocol asks for it.
pub(super) fn elicitation(message: &str, schema: &Value) -> Box<RawValue> {
    let request = json!({
        "method": "elicitation/create",
        "params": { "message": message, "requestedSchema": schema },
    });
    serde_json::value::to_raw_value(&request).expect("a request has only string keys")
}
