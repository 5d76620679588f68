//! What a tool may have in a form that a client shows: texts that a person sees as they are, and an object of flat fields. Pure.
//!
//! A form of something else is none: who asks is told so in a text.

use fleet::invisible::{first_invisible, is_invisible};
use serde_json::{Map, Value, json};

/// The most fields of a form.
const FIELDS_MAX: usize = 32;
/// The most characters of a field's name, its title, and what describes it.
const NAME_MAX: usize = 64;
const TITLE_MAX: usize = 200;
const DESCRIPTION_MAX: usize = 1_000;
/// The most line ends in a row: more would push what stands above them out of sight.
const LINE_ENDS_MAX: usize = 2;
/// What makes a field another one than its type says.
const NOT_FLAT: [&str; 8] = [
    "$ref",
    "$dynamicRef",
    "allOf",
    "not",
    "if",
    "properties",
    "prefixItems",
    "const",
];

/// A text as a person reads it, without what is not seen or turns the direction of others; `None`: it has more characters, or none.
pub(super) fn shown(text: &str, characters_max: usize) -> Option<String> {
    let mut shown = String::with_capacity(text.len());
    let (mut line_ends, mut before) = (0, None);
    for letter in text.trim().chars() {
        line_ends = match letter {
            '\n' => line_ends + 1,
            '\r' => line_ends,
            _ => 0,
        };
        let is_hidden = is_invisible(before, letter) || (letter.is_control() && letter != '\n');
        if !is_hidden && line_ends <= LINE_ENDS_MAX {
            shown.push(letter);
            before = Some(letter);
        }
    }
    let is_fit = !shown.is_empty() && shown.chars().count() <= characters_max;
    is_fit.then_some(shown)
}

/// Whether a text that goes back to its tool is seen as it is.
pub(super) fn is_seen(text: &str) -> bool {
    !text.chars().any(char::is_control) && first_invisible(text).is_none()
}

/// The schema of a form with what the protocol allows in it; `None`: it is of another form.
pub(super) fn form_schema(schema: &Value) -> Option<Value> {
    let given = schema.as_object()?;
    if given.get("type")?.as_str()? != "object" {
        return None;
    }
    let fields = fields(given.get("properties")?.as_object()?, field)?;
    let mut whole = json!({ "type": "object" });
    if let Some(required) = given.get("required") {
        whole["required"] = required_of(required, &fields)?;
    }
    whole["properties"] = fields.into();
    Some(whole)
}

/// These fields, each made by this.
pub(super) fn fields(
    given: &Map<String, Value>,
    make: impl Fn(&Value) -> Option<Value>,
) -> Option<Map<String, Value>> {
    let is_name =
        |name: &str| !name.is_empty() && is_seen(name) && name.chars().count() <= NAME_MAX;
    if given.len() > FIELDS_MAX || !given.keys().all(|name| is_name(name)) {
        return None;
    }
    let fields = given.iter();
    fields
        .map(|(name, field)| Some((name.clone(), make(field)?)))
        .collect()
}

/// The names of fields that have to be filled in, each once.
pub(super) fn required_of(given: &Value, fields: &Map<String, Value>) -> Option<Value> {
    let names = given.as_array()?.iter();
    let names: Vec<&str> = names.map(Value::as_str).collect::<Option<_>>()?;
    let is_fit = |(place, name): (usize, &&str)| {
        fields.contains_key(*name) && !names[..place].contains(name)
    };
    let are_fit = names.iter().enumerate().all(is_fit);
    are_fit.then(|| names.into())
}

/// A field that a form can have, with what its type knows; `None`: it is of another kind, or says of itself what its kind cannot mean.
pub(super) fn field(schema: &Value) -> Option<Value> {
    let given = schema.as_object()?;
    if NOT_FLAT.iter().any(|name| given.contains_key(*name)) {
        return None;
    }
    let kind = given.get("type")?.as_str()?;
    let mut made = json!({ "type": kind });
    let mut keep = |name: &str, check: &dyn Fn(&Value) -> Option<Value>| {
        if let Some(value) = given.get(name) {
            made[name] = check(value)?;
        }
        Some(())
    };
    keep("title", &|title| text(title, TITLE_MAX))?;
    keep("description", &|said| text(said, DESCRIPTION_MAX))?;
    match kind {
        "string" => {
            keep("enum", &choices)?;
            keep("enumNames", &choices)?;
            keep("oneOf", &titled_choices)?;
            keep("minLength", &count)?;
            keep("maxLength", &count)?;
            keep("format", &format)?;
            keep("default", &seen)?;
        }
        "integer" | "number" => {
            let number = |value: &Value| value.is_number().then(|| value.clone());
            keep("minimum", &number)?;
            keep("maximum", &number)?;
            keep("default", &number)?;
        }
        "boolean" => keep("default", &|value| {
            value.is_boolean().then(|| value.clone())
        })?,
        "array" => {
            given.get("items")?;
            keep("items", &items)?;
            keep("minItems", &count)?;
            keep("maxItems", &count)?;
            keep("default", &|chosen| {
                let chosen = chosen.as_array()?.iter();
                chosen.map(seen).collect()
            })?;
        }
        _ => return None,
    }
    Some(made)
}

/// Of a field with several choices.
fn items(given: &Value) -> Option<Value> {
    let given = given.as_object()?;
    match (given.get("enum"), given.get("anyOf")) {
        (Some(plain), None) => Some(json!({ "type": "string", "enum": choices(plain)? })),
        (None, Some(titled)) => Some(json!({ "anyOf": titled_choices(titled)? })),
        _ => None,
    }
}

