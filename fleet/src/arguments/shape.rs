//! What a schema may look like before it is compiled: its size, what it may refer to, and how much work it can cause.
//!
//! The work is computed in `cost`.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{cost, pointer_segment, schema::SchemaProblem};
use crate::canonical;

/// Bytes of a schema's canonical text.
pub(super) const BYTES_MAX: usize = 64 * 1024;
/// Values in a schema.
pub(super) const NODES_MAX: usize = 2_000;
/// Arrays and objects inside one another.
pub(super) const DEPTH_MAX: usize = 32;
/// Bytes of one pattern.
pub(super) const PATTERN_BYTES_MAX: usize = 512;
/// Patterns in all, [`LARGE_PATTERNS_MAX`] of them larger than [`PATTERN_COMPILED_SMALL`].
pub(super) const PATTERNS_MAX: usize = 100;
/// Bytes of one compiled pattern. The worst of this size takes a third of a second for the longest string there may be.
pub(super) const PATTERN_COMPILED_MAX: usize = 64 * 1024;
/// Bytes of a compiled pattern that is not counted as large.
pub(super) const PATTERN_COMPILED_SMALL: usize = 16 * 1024;
/// Large patterns in all.
pub(super) const LARGE_PATTERNS_MAX: usize = 8;
/// Schemas that apply to the same value one inside the other, by `$ref`, `allOf` and the like: bounds the stack.
pub(super) const NESTED_MAX: usize = 16;
/// Evaluations along one path from the root of an input to a leaf.
pub(super) const EVALUATIONS_MAX: u64 = 10_000;

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// What a schema may cost.
pub(super) struct Shape {
    /// Evaluations along one path through an input.
    pub(super) evaluations: u64,
    pub(super) patterns: Vec<String>,
}

/// Says what is wrong with a schema, or what it may cost.
pub(super) fn check(schema: &Value) -> Result<Shape, Vec<SchemaProblem>> {
    let size = size(schema);
    if !size.is_empty() {
        return Err(size);
    }
    let graph = Graph::of(schema);
    if !graph.problems.is_empty() {
        return Err(graph.problems);
    }
    let evaluations = cost::evaluations(&graph).map_err(|problem| vec![problem])?;
    if evaluations > EVALUATIONS_MAX {
        return Err(vec![SchemaProblem::new(
            "",
            format!(
                "checking one value could take more than {EVALUATIONS_MAX} steps, because several branches that apply to \
                 the same value repeat each other; give recursive properties a different name in each branch, \
                 or use fewer nested anyOf, oneOf and allOf"
            ),
        )]);
    }
    Ok(Shape {
        evaluations,
        patterns: graph.patterns,
    })
}

fn size(schema: &Value) -> Vec<SchemaProblem> {
    let mut problems = Vec::new();
    let (nodes, depth) = measure(schema);
    let mut refuse = |what: &str, found: usize, max: usize| {
        if found > max {
            let message = format!("the schema has {found} {what}; at most {max} are allowed");
            problems.push(SchemaProblem::new("", message));
        }
    };
    refuse("values", nodes, NODES_MAX);
    refuse("levels of nesting", depth, DEPTH_MAX);
    refuse("bytes", canonical::to_text(schema).len(), BYTES_MAX);
    problems
}

fn measure(value: &Value) -> (usize, usize) {
    let inside = |children: &mut dyn Iterator<Item = &Value>| {
        children
            .map(measure)
            .fold((0, 0), |(nodes, depth), (n, d)| (nodes + n, depth.max(d)))
    };
    let (nodes, depth) = match value {
        Value::Array(items) => inside(&mut items.iter()),
        Value::Object(entries) => inside(&mut entries.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return (1, 0),
    };
    (nodes + 1, depth + 1)
}

/// To which part of a value a subschema applies.
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

pub(super) struct Node<'a> {
    pub(super) schema: &'a Value,
    pub(super) pointer: String,
    /// Schemas that apply to the same value.
    pub(super) here: Vec<usize>,
    /// Schemas that apply to a part of it.
    pub(super) below: Vec<(Slot<'a>, usize)>,
}

/// The schemas of a document and how they apply one another.
pub(super) struct Graph<'a> {
    root: &'a Value,
    pub(super) nodes: Vec<Node<'a>>,
    /// By address: a subschema is the same one however it is reached.
    index: HashMap<*const Value, usize>,
    patterns: Vec<String>,
    problems: Vec<SchemaProblem>,
}

impl<'a> Graph<'a> {
    fn of(root: &'a Value) -> Self {
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
                nodes.push(Node {
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
