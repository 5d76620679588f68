//! What a schema says about the values at a place, whichever of its branches apply.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    iter, ptr,
};

use jsonschema::JsonType;
use serde_json::Value;

use crate::{kind, pointer};

/// Names of properties, with every schema that says something about each.
pub(crate) type Declared<'s> = BTreeMap<&'s str, Vec<&'s Value>>;

/// Every schema that may apply to the value at `place` of `args`.
pub(crate) fn schemas_at<'s>(root: &'s Value, args: &Value, place: &str) -> Vec<&'s Value> {
    in_place(root, outermost_at(root, args, place))
}

/// Those that the schemas around `place` apply to the value there, not yet those that these apply to it in turn.
pub(crate) fn outermost_at<'s>(root: &'s Value, args: &Value, place: &str) -> Vec<&'s Value> {
    let mut value = Some(args);
    let mut outermost = vec![root];
    for segment in pointer::segments(place) {
        outermost = below(
            &in_place(root, outermost),
            value.unwrap_or(&Value::Null),
            &segment,
        );
        value = value.and_then(|value| match value {
            Value::Array(items) => items.get(segment.parse::<usize>().ok()?),
            other => other.get(&*segment),
        });
    }
    outermost
}

/// What these schemas of a value apply to the part of it that has this name or index.
pub(crate) fn below<'s>(schemas: &[&'s Value], value: &Value, segment: &str) -> Vec<&'s Value> {
    match value {
        Value::Array(_) => items(schemas, segment.parse().unwrap_or(usize::MAX)),
        _object_or_absent => properties(schemas, segment),
    }
}

/// The parts of a value with their names or indices.
pub(crate) fn parts(value: &Value) -> Box<dyn Iterator<Item = (Cow<'_, str>, &Value)> + '_> {
    match value {
        Value::Array(items) => Box::new(
            (items.iter().enumerate()).map(|(index, item)| (index.to_string().into(), item)),
        ),
        Value::Object(entries) => {
            Box::new((entries.iter()).map(|(name, part)| (name.into(), part)))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Box::new(iter::empty())
        }
    }
}

/// Looks at the whole and at every value in it, with all schemas that may apply to each.
pub(crate) fn visit<'s, 'a>(
    root: &'s Value,
    args: &'a Value,
    look: &mut dyn FnMut(&[&'s Value], &'a Value),
) {
    let mut open = vec![(vec![root], args)];
    while let Some((outermost, value)) = open.pop() {
        let all = in_place(root, outermost);
        look(&all, value);
        let containers = parts(value).filter(|(_, part)| part.is_object() || part.is_array());
        open.extend(containers.map(|(name, part)| (below(&all, value, &name), part)));
    }
}

/// The schemas of all properties that could stand somewhere in these arguments and do not.
pub(crate) fn absent<'s>(root: &'s Value, args: &Value) -> Vec<&'s Value> {
    let mut absent = Vec::new();
    visit(root, args, &mut |schemas, value| {
        let is_missing = |name: &str| value.is_object() && value.get(name).is_none();
        let declared = declared(schemas).into_iter();
        let missing = declared.filter(|(name, _)| is_missing(name));
        absent.extend(missing.flat_map(|(_, schemas)| schemas));
    });
    let mut seen = HashSet::new();
    absent.retain(|schema| seen.insert(ptr::from_ref(*schema)));
    absent
}

/// Whether some items of an array have a schema of their own.
pub(crate) fn is_tuple(schemas: &[&Value]) -> bool {
    schemas.iter().any(|s| s.get("prefixItems").is_some())
}

/// Every schema that may apply to an item of an array that one of these describes.
pub(crate) fn of_items<'s>(root: &'s Value, schemas: &[&'s Value]) -> Vec<&'s Value> {
    in_place(
        root,
        [items(schemas, 0), items(schemas, usize::MAX)].concat(),
    )
}

/// The properties that any of these schemas names, with what each says about it.
pub(crate) fn declared<'s>(schemas: &[&'s Value]) -> Declared<'s> {
    let mut declared = Declared::new();
    for (name, schema) in schemas
        .iter()
        .filter_map(|schema| schema.get("properties")?.as_object())
        .flatten()
    {
        declared.entry(name).or_default().push(schema);
    }
    declared
}

/// Whether these schemas of an object say what its properties of any name are.
pub(crate) fn is_map(schemas: &[&Value]) -> bool {
    let says = |schema: &&Value| {
        [
            "patternProperties",
            "additionalProperties",
            "unevaluatedProperties",
        ]
        .iter()
        .any(|keyword| schema.get(keyword).is_some_and(Value::is_object))
    };
    schemas.iter().any(says)
}

/// Whether a schema may accept a value of this kind; with `exactly`, whether its words or numbers allow this one.
pub(crate) fn may_be(
    root: &Value,
    schema: &Value,
    kind: JsonType,
    exactly: Option<&Value>,
) -> bool {
    let option =
        |option: &Value| kind::is(option, kind) && exactly.is_none_or(|value| value == option);
    may(root, schema, &|keyword, argument| match keyword {
        "type" => any(argument, |name| names(name, kind)),
        "enum" => any(argument, option),
        "const" => option(argument),
        _says_nothing_of_the_kind => true,
    })
}

