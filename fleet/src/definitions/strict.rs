//! Converts a schema into the subset that `OpenAI`'s strict mode enforces, if that loses nothing.
//!
//! Strict mode requires every property. So an optional property becomes one that may be null, and the door removes its null
//! again. A keyword that only narrows a value and is not in the subset goes into the description, and the door still checks it.
//! Where the conversion would change which arguments a model can send, the tool is not strict.

mod optional;
mod place;

use serde_json::{Map, Value, json};

use self::place::{Keywords, Strict, at};
use super::{nulls::Nulls, size::Size, union::are_disjoint};
use crate::{
    arguments::{
        keywords::{required, types, values},
        pointer_segment, shorten,
    },
    manifest::Manifest,
};

/// The most nulls that the door removes from one call.
const NULLS_MAX: u32 = 64;
/// The most bytes of one constraint in a description.
const WORDS_BYTES_MAX: usize = 120;

const FORMATS: [&str; 9] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
];

/// The strict schema of this tool, or the reason that it has none: the place, and what is in the way.
pub(super) fn schema(shown: &Value, tool: &Manifest) -> Result<Value, String> {
    let strict = Strict { root: shown, tool };
    let schema = strict.root()?;
    let nulls = Nulls::new(shown).all();
    if nulls > NULLS_MAX {
        return Err(format!(
            "more than {NULLS_MAX} optional properties could be null in one call; require them, or bound their arrays with \
             maxItems"
        ));
    }
    Size::of(&schema).check()?;
    Ok(schema)
}

impl Strict<'_> {
    fn root(&self) -> Result<Value, String> {
        let mut schema = self.root.clone();
        let keywords = schema.as_object_mut().ok_or("the schema is no object")?;
        if ["anyOf", "oneOf", "allOf", "$ref", "enum", "const"]
            .iter()
            .any(|word| keywords.contains_key(*word))
        {
            return Err("the arguments as a whole are a union or a reference; strict mode wants their properties at the top".into());
        }
        // A tool without arguments.
        keywords.entry("properties").or_insert_with(|| json!({}));
        let mut strict = self.keywords(&schema, "")?;
        for defs in ["$defs", "definitions"] {
            let Some(all) = self.root.get(defs).and_then(Value::as_object) else {
                continue;
            };
            let mut converted = Map::new();
            for (name, schema) in all {
                let place = format!("/{defs}/{}", pointer_segment(name));
                converted.insert(name.clone(), Value::Object(self.keywords(schema, &place)?));
            }
            strict.insert(defs.to_owned(), converted.into());
        }
        Ok(strict.into())
    }

    fn keywords(&self, schema: &Value, place: &str) -> Result<Keywords, String> {
        let Some(source) = schema.as_object().filter(|source| !source.is_empty()) else {
            return Err(at(place, "takes any value; say its type"));
        };
        let mut strict = Map::new();
        let mut words = Vec::new();
        for (keyword, value) in source {
            let keyword = keyword.as_str();
            match keyword {
                "type" | "const" | "minimum" | "maximum" | "exclusiveMinimum"
                | "exclusiveMaximum" | "multipleOf" | "minItems" | "maxItems" => {
                    strict.insert(keyword.to_owned(), value.clone());
                }
                "enum" => {
                    let options = value.as_array().into_iter().flatten();
                    if options
                        .clone()
                        .any(|option| option.is_object() || option.is_array())
                    {
                        return Err(at(
                            place,
                            "has an enum of arrays or objects; list texts, numbers or booleans",
                        ));
                    }
                    strict.insert(keyword.to_owned(), value.clone());
                }
                "format"
                    if value
                        .as_str()
                        .is_some_and(|format| FORMATS.contains(&format)) =>
                {
                    strict.insert(keyword.to_owned(), value.clone());
                }
                // Groups with flags and classes of characters are written differently there.
                "pattern"
                    if value.as_str().is_some_and(|pattern| {
                        !pattern.contains("(?") && !pattern.contains("\\p")
                    }) =>
                {
                    strict.insert(keyword.to_owned(), value.clone());
                }
                "$ref" => {
                    // Not into one that is converted, for its contents change.
                    let known = |target: &str| {
                        let name = ["#/$defs/", "#/definitions/"]
                            .iter()
                            .find_map(|defs| target.strip_prefix(defs));
                        target == "#" || name.is_some_and(|name| !name.contains('/'))
                    };
                    if !value.as_str().is_some_and(known) {
                        return Err(at(
                            place,
                            "refers to a place other than # and #/$defs; move it there",
                        ));
                    }
                    strict.insert("$ref".to_owned(), value.clone());
                }
                "items" => {
                    let items = self.keywords(value, &format!("{place}/items"))?;
                    strict.insert(keyword.to_owned(), items.into());
                }
                "anyOf" | "oneOf" | "allOf" => {
                    strict.insert("anyOf".to_owned(), self.union(keyword, value, place)?);
                }
                "minLength" | "maxLength" | "uniqueItems" | "minProperties" | "maxProperties"
                | "format" | "pattern" | "default" | "examples" => {
                    let value = value.to_string();
                    words.push(format!("{keyword} {}", shorten(&value, WORDS_BYTES_MAX)));
                }
                // Properties are handled together; the other keywords do not say which values fit.
                "properties"
                | "required"
                | "additionalProperties"
                | "unevaluatedProperties"
                | "propertyNames"
                | "$defs"
                | "definitions"
                | "description"
                | "title"
                | "$comment"
                | "deprecated"
                | "readOnly"
                | "writeOnly" => {}
                other => {
                    return Err(at(
                        place,
                        &format!("uses {other}, which strict mode does not know"),
                    ));
                }
            }
        }
        if source.contains_key("properties") || types(schema).contains(&"object") {
            self.properties(schema, &mut strict, place)?;
        }
        let mut strict = typed(strict, place)?;
        let described = source.get("description").and_then(Value::as_str);
        if !words.is_empty() {
            let told = described.map_or_else(String::new, |told| format!("{told} "));
            strict.insert(
                "description".into(),
                format!("{told}[{}]", words.join("; ")).into(),
            );
        } else if let Some(described) = described {
            strict.insert("description".into(), described.into());
        }
        Ok(alone(strict))
    }

    fn union(&self, keyword: &str, branches: &Value, place: &str) -> Result<Value, String> {
        let branches = branches.as_array().map_or(&[][..], Vec::as_slice);
        if keyword == "allOf" && branches.len() > 1 {
            return Err(at(
                place,
                "uses allOf, which strict mode does not know; write it as one schema",
            ));
        }
        let disjoint = are_disjoint(branches, self.root);
        if keyword == "oneOf" && !disjoint {
            return Err(at(
                place,
                "has a oneOf of which several could fit; give each a constant of its own, or write anyOf",
            ));
        }
        let mut nulls = Nulls::new(self.root);
        if !disjoint && branches.iter().any(|branch| nulls.count(branch) > 0) {
            return Err(at(
                place,
                "is a union with optional properties of which several alternatives could fit; give each a constant of its own",
            ));
        }
        let convert = |(index, branch): (usize, &Value)| {
            self.keywords(branch, &format!("{place}/{keyword}/{index}"))
                .map(Value::Object)
        };
        branches.iter().enumerate().map(convert).collect()
    }

    fn properties(&self, schema: &Value, strict: &mut Keywords, place: &str) -> Result<(), String> {
        let closed = |keyword: &str| schema.get(keyword) == Some(&Value::Bool(false));
        for keyword in ["additionalProperties", "unevaluatedProperties"] {
            if schema.get(keyword).is_some() && !closed(keyword) {
                return Err(at(
                    place,
                    "takes properties of any name; strict mode wants every name declared",
                ));
            }
        }
        let declared = schema.get("properties").and_then(Value::as_object);
        let is_closed = closed("additionalProperties") || closed("unevaluatedProperties");
        let Some(declared) = declared.or(is_closed.then_some(&Map::new())).cloned() else {
            return Err(at(
                place,
                "declares no properties and takes any; declare them",
            ));
        };
        let required = required(schema);
        if let Some(name) = required.iter().find(|name| !declared.contains_key(**name)) {
            return Err(at(
                place,
                &format!("requires {name:?} without declaring it"),
            ));
        }
        let mut properties = Map::new();
        for (name, schema) in &declared {
            let place = format!("{place}/properties/{}", pointer_segment(name));
            let is_required = required.contains(&name.as_str());
            if *schema == Value::Bool(false) && !is_required {
                continue;
            }
            let keywords = self.keywords(schema, &place)?;
            let keywords = if is_required {
                keywords
            } else {
                self.optional(schema, keywords, &place)?
            };
            properties.insert(name.clone(), keywords.into());
        }
        let names: Vec<&String> = properties.keys().collect();
        strict.insert("required".into(), json!(names));
        strict.insert("properties".into(), properties.into());
        strict.insert("additionalProperties".into(), false.into());
        strict.entry("type").or_insert_with(|| "object".into());
        Ok(())
    }
}

