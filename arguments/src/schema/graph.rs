//! The schemas of a document, and which of them apply to the same value; invalid parts are found on the way.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{
    bounds::{PATTERN_BYTES_MAX, PATTERNS_MAX},
    problem::SchemaProblem,
};
use crate::pointer::pointer_segment;

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// The part of a value to which a subschema applies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Slot<'a> {
    Name(&'a str),
    /// Every property that the schema's own `properties` does not name.
    OtherNames,
    AnyName,
    Key,
    Index(usize),
    IndexFrom(usize),
}

pub(super) struct SchemaNode<'a> {
    pub(super) schema: &'a Value,
    pub(super) pointer: String,
    /// Schemas that apply to the same value.
    pub(super) here: Vec<usize>,
    /// Schemas that apply to a part of it.
    pub(super) below: Vec<(Slot<'a>, usize)>,
}

/// The schemas of a document, and how they apply one another.
pub(super) struct Graph<'a> {
    root: &'a Value,
    pub(super) nodes: Vec<SchemaNode<'a>>,
    /// By address: a subschema is the same one however it is reached.
    index: HashMap<*const Value, usize>,
    pub(super) patterns: Vec<String>,
    pub(super) problems: Vec<SchemaProblem>,
}

impl<'a> Graph<'a> {
    pub(super) fn of(root: &'a Value) -> Self {
        let mut graph = Self {
            root,
            nodes: Vec::new(),
            index: HashMap::new(),
            patterns: Vec::new(),
            problems: Vec::new(),
        };
        graph.node(root, String::new());
        let mut visited = 0;
        while visited < graph.nodes.len() {
            graph.visit(visited);
            visited += 1;
        }
        graph
    }

    fn node(&mut self, schema: &'a Value, pointer: String) -> usize {
        let nodes = &mut self.nodes;
        *self
            .index
            .entry(std::ptr::from_ref(schema))
            .or_insert_with(|| {
                nodes.push(SchemaNode {
                    schema,
                    pointer,
                    here: Vec::new(),
                    below: Vec::new(),
                });
                nodes.len() - 1
            })
    }

    fn visit(&mut self, at: usize) {
        let Value::Object(schema) = self.nodes[at].schema else {
            return;
        };
        let pointer = self.nodes[at].pointer.clone();
        for (keyword, value) in schema {
            let place = format!("{pointer}/{}", pointer_segment(keyword));
            self.visit_keyword(at, keyword, value, place);
        }
    }

    fn visit_keyword(&mut self, at: usize, keyword: &'a str, value: &'a Value, place: String) {
        match keyword {
            "$schema" => self.check_dialect(at, value, place),
            "$id" => self.check_id(at, value, place),
            "$ref" => self.follow(at, value, place),
            "$anchor" | "$dynamicAnchor" | "$dynamicRef" | "$recursiveRef" | "$recursiveAnchor"
            | "$vocabulary" => {
                self.refuse(
                    place,
                    format!(
                        "{keyword} is not supported; use $ref with a pointer such as #/$defs/name"
                    ),
                );
            }
            "pattern" => self.check_pattern(value.as_str().unwrap_or_default(), place),
            "not" | "if" | "then" | "else" => self.here(at, value, place),
            "allOf" | "anyOf" | "oneOf" => {
                for (index, branch) in value.as_array().into_iter().flatten().enumerate() {
                    self.here(at, branch, format!("{place}/{index}"));
                }
            }
            "dependentSchemas" => {
                for (name, branch) in value.as_object().into_iter().flatten() {
                    self.here(at, branch, format!("{place}/{}", pointer_segment(name)));
                }
            }
            "additionalProperties" | "unevaluatedProperties" => {
                self.below(at, Slot::OtherNames, value, place)
            }
            "propertyNames" => self.below(at, Slot::Key, value, place),
            "items" => {
                let from = self.nodes[at].schema["prefixItems"]
                    .as_array()
                    .map_or(0, Vec::len);
                self.below(at, Slot::IndexFrom(from), value, place);
            }
            "contains" | "unevaluatedItems" => self.below(at, Slot::IndexFrom(0), value, place),
            "prefixItems" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    self.below(at, Slot::Index(index), item, format!("{place}/{index}"));
                }
            }
            "properties" => self.each(value, &place, |graph, name, schema, place| {
                graph.below(at, Slot::Name(name), schema, place);
            }),
            "patternProperties" => self.each(value, &place, |graph, pattern, schema, place| {
                graph.check_pattern(pattern, place.clone());
                graph.below(at, Slot::AnyName, schema, place);
            }),
            "$defs" | "definitions" => self.each(value, &place, |graph, _, schema, place| {
                graph.node(schema, place);
            }),
            _annotation_or_assertion => {}
        }
    }

    fn each(
        &mut self,
        map: &'a Value,
        place: &str,
        mut visit: impl FnMut(&mut Self, &'a str, &'a Value, String),
    ) {
        let entries: Option<&'a Map<String, Value>> = map.as_object();
        for (name, schema) in entries.into_iter().flatten() {
            visit(
                self,
                name,
                schema,
                format!("{place}/{}", pointer_segment(name)),
            );
        }
    }

    fn here(&mut self, at: usize, schema: &'a Value, place: String) {
        let target = self.node(schema, place);
        self.nodes[at].here.push(target);
    }

    fn below(&mut self, at: usize, slot: Slot<'a>, schema: &'a Value, place: String) {
        let target = self.node(schema, place);
        self.nodes[at].below.push((slot, target));
    }

    fn refuse(&mut self, place: String, message: impl Into<String>) {
        self.problems.push(SchemaProblem::new(place, message));
    }

    fn check_dialect(&mut self, at: usize, value: &Value, place: String) {
        if at != 0 || value.as_str().map(|uri| uri.trim_end_matches('#')) != Some(DIALECT) {
            self.refuse(
                place,
                format!("the only dialect is {DIALECT}, named at the top or not at all"),
            );
        }
    }

    fn check_id(&mut self, at: usize, value: &Value, place: String) {
        let plain = |id: &str| {
            id.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
        };
        if at != 0 || !value.as_str().is_some_and(plain) {
            self.refuse(place, "$id may stand only at the top, as a plain name without scheme, host or path; leave it out");
        }
    }

    fn check_pattern(&mut self, pattern: &str, place: String) {
        self.patterns.push(pattern.to_owned());
        if pattern.len() > PATTERN_BYTES_MAX {
            self.refuse(
                place.clone(),
                format!("a pattern has at most {PATTERN_BYTES_MAX} bytes"),
            );
        }
        if self.patterns.len() == PATTERNS_MAX + 1 {
            self.refuse(
                place,
                format!("a schema has at most {PATTERNS_MAX} patterns"),
            );
        }
    }

    fn follow(&mut self, at: usize, value: &Value, place: String) {
        let reference = value.as_str().unwrap_or_default();
        let pointer = match reference.strip_prefix('#') {
            Some(pointer)
                if (pointer.is_empty() || pointer.starts_with('/')) && !pointer.contains('%') =>
            {
                pointer
            }
            Some(_) | None => {
                let message = "$ref may only point into this schema, such as #/$defs/name, without percent escapes";
                return self.refuse(place, message);
            }
        };
        match self.root.pointer(pointer) {
            Some(target @ (Value::Object(_) | Value::Bool(_))) => {
                self.here(at, target, pointer.to_owned())
            }
            Some(_) | None => self.refuse(place, format!("there is no schema at {reference:?}")),
        }
    }
}
