//! Characters in what a model is told that a person who reads the manifest does not see.

use serde_json::Value;

use super::{linted::Linted, warnings::Warnings};
use crate::invisible::first_invisible;

/// Warns of them in the description, and in every name and text of the schemas.
pub(super) fn lint(subject: &Linted<'_>, warnings: &mut Warnings) {
    if let Some(description) = subject.description {
        text(description, "/description", warnings);
    }
    value(subject.input_schema, "/input_schema", warnings);
    if let Some(schema) = subject.output_schema {
        value(schema, "/output_schema", warnings);
    }
}

fn value(value: &Value, place: &str, warnings: &mut Warnings) {
    match value {
        Value::String(said) => text(said, place, warnings),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                self::value(item, &format!("{place}/{index}"), warnings);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                text(name, place, warnings);
                self::value(member, &format!("{place}/{}", segment(name)), warnings);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn text(text: &str, place: &str, warnings: &mut Warnings) {
    if let Some(hidden) = first_invisible(text) {
        let number = u32::from(hidden);
        warnings.add(
            place,
            format!("it has a character that is not seen, U+{number:04X}: people do not read what a model reads; take it out"),
        );
    }
}

fn segment(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
