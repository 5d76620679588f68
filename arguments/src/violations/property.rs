//! The sentences about a missing property and about a forbidden one.

use jsonschema::{ValidationError, paths::Location};
use serde_json::Value;

use super::naming::{VALUE_BYTES_MAX, any_of, each, listed, one_of, quoted, quoted_value};
use crate::{
    message::{Language, Message},
    nearest::nearest,
    schema::keywords::{self, beside},
};

/// Characters of a property's description that is repeated where the property is missing.
const DESCRIPTION_CHARS_MAX: usize = 80;

/// What may stand where an unexpected property stands, and which of those was probably meant.
pub(super) fn no_such_property(
    name: &str,
    error: &ValidationError<'_>,
    source: Option<&Value>,
) -> (Message, Option<Value>) {
    let properties = beside(error.schema_path(), source, "properties").and_then(Value::as_object);
    let Some(properties) = properties.filter(|properties| !properties.is_empty()) else {
        let nothing = Message::fixed("no such property; leave it out", "空缺（请删去此属性）");
        return (nothing, None);
    };
    let names = listed(properties.keys().map(|key| quoted(key, VALUE_BYTES_MAX)));
    let only = each(|language| match language {
        Language::En => format!("only the properties {}", names.told(language)),
        Language::Zh => format!("属性 {} 之一", names.told(language)),
    });
    let found = error.instance();
    let declared = || properties.keys().map(String::as_str);
    // What is there already was hardly meant once more.
    let meant = nearest(name, declared().filter(|name| found.get(*name).is_none()))
        .or_else(|| nearest(name, declared()))
        .filter(|meant| meant.len() <= VALUE_BYTES_MAX);
    (only, meant.map(Value::from))
}

/// What a missing property should be: its name, its type, and what it means if that is said shortly.
pub(super) fn missing(property: &str, keyword_path: &Location, source: Option<&Value>) -> Message {
    let name = quoted(property, VALUE_BYTES_MAX);
    let schema = beside(keyword_path, source, "properties").and_then(|all| all.get(property));
    let resolved =
        schema.map(|schema| source.map_or(schema, |root| keywords::resolve(schema, root)));
    let wanted = resolved.and_then(wanted_by);
    let described = schema
        .and_then(|schema| schema.get("description"))
        .or_else(|| resolved?.get("description"))
        .and_then(Value::as_str)
        .filter(|text| text.chars().count() <= DESCRIPTION_CHARS_MAX)
        .filter(|text| !text.contains(char::is_control));
    each(|language| {
        let wanted = wanted.as_ref().map(|wanted| wanted.told(language));
        let told: Vec<&str> = wanted.into_iter().chain(described).collect();
        match (language, told.is_empty()) {
            (Language::En, true) => format!("the required property {name}"),
            (Language::En, false) => {
                format!("the required property {name} ({})", told.join(": "))
            }
            (Language::Zh, true) => format!("必填属性 {name}"),
            (Language::Zh, false) => format!("必填属性 {name}（{}）", told.join("：")),
        }
    })
}

/// What a schema wants at first sight: its values, its type, or the types of its alternatives.
fn wanted_by(schema: &Value) -> Option<Message> {
    if let Some(options) = schema.get("enum").and_then(Value::as_array) {
        return Some(one_of(options));
    }
    if let Some(only) = schema.get("const") {
        return Some(Message::verbatim(quoted_value(only)));
    }
    let types = |schema: &'_ Value| -> Option<Vec<String>> {
        let types = keywords::types(schema);
        (!types.is_empty()).then(|| types.into_iter().map(str::to_owned).collect())
    };
    let alternatives = || {
        let branches = schema.get("anyOf").or_else(|| schema.get("oneOf"))?;
        let all: Option<Vec<_>> = branches.as_array()?.iter().map(types).collect();
        Some(all?.concat())
    };
    let mut words = types(schema).or_else(alternatives)?;
    words.dedup();
    Some(any_of(
        &words.iter().map(String::as_str).collect::<Vec<_>>(),
    ))
}