fn choices(given: &Value) -> Option<Value> {
    let given = given.as_array().filter(|given| !given.is_empty())?;
    given.iter().map(seen).collect()
}

fn titled_choices(given: &Value) -> Option<Value> {
    let given = given.as_array().filter(|given| !given.is_empty())?;
    let titled = given.iter().map(|choice| {
        let (chosen, title) = (choice.get("const")?, choice.get("title")?);
        Some(json!({ "const": seen(chosen)?, "title": text(title, TITLE_MAX)? }))
    });
    titled.collect()
}

fn format(given: &Value) -> Option<Value> {
    const FORMATS: [&str; 4] = ["email", "uri", "date", "date-time"];
    let is_known = FORMATS.contains(&given.as_str()?);
    is_known.then(|| given.clone())
}

fn count(given: &Value) -> Option<Value> {
    given.is_u64().then(|| given.clone())
}

fn text(given: &Value, characters_max: usize) -> Option<Value> {
    shown(given.as_str()?, characters_max).map(Value::from)
}

fn seen(given: &Value) -> Option<Value> {
    is_seen(given.as_str()?).then(|| given.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_nothing_that_nobody_sees_and_so_many_characters() {
        for (text, expected) in [
            ("Which one?", Some("Which one?")),
            ("a\u{202e}b\u{200b}c\u{7}\u{1b}[2Jd", Some("abc[2Jd")),
            ("a\n\n\n\r\n\n\nb", Some("a\n\nb")),
            ("苏黎世 👩\u{200d}🚀", Some("苏黎世 👩\u{200d}🚀")),
            ("\u{202e}\n", None),
            ("12345678901234567", None),
        ] {
            assert_eq!(shown(text, 16).as_deref(), expected, "{text:?}");
        }
    }

    fn of(field: &Value) -> Option<Value> {
        let schema = json!({"type": "object", "properties": { "a": field }});
        form_schema(&schema).map(|schema| schema["properties"]["a"].clone())
    }

    #[test]
    fn fields_that_the_protocol_has_stay_as_they_are() {
        for field in [
            json!({"type": "string", "title": "T", "description": "D", "minLength": 1, "maxLength": 9, "format": "email", "default": "x"}),
            json!({"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]}),
            json!({"type": "string", "oneOf": [{"const": "a", "title": "A"}]}),
            json!({"type": "integer", "minimum": 1, "maximum": 3, "default": 2}),
            json!({"type": "number", "default": 1.5}),
            json!({"type": "boolean", "default": false}),
            json!({"type": "array", "items": {"type": "string", "enum": ["a"]}, "minItems": 1, "maxItems": 2, "default": ["a"]}),
            json!({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}),
        ] {
            assert_eq!(of(&field).as_ref(), Some(&field));
        }
        // What the protocol does not know says nothing to a client.
        let more = json!({"type": "string", "pattern": "^a", "examples": ["a"]});
        assert_eq!(of(&more), Some(json!({"type": "string"})));
        let hidden = json!({"type": "string", "title": "a\u{202e}b"});
        assert_eq!(of(&hidden), Some(json!({"type": "string", "title": "ab"})));
    }

    #[test]
    fn what_is_no_flat_field_is_no_form() {
        for field in [
            json!(null),
            json!("string"),
            json!({}),
            json!({"type": "object", "properties": {}}),
            json!({"type": ["string", "null"]}),
            json!({"type": "string", "$ref": "#"}),
            json!({"type": "string", "minLength": -1}),
            json!({"type": "string", "format": "regex"}),
            json!({"type": "string", "default": 1}),
            json!({"type": "string", "default": "a\u{200b}"}),
            json!({"type": "string", "enum": []}),
            json!({"type": "string", "enum": [1]}),
            json!({"type": "string", "enum": ["a\u{202e}"]}),
            json!({"type": "string", "oneOf": [{"const": "a"}]}),
            json!({"type": "string", "title": 1}),
            json!({"type": "string", "description": "x".repeat(1_001)}),
            json!({"type": "integer", "minimum": "1"}),
            json!({"type": "boolean", "default": "true"}),
            json!({"type": "array"}),
            json!({"type": "array", "items": {"type": "object"}}),
            json!({"type": "array", "items": {"type": "string", "enum": ["a"]}, "default": "a"}),
        ] {
            assert_eq!(of(&field), None, "{field}");
        }
        let text = json!({"type": "string"});
        for schema in [
            json!([]),
            json!({"properties": {}}),
            json!({"type": "string", "properties": {}}),
            json!({"type": "object"}),
            json!({"type": "object", "properties": {"": text}}),
            json!({"type": "object", "properties": {"a\u{202e}": text}}),
            json!({"type": "object", "properties": {"a": text}, "required": "a"}),
            json!({"type": "object", "properties": {"a": text}, "required": [{"a": 1}]}),
            json!({"type": "object", "properties": {"a": text}, "required": ["b"]}),
            json!({"type": "object", "properties": {"a": text}, "required": ["a", "a"]}),
        ] {
            assert_eq!(form_schema(&schema), None, "{schema}");
        }
        let many: Map<String, Value> = (0..=FIELDS_MAX)
            .map(|n| (format!("f{n}"), text.clone()))
            .collect();
        assert_eq!(
            form_schema(&json!({"type": "object", "properties": many})),
            None
        );
    }
}
