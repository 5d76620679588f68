//! The input schema, at every level that a model fills in.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{keyword::says, linted::Linted, names, values, warnings::Warnings};
use crate::{
    arguments::{Inner, inner, keywords},
    manifest::required,
};

const ROOT: &str = "/input_schema";

pub(super) fn lint(subject: &Linted<'_>, warnings: &mut Warnings) {
    let schema = subject.input_schema;
    for union in ["anyOf", "oneOf", "allOf"] {
        if says(schema, union) {
            warnings.add(
                format!("{ROOT}/{union}"),
                "OpenAI and Anthropic refuse a union at the top of the arguments; put it into one property",
            );
        }
    }
    let mut parts = BTreeSet::new();
    collect_parts(schema, &mut parts);
    let linter = Linter {
        writes: subject.writes(),
        names_are_its_own: !subject.asks_a_model,
        tool: subject.name,
        parts,
        refused: required::refused(schema)
            .into_iter()
            .map(|problem| problem.path)
            .collect(),
    };
    linter.schema(schema, ROOT, true, Extent::Whole, warnings);
}

/// Whether a schema describes its value alone, or together with the schema around it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    Of,
}

struct Linter<'a> {
    writes: bool,
    names_are_its_own: bool,
    tool: &'a str,
    /// Definitions that are part of another schema by allOf.
    parts: BTreeSet<&'a str>,
    /// Places that no call can fill: those are problems, not warnings.
    refused: BTreeSet<String>,
}

fn collect_parts<'v>(schema: &'v Value, parts: &mut BTreeSet<&'v str>) {
    for below in inner(schema) {
        let target = below.schema.get("$ref").and_then(Value::as_str);
        if let ("allOf", Some(target)) = (below.keyword, target) {
            parts.insert(target);
        }
        collect_parts(below.schema, parts);
    }
}

impl Linter<'_> {
    fn schema(
        &self,
        schema: &Value,
        place: &str,
        top: bool,
        part: Extent,
        warnings: &mut Warnings,
    ) {
        if !schema.is_object() {
            return;
        }
        if part == Extent::Whole {
            self.object(schema, place, top, warnings);
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        if let Some(properties) = properties {
            let may_wrap = top && self.names_are_its_own;
            names::lint(properties, place, may_wrap, self.tool, warnings);
            self.properties(schema, properties, place, warnings);
        }
        values::lint(schema, place, self.writes, warnings);
        for below in inner(schema) {
            let Some(part) = self.part(schema, &below) else {
                continue;
            };
            let place = format!("{place}{}", below.place);
            self.schema(below.schema, &place, false, part, warnings);
        }
    }

    /// How a nested schema is linted; `None` for conditions, which no model fills in.
    fn part(&self, outer: &Value, below: &Inner<'_>) -> Option<Extent> {
        match below.keyword {
            "properties"
            | "items"
            | "prefixItems"
            | "additionalProperties"
            | "patternProperties" => Some(Extent::Whole),
            "allOf" => Some(Extent::Of),
            "anyOf" | "oneOf" => {
                let shared = says(outer, "properties") || says(outer, "unevaluatedProperties");
                Some(if shared { Extent::Of } else { Extent::Whole })
            }
            "$defs" | "definitions" => {
                let target = format!("#{}", below.place);
                let is_part = self.parts.contains(target.as_str());
                Some(if is_part { Extent::Of } else { Extent::Whole })
            }
            _condition => None,
        }
    }

    /// Whether an object declares its properties.
    fn object(&self, schema: &Value, place: &str, top: bool, warnings: &mut Warnings) {
        let is_object = says(schema, "properties") || keywords::types(schema).contains(&"object");
        let closed = ["additionalProperties", "unevaluatedProperties"]
            .iter()
            .any(|keyword| {
                matches!(
                    schema.get(keyword),
                    Some(Value::Bool(false) | Value::Object(_))
                )
            });
        if !is_object || closed {
            return;
        }
        let declares = [
            "properties",
            "patternProperties",
            "allOf",
            "anyOf",
            "oneOf",
            "$ref",
        ];
        if !top && !declares.iter().any(|keyword| says(schema, keyword)) {
            warnings.add(
                place,
                "the object may hold anything, so a model has to guess what; declare its properties, or say with \
                 additionalProperties: {type: …} what each holds",
            );
        } else if self.writes {
            // additionalProperties does not see the properties that these declare.
            let elsewhere = ["allOf", "anyOf", "oneOf", "$ref"];
            let keyword = match elsewhere.iter().any(|keyword| says(schema, keyword)) {
                true => "unevaluatedProperties",
                false => "additionalProperties",
            };
            warnings.add(
                place,
                format!("a write accepts undeclared properties; add {keyword}: false"),
            );
        }
    }

    fn properties(
        &self,
        schema: &Value,
        properties: &Map<String, Value>,
        place: &str,
        warnings: &mut Warnings,
    ) {
        let required = keywords::required(schema);
        for name in required
            .iter()
            .filter(|name| !properties.contains_key(**name))
        {
            let place = format!("{place}/required");
            if self.refused.contains(&place) {
                continue;
            }
            let why = match schema.get("additionalProperties") {
                Some(Value::Bool(false)) => {
                    "and no other property is allowed there, so no value fits"
                }
                _open => "so a model does not know what it is",
            };
            warnings.add(
                place,
                format!("{name:?} is required and not declared, {why}; add it to properties"),
            );
        }
        for below in inner(schema) {
            let ("properties", Some(name)) = (below.keyword, below.name) else {
                continue;
            };
            let path = format!("{place}{}", below.place);
            property(
                name,
                below.schema,
                &path,
                required.contains(&name),
                warnings,
            );
        }
    }
}

fn property(name: &str, schema: &Value, path: &str, required: bool, warnings: &mut Warnings) {
    if schema == &Value::Bool(false) {
        return;
    }
    let refers = says(schema, "$ref");
    match schema.get("description").and_then(Value::as_str) {
        // The target of a reference has its own description, and a constant needs no choice.
        None if refers || says(schema, "const") => {}
        None => warnings.add(
            path,
            "the property has no description; say what it means and give an example",
        ),
        Some(described) if names::is_useless(described, name) => warnings.add(
            format!("{path}/description"),
            "the description hardly says more than the name; say what it means, in which unit or form, and give an example",
        ),
        Some(_useful) => {}
    }
    let typed = [
        "type",
        "enum",
        "const",
        "$ref",
        "anyOf",
        "oneOf",
        "allOf",
        "properties",
        "items",
    ];
    if !typed.iter().any(|keyword| says(schema, keyword)) {
        warnings.add(
            path,
            "the property may be anything, so a model has to guess; write its type",
        );
    }
    let bounded = ["minLength", "pattern", "format", "enum", "const"];
    let is_text = keywords::types(schema).contains(&"string");
    if required && is_text && !bounded.iter().any(|word| says(schema, word)) {
        warnings.may_be_empty.push(path.to_owned());
    }
    if required && says(schema, "default") {
        warnings.add(
            path,
            "the property is required, so its default is never used; take it out of required, or drop the default",
        );
    }
}
