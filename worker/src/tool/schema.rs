//! The JSON Schema of a type, as a manifest takes it.
//!
//! The schema that schemars derives is adapted in three ways. Formats that JSON Schema does not know (`uint32`) become bounds,
//! so that a value that fits the schema also fits the type. Objects are closed. And the name of the dialect is left out.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Number, Value};

/// The schema of arguments.
pub(super) fn of_args<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    let mut schema = derive::<T>(settings);
    close(&mut schema, false);
    if let Value::Object(root) = &mut schema
        && root.get("type").is_some_and(|kind| kind == "object")
        && !root.keys().any(|keyword| is_about_properties(keyword))
    {
        // A struct without fields.
        root.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    schema
}

/// The schema of a result. It stays open, for a reader of results ignores members that it does not know.
pub(super) fn of_output<T: JsonSchema>() -> Value {
    derive::<T>(SchemaSettings::draft2020_12().for_serialize())
}

fn derive<T: JsonSchema>(settings: SchemaSettings) -> Value {
    let settings = settings.with(|settings| settings.meta_schema = None);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().into();
    each(&mut schema, &mut bound);
    schema
}

/// Replaces a format that only Rust knows by the bounds that it stands for.
fn bound(schema: &mut Map<String, Value>) {
    let Some(format) = schema.get("format").and_then(Value::as_str) else {
        return;
    };
    let bounds: Option<(Number, Number)> = match format {
        "int8" => Some((i8::MIN.into(), i8::MAX.into())),
        "int16" => Some((i16::MIN.into(), i16::MAX.into())),
        "int32" => Some((i32::MIN.into(), i32::MAX.into())),
        "int64" | "int" => Some((i64::MIN.into(), i64::MAX.into())),
        "uint8" => Some((u8::MIN.into(), u8::MAX.into())),
        "uint16" => Some((u16::MIN.into(), u16::MAX.into())),
        "uint32" => Some((u32::MIN.into(), u32::MAX.into())),
        "uint64" | "uint" => Some((u64::MIN.into(), u64::MAX.into())),
        "int128" | "uint128" | "float" | "double" => None,
        _of_json_schema => return,
    };
    schema.remove("format");
    if let Some((min, max)) = bounds {
        schema.entry("minimum").or_insert(Value::Number(min));
        schema.entry("maximum").or_insert(Value::Number(max));
    }
}

/// Visits every schema of a document, the innermost last.
fn each(schema: &mut Value, visit: &mut impl FnMut(&mut Map<String, Value>)) {
    let Value::Object(keywords) = schema else {
        return;
    };
    visit(keywords);
    for (keyword, value) in keywords {
        for inner in subschemas(keyword, value) {
            each(inner, visit);
        }
    }
}

/// Refuses properties that are not declared, in every object that declares some.
///
/// Where several schemas describe one object, as with a flattened enum, none of them knows the properties of the others. Then
/// the outermost one is closed, over the properties of all of them.
fn close(schema: &mut Value, within: bool) {
    let Value::Object(keywords) = schema else {
        return;
    };
    let declares = keywords.contains_key("properties");
    let composed = keywords.keys().any(|keyword| is_in_place(keyword));
    let open = keywords.contains_key("additionalProperties")
        || keywords.contains_key("unevaluatedProperties");
    for (keyword, value) in &mut *keywords {
        let same_object = is_in_place(keyword) && (declares || within);
        for inner in subschemas(keyword, value) {
            close(inner, same_object);
        }
    }
    if declares && !open && !within {
        let keyword = if composed {
            "unevaluatedProperties"
        } else {
            "additionalProperties"
        };
        keywords.insert(keyword.to_owned(), Value::Bool(false));
    }
}

/// Keywords whose schemas apply to the same value.
fn is_in_place(keyword: &str) -> bool {
    matches!(
        keyword,
        "allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else" | "$ref"
    )
}

fn is_about_properties(keyword: &str) -> bool {
    is_in_place(keyword)
        || matches!(
            keyword,
            "properties" | "patternProperties" | "additionalProperties" | "unevaluatedProperties"
        )
}

/// The schemas below a keyword.
fn subschemas<'a>(keyword: &str, value: &'a mut Value) -> Vec<&'a mut Value> {
    match (keyword, value) {
        (
            "properties" | "patternProperties" | "$defs" | "dependentSchemas",
            Value::Object(named),
        ) => named.values_mut().collect(),
        ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(list)) => {
            list.iter_mut().collect()
        }
        (
            "items"
            | "additionalProperties"
            | "unevaluatedProperties"
            | "propertyNames"
            | "contains"
            | "not"
            | "if"
            | "then"
            | "else",
            one @ Value::Object(_),
        ) => vec![one],
        _no_schema => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fleet::arguments::Schema;
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    fn fits<T: JsonSchema>(value: &Value) -> bool {
        let schema = of_args::<T>();
        let compiled =
            Schema::compile_input(&schema).unwrap_or_else(|why| panic!("{why:?} {schema}"));
        compiled.is_valid(value)
    }

    #[derive(Deserialize, JsonSchema)]
    struct Nothing {}

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Open {
        known: bool,
        #[serde(flatten)]
        others: BTreeMap<String, Value>,
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Flattened {
        known: bool,
        #[serde(flatten)]
        way: Way,
        inner: Option<Box<Inner>>,
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(tag = "way", rename_all = "snake_case")]
    #[expect(dead_code, reason = "only its schema is looked at")]
    enum Way {
        Rail { seats: u8 },
        Road { lanes: i64 },
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Inner {
        next: Vec<Inner>,
    }

    #[test]
    fn objects_are_closed_unless_the_type_says_otherwise() {
        assert!(fits::<Nothing>(&json!({})));
        assert!(!fits::<Nothing>(&json!({"a": 1})));
        assert!(fits::<Open>(&json!({"known": true, "other": 1})));
        let rail = json!({"known": true, "way": "rail", "seats": 3});
        assert!(fits::<Flattened>(&rail), "{}", of_args::<Flattened>());
        let more = json!({"known": true, "way": "rail", "seats": 3, "more": 1});
        assert!(!fits::<Flattened>(&more), "{}", of_args::<Flattened>());
    }

    #[test]
    fn definitions_and_numbers_are_as_strict_as_the_types() {
        let with = |inner: Value| json!({"known": true, "way": "road", "lanes": 1, "inner": inner});
        assert!(fits::<Flattened>(&with(json!({"next": [{"next": []}]}))));
        assert!(!fits::<Flattened>(&with(
            json!({"next": [{"next": [], "other": 1}]})
        )));
        let seats = |seats: u64| json!({"known": true, "way": "rail", "seats": seats});
        assert!(fits::<Flattened>(&seats(255)));
        assert!(!fits::<Flattened>(&seats(256)));
        let lanes =
            serde_json::from_str(r#"{"known": true, "way": "road", "lanes": 9223372036854775808}"#);
        assert!(!fits::<Flattened>(&lanes.unwrap()));
    }
}
