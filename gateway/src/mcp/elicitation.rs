//! Forms that a client shows to its user: those that are made here, and what its user did with one. Pure.

use bytes::Bytes;
use fleet::{call::Language, said};
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

use super::{
    form_schema::{field, fields, required_of, shown},
    members::RawMembers,
};

/// The most characters of a question that is asked in a form: longer ones nobody reads there.
pub(super) const QUESTION_MAX: usize = 4_000;
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
/// The name of the request for a yes: no tool's request has it.
pub(super) const APPROVAL: &str = "approval";
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
    let question = shown(&question, QUESTION_MAX)?;
    let (given, required) = match (schema.get("properties"), schema.get("required")) {
        (Some(Value::Object(fields)), required) => (fields, required),
        _ => (&schema, None),
    };
    let fields = fields(given, plain_field)?;
    if fields.is_empty() {
        return None;
    }
    let required = match required {
        Some(required) => required_of(required, &fields)?,
        None => fields.keys().cloned().collect(),
    };
    let schema = json!({ "type": "object", "properties": fields, "required": required });
    Some((asks(tool, &question, language), schema))
}

/// The words of a tool, as they are shown: nobody takes them for those of the fleet.
pub(super) fn asks(tool: &str, question: &str, language: Language) -> String {
    let message = said!(
        "The tool {tool} asks: {question}",
        "工具 {tool} 询问：{question}"
    );
    message.told(language).to_owned()
}

/// A field that a form can have: a kind by its word, or a schema of one.
fn plain_field(field_schema: &Value) -> Option<Value> {
    const KINDS: [&str; 4] = ["string", "integer", "number", "boolean"];
    match field_schema {
        Value::String(kind) if KINDS.contains(&kind.as_str()) => Some(json!({ "type": kind })),
        Value::Object(schema) => {
            let kind = schema.get("type")?.as_str()?;
            let is_known = schema.keys().all(|name| OF_FIELDS.contains(&name.as_str()));
            field(field_schema).filter(|_| KINDS.contains(&kind) && is_known)
        }
        _ => None,
    }
}

/// The text and the form in which a yes is asked for. `arguments`: those that are shown; `None`: they are withheld, for some are sensitive.
pub(super) fn approval(
    tool: &str,
    arguments: Option<&str>,
    reason: Option<&str>,
    language: Language,
) -> (String, Value) {
    let reason = reason.map_or_else(String::new, |reason| format!("\n{reason}"));
    let message = match arguments {
        Some(arguments) => said!(
            "May the tool {tool} run with exactly these arguments? Nothing has happened yet.{reason}\n\n{arguments}",
            "是否允许工具 {tool} 以下列参数执行？目前尚未执行任何操作。{reason}\n\n{arguments}"
        ),
        None => said!(
            "May the tool {tool} run with the arguments that its call was made with? Nothing has happened yet.{reason}\n\nAll of the \
             arguments are withheld here, because some of them are sensitive. Whoever made the call knows them.",
            "是否允许工具 {tool} 以发起调用时的参数执行？目前尚未执行任何操作。{reason}\n\n由于其中含有敏感值，所有参数在此处都不显示；\
             发起调用的一方知道这些参数。"
        ),
    };
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
