//! Whether a schema may be compiled: its size, what it refers to (`graph`), and how much work it can cause (`cost`).

use serde_json::Value;

use super::{
    bounds::{BYTES_MAX, DEPTH_MAX, EVALUATIONS_MAX, NODES_MAX},
    cost,
    graph::Graph,
    problem::SchemaProblem,
};
use crate::canonical;

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
