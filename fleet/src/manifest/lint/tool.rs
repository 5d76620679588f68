//! The tool as a whole: its name, its description, its keys and its probe.

use serde_json::Value;

use super::{keys, linted::Linted, names, warnings::Warnings};
use crate::{arguments::keywords, call::Effect, manifest::policy::KeyPolicy};

/// The most characters of a tool's description that every vendor takes.
const DESCRIPTION_MAX: usize = 1_024;
/// Names that say nothing about what a tool does.
const VAGUE: [&str; 28] = [
    "action", "api", "call", "do", "exec", "execute", "function", "get", "handle", "helper",
    "invoke", "job", "main", "make", "perform", "process", "query", "request", "run", "set",
    "start", "task", "test", "tool", "use", "util", "utils", "work",
];

/// Warns of what is unclear about the tool itself.
pub(super) fn lint(subject: &Linted<'_>, warnings: &mut Warnings) {
    let name = subject.name;
    if VAGUE.contains(&name) {
        warnings.add(
            "/name",
            format!(
                "a model chooses by the name too, and {name:?} fits everything; say what is done to what, such as \
                 get_weather"
            ),
        );
    }
    let described = subject.description;
    let says_little = |text: &str| names::weight(text) < 20 || names::is_name_again(text, name);
    if described.is_some_and(says_little) {
        warnings.add(
            "/description",
            "a model chooses by the description; say in a sentence what the tool does and when",
        );
    }
    let length = described.map_or(0, |text| text.chars().count());
    if length > DESCRIPTION_MAX {
        warnings.add(
            "/description",
            format!(
                "the description has {length} characters, and OpenAI takes {DESCRIPTION_MAX}; move what is about one \
                 argument to its property"
            ),
        );
    }
    if subject.is_half_probed {
        warnings.add(
            "/probe",
            "every answer for which applied_when is false counts as a no; say with not_applied_when what proves it",
        );
    }
    let is_derived = subject.key == Some(KeyPolicy::FromArguments);
    if is_derived && subject.effect == Some(Effect::Read) {
        warnings.add(
            "/key",
            "a call with the same arguments gets the first answer until the key lapses, however old it is; \
             leave key out unless the answer never changes",
        );
    }
    keys::lint(subject, warnings);
    if subject.takes_any_rows && subject.writes() {
        warnings.add(
            "/executor/sql/rows",
            "a write that finds no row to change succeeds all the same; say how many rows it must change or return, such \
             as rows: {min: 1, max: 1}, and anything else is rolled back",
        );
    }
    if let Some(pointer) = subject.rate_pointer
        && is_free_text(subject.input_schema, pointer)
    {
        warnings.add(
            "/rate_limit/by",
            format!(
                "a model can write one value of {pointer} in several ways, such as with a capital, and each of them may start as \
                 often; give it an enum, a pattern or a format, or write tenant"
            ),
        );
    }
    if subject.shows_secrets {
        warnings.add(
            "/redact_results",
            "a secret that the tool repeats in an answer is stored and handed to the caller; leave this out unless answers \
             must hold it",
        );
    }
    if is_derived && subject.writes() && has_keyword(subject.input_schema, "default") {
        warnings.add(
            "/key",
            "the key is made of the arguments with their defaults: once a later version has another default, a repeated \
             request is a new call; require these arguments, or let callers send a key",
        );
    }
}

/// Whether the value at this place may be any text, as far as its properties say it.
fn is_free_text(schema: &Value, pointer: &str) -> bool {
    let place = pointer.replace('/', "/properties/");
    let Some(property) = schema.pointer(&place) else {
        return false;
    };
    let narrows = ["enum", "const", "pattern", "format"];
    keywords::types(property).contains(&"string")
        && !narrows
            .iter()
            .any(|keyword| property.get(keyword).is_some())
}

/// Whether a key of this name occurs anywhere in a value.
fn has_keyword(value: &Value, keyword: &str) -> bool {
    match value {
        Value::Object(entries) => {
            entries.contains_key(keyword)
                || entries.values().any(|value| has_keyword(value, keyword))
        }
        Value::Array(items) => items.iter().any(|item| has_keyword(item, keyword)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
