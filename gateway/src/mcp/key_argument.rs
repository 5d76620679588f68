//! The argument with which a model names its intention: tools that write show it over MCP, and the fleet never sees it.
//!
//! A protocol without keys leaves two wishes and one wish sent twice alike. So a model may say which it means, where the program around
//! it does not.

use bytes::Bytes;
use fleet::{
    ids::IdempotencyKey,
    said,
    wire::{code::Code, message::Message},
};
use serde_json::{Value, json};

use super::members::{NoMembers, RawMembers};
use crate::{refusal::Refused, value};

/// Its name, where the tool has none of that name.
const NAME: &str = "idempotency_key";

/// The name that the argument has at a tool with this input schema. Whatever is named like it anywhere in the schema keeps its name.
pub(super) fn name(input_schema: &Value) -> String {
    let taken = |name: &str| mentions(input_schema, name);
    if !taken(NAME) {
        return NAME.to_owned();
    }
    let mut names = (1..).map(|number| match number {
        1 => format!("toolfleet_{NAME}"),
        number => format!("toolfleet_{NAME}_{number}"),
    });
    let free = names.find(|name| !taken(name));
    free.expect("a schema mentions finitely many names")
}

/// Adds the argument to an input schema.
pub(super) fn show(input_schema: &mut Value) {
    let name = name(input_schema);
    let Some(schema) = input_schema.as_object_mut() else {
        return;
    };
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.insert(name, described());
    }
}

fn described() -> Value {
    json!({
        "type": "string",
        "maxLength": 255,
        "description": "Names the intention, in visible ASCII without spaces. Leave it out, or: the same intention, the same value, \
                        also when you try again; a new value only for a new intention. With equal arguments and no value, or the \
                        same one, nothing is done twice: you get the answer of the earlier call.",
    })
}

/// Whether the name stands anywhere in a schema.
fn mentions(schema: &Value, name: &str) -> bool {
    match schema {
        Value::Object(members) => members
            .iter()
            .any(|(key, value)| key == name || mentions(value, name)),
        Value::Array(items) => items.iter().any(|item| mentions(item, name)),
        Value::String(text) => text == name,
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Takes the argument of this name out: the key, and the arguments without it. Arguments that do not have it stay the bytes that they
/// are, and so does every value of those that do. What stands for nothing (`null`, an empty text) is no key.
///
/// # Errors
///
/// It stands there twice, or is no key.
pub(super) fn take(
    arguments: &Bytes,
    name: &str,
) -> Result<(Option<IdempotencyKey>, Bytes), Refused> {
    let members = match RawMembers::of(arguments) {
        Ok(members) => members,
        Err(NoMembers::Twice) if names_twice(arguments, name) => {
            let what = said!("{name} stands there twice", "{name} 出现了两次");
            return Err(Refused::new(Code::DuplicateKey, what).at(format!("/{name}")));
        }
        // The door says what is wrong with them.
        Err(NoMembers::Twice | NoMembers::TooMany | NoMembers::NoObject) => {
            return Ok((None, arguments.clone()));
        }
    };
    let Some(value) = members.get(name) else {
        return Ok((None, arguments.clone()));
    };
    let rest = members.without(name);
    match value::read(value) {
        Some(Value::Null) => Ok((None, rest)),
        Some(Value::String(text)) if text.trim().is_empty() => Ok((None, rest)),
        Some(Value::String(text)) => match text.parse() {
            Ok(key) => Ok((Some(key), rest)),
            Err(bad) => {
                let refused = Refused::name(Code::InvalidIdempotencyKey, &bad);
                Err(refused.at(format!("/{name}")))
            }
        },
        Some(_) | None => {
            let what = Message::fixed("an idempotency key must be a string", "幂等键必须是字符串");
            Err(Refused::new(Code::InvalidIdempotencyKey, what).at(format!("/{name}")))
        }
    }
}

/// Whether the argument itself is what stands twice.
fn names_twice(arguments: &Bytes, name: &str) -> bool {
    let fields = str::from_utf8(arguments).ok().map(crate::form::Fields::of);
    match fields {
        Some(Ok(fields)) => fields.values(name).count() > 1,
        Some(Err(_)) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(arguments: &'static str) -> (Option<String>, String) {
        let (key, rest) = take(&Bytes::from_static(arguments.as_bytes()), NAME).unwrap();
        let rest = String::from_utf8(rest.to_vec()).unwrap();
        (key.map(|key| key.as_str().to_owned()), rest)
    }

    #[test]
    fn arguments_without_it_are_the_bytes_that_they_were() {
        for arguments in [
            "{ \"b\" : 1.10, \"a\":9007199254740993 }",
            "{\"a\":1,\"a\":2}",
            "[1]",
            "null",
            "\"{}\"",
            "{",
        ] {
            assert_eq!(taken(arguments), (None, arguments.to_owned()));
        }
    }

    #[test]
    fn it_is_taken_out_and_nothing_else_changes() {
        for (arguments, key, rest) in [
            (
                r#"{"b": 1.10, "idempotency_key":"k-1", "a": {"x" : 9007199254740993}}"#,
                Some("k-1"),
                r#"{"b":1.10,"a":{"x" : 9007199254740993}}"#,
            ),
            (r#"{"idempotency_key":null}"#, None, "{}"),
            (r#"{"idempotency_key":"", "a":1E2}"#, None, r#"{"a":1E2}"#),
            (r#"{"idempotenc\u0079_key":"k"}"#, Some("k"), "{}"),
        ] {
            let (got, left) = taken(arguments);
            assert_eq!((got.as_deref(), left.as_str()), (key, rest), "{arguments}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for arguments in [
            r#"{"idempotency_key":1}"#,
            r#"{"idempotency_key":"a b"}"#,
            r#"{"idempotency_key":{"a":1}}"#,
            r#"{"idempotency_key":"a","idempotency_key":"b"}"#,
        ] {
            assert!(
                take(&Bytes::from_static(arguments.as_bytes()), NAME).is_err(),
                "{arguments}"
            );
        }
    }

    #[test]
    fn a_tool_that_has_it_keeps_it() {
        let plain = json!({"type": "object", "properties": {"a": {}}});
        assert_eq!(name(&plain), "idempotency_key");
        for own in [
            json!({"properties": {"idempotency_key": {}}}),
            json!({"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"idempotency_key": {}}}}}),
            json!({"required": ["idempotency_key"]}),
        ] {
            assert_eq!(name(&own), "toolfleet_idempotency_key");
        }
        let both = json!({"properties": {"idempotency_key": {}, "toolfleet_idempotency_key": {}}});
        assert_eq!(name(&both), "toolfleet_idempotency_key_2");
        let mut shown = plain;
        show(&mut shown);
        assert_eq!(shown["properties"]["idempotency_key"]["type"], "string");
        let mut bare = json!({"type": "object"});
        show(&mut bare);
        assert!(bare["properties"]["idempotency_key"].is_object());
    }
}