/// Whether a schema may accept an object with a property that it does not name.
pub(crate) fn takes_other_names(root: &Value, schema: &Value) -> bool {
    may_be(root, schema, JsonType::Object, None)
        && may(root, schema, &|keyword, argument| match keyword {
            "additionalProperties" | "unevaluatedProperties" => argument != &Value::Bool(false),
            _says_nothing_of_names => true,
        })
}

/// Whether a schema and those that it applies to the same value may accept what `allows` says of each keyword.
fn may(root: &Value, schema: &Value, allows: &dyn Fn(&str, &Value) -> bool) -> bool {
    let Value::Object(keywords) = schema else {
        return schema != &Value::Bool(false);
    };
    let inner = |schema: &Value| may(root, schema, allows);
    keywords
        .iter()
        .all(|(keyword, argument)| match keyword.as_str() {
            "$ref" => target(root, argument).is_none_or(inner),
            "allOf" => argument.as_array().is_none_or(|all| all.iter().all(inner)),
            "anyOf" | "oneOf" => any(argument, inner),
            keyword => allows(keyword, argument),
        })
}

/// Whether it is so of a value, or of one of several.
fn any(argument: &Value, is_so: impl Fn(&Value) -> bool) -> bool {
    match argument {
        Value::Array(several) => several.iter().any(is_so),
        one => is_so(one),
    }
}

/// The schema that a `$ref` leads to.
pub(crate) fn target<'s>(root: &'s Value, reference: &Value) -> Option<&'s Value> {
    root.pointer(reference.as_str()?.strip_prefix('#')?)
}

fn names(name: &Value, kind: JsonType) -> bool {
    let named = name.as_str().and_then(|name| name.parse().ok());
    named.is_some_and(|named| kind::includes(named, kind))
}

/// These schemas and those that they apply to the same value.
pub(crate) fn in_place<'s>(root: &'s Value, mut schemas: Vec<&'s Value>) -> Vec<&'s Value> {
    let mut seen = HashSet::new();
    schemas.retain(|schema| seen.insert(ptr::from_ref(*schema)));
    let mut at = 0;
    while let Some(schema) = schemas.get(at).and_then(|schema| schema.as_object()) {
        for (keyword, argument) in schema {
            let applied: Vec<&Value> = match keyword.as_str() {
                "$ref" => target(root, argument).into_iter().collect(),
                "allOf" | "anyOf" | "oneOf" => argument.as_array().into_iter().flatten().collect(),
                "dependentSchemas" => argument
                    .as_object()
                    .into_iter()
                    .flat_map(|map| map.values())
                    .collect(),
                "if" | "then" | "else" => vec![argument],
                _applies_elsewhere => continue,
            };
            schemas.extend(
                applied
                    .into_iter()
                    .filter(|schema| schema.is_object() && seen.insert(ptr::from_ref(*schema))),
            );
        }
        at += 1;
    }
    schemas
}

/// These schemas and those that apply to the same value in any case.
pub(crate) fn certain<'s>(root: &'s Value, schemas: &[&'s Value]) -> Vec<&'s Value> {
    let mut all = schemas.to_vec();
    let mut at = 0;
    while let Some(schema) = all.get(at).copied() {
        for inner in also_certain(root, schema) {
            if !all.iter().any(|known| ptr::eq(*known, inner)) {
                all.push(inner);
            }
        }
        at += 1;
    }
    all
}

pub(super) fn also_certain<'s>(
    root: &'s Value,
    schema: &'s Value,
) -> impl Iterator<Item = &'s Value> {
    let target = schema
        .get("$ref")
        .and_then(|reference| target(root, reference));
    let all = schema.get("allOf").and_then(Value::as_array);
    target.into_iter().chain(all.into_iter().flatten())
}

fn properties<'s>(schemas: &[&'s Value], name: &str) -> Vec<&'s Value> {
    let of_one = |schema: &'s Value| {
        let named = schema.get("properties").and_then(|all| all.get(name));
        let patterns = schema.get("patternProperties").and_then(Value::as_object);
        let others = ["additionalProperties", "unevaluatedProperties"].map(|word| schema.get(word));
        named
            .into_iter()
            .chain(patterns.into_iter().flat_map(|patterns| patterns.values()))
            .chain(
                others
                    .into_iter()
                    .flatten()
                    .filter(move |_| named.is_none()),
            )
    };
    objects(schemas.iter().copied().flat_map(of_one))
}

/// Not of `contains`, which says nothing of any one item.
fn items<'s>(schemas: &[&'s Value], index: usize) -> Vec<&'s Value> {
    let of_one = |schema: &'s Value| {
        let prefix = schema.get("prefixItems").and_then(|all| all.get(index));
        let rest = schema.get("items").filter(|_| prefix.is_none());
        let others = schema.get("unevaluatedItems");
        (prefix.into_iter().chain(rest)).chain(others)
    };
    objects(schemas.iter().copied().flat_map(of_one))
}

fn objects<'s>(schemas: impl Iterator<Item = &'s Value>) -> Vec<&'s Value> {
    schemas.filter(|schema| schema.is_object()).collect()
}