/// Adds the type, which strict mode requires beside every enum and constant.
fn typed(mut strict: Keywords, place: &str) -> Result<Keywords, String> {
    let has = |word: &str| strict.contains_key(word);
    if has("anyOf") || has("$ref") {
        // Only a description may stand beside them.
        return if strict.len() == 1 {
            Ok(strict)
        } else {
            Err(at(
                place,
                "has more beside its union or reference than a description; write it into the alternatives",
            ))
        };
    }
    if !has("type") {
        let schema = Value::Object(strict.clone());
        let kinds = values(&schema).map(|options| {
            let mut kinds: Vec<&str> = options.into_iter().map(kind).collect();
            kinds.sort_unstable();
            kinds.dedup();
            kinds
        });
        let kinds = kinds.or_else(|| has("items").then(|| vec!["array"]));
        match kinds.as_deref() {
            Some([only]) => strict.insert("type".into(), (*only).into()),
            Some(several @ [_, ..]) => strict.insert("type".into(), json!(several)),
            Some([]) | None => return Err(at(place, "says no type")),
        };
    }
    let schema = Value::Object(strict);
    if types(&schema).contains(&"array") && schema.get("items").is_none() {
        return Err(at(place, "does not say what its items are"));
    }
    let Value::Object(strict) = schema else {
        unreachable!("an object was put in")
    };
    Ok(strict)
}

/// A reference cannot have a description beside it. A union can, even of one alternative.
fn alone(mut strict: Keywords) -> Keywords {
    if strict.len() > 1
        && let Some(target) = strict.remove("$ref")
    {
        strict.insert("anyOf".into(), json!([{"$ref": target}]));
    }
    strict
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() || number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests;
