//! How much work a schema can cause.
//!
//! A validator evaluates every branch, so a schema that applies two branches to the same value, each of which does so
//! again, costs 2^depth evaluations for a small input. Instead of a time limit, which would hit callers at random,
//! the worst case is computed here, once, and a schema beyond it is refused.

use std::collections::BTreeMap;

use super::{
    bounds::{EVALUATIONS_MAX, NESTED_MAX},
    graph::{Graph, SchemaNode, Slot},
    problem::SchemaProblem,
};
use crate::limits::Limits;

/// The most evaluations along one path from the root of an input to a leaf, at the deepest nesting allowed.
/// It may stop counting beyond [`EVALUATIONS_MAX`].
pub(super) fn evaluations(graph: &Graph<'_>) -> Result<u64, SchemaProblem> {
    let closures = graph.closures()?;
    Ok(graph.evaluations(&closures))
}

/// One part of a value, for which schemas are counted: a named property, any other, an item, any later one, or a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part<'a> {
    Name(&'a str),
    OtherName,
    Key,
    Index(usize),
    LaterIndex,
}

/// How often each schema is evaluated for one value, by its number in the graph.
type Closure = BTreeMap<usize, u64>;

impl SchemaNode<'_> {
    fn applies(&self, slot: Slot<'_>, part: Part<'_>) -> bool {
        let declared = |name: &str| self.schema["properties"].get(name).is_some();
        match (slot, part) {
            (Slot::Name(slot), Part::Name(name)) => slot == name,
            (Slot::OtherNames, Part::Name(name)) => !declared(name),
            (Slot::OtherNames | Slot::AnyName, Part::OtherName) => true,
            (Slot::AnyName, Part::Name(_)) | (Slot::Key, Part::Key) => true,
            (Slot::Index(slot), Part::Index(index)) => slot == index,
            (Slot::IndexFrom(from), Part::Index(index)) => index >= from,
            (Slot::IndexFrom(_), Part::LaterIndex) => true,
            (
                Slot::Name(_)
                | Slot::OtherNames
                | Slot::AnyName
                | Slot::Key
                | Slot::Index(_)
                | Slot::IndexFrom(_),
                Part::Name(_) | Part::OtherName | Part::Key | Part::Index(_) | Part::LaterIndex,
            ) => false,
        }
    }
}

impl Graph<'_> {
    /// For each schema, the schemas that are evaluated with it for the same value.
    fn closures(&self) -> Result<Vec<Closure>, SchemaProblem> {
        let mut done = vec![None; self.nodes.len()];
        for at in 0..self.nodes.len() {
            self.close(at, &mut Vec::new(), &mut done)?;
        }
        Ok(done
            .into_iter()
            .flatten()
            .map(|(closure, _)| closure)
            .collect())
    }

    /// Fills in `done[at]`, and returns how deep its schemas are nested. Recurses at most [`NESTED_MAX`] deep.
    fn close(
        &self,
        at: usize,
        open: &mut Vec<usize>,
        done: &mut [Option<(Closure, usize)>],
    ) -> Result<usize, SchemaProblem> {
        if let Some((_, height)) = done[at] {
            return Ok(height);
        }
        let node = &self.nodes[at];
        if open.contains(&at) {
            let message = "the schema applies itself to the same value without end; let it refer to itself only below \
                           properties or items";
            return Err(SchemaProblem::new(node.pointer.clone(), message));
        }
        open.push(at);
        let mut height = 1;
        let mut closure = Closure::from([(at, 1)]);
        for &target in &node.here {
            if open.len() <= NESTED_MAX {
                height = height.max(self.close(target, open, done)? + 1);
            }
            if open.len() > NESTED_MAX || height > NESTED_MAX {
                let message = format!(
                    "more than {NESTED_MAX} schemas apply to the same value one inside the other"
                );
                return Err(SchemaProblem::new(node.pointer.clone(), message));
            }
            let (inner, _) = done[target].as_ref().expect("a closed schema is done");
            for (&schema, &count) in inner {
                let sum = closure.entry(schema).or_default();
                *sum = sum.saturating_add(count);
            }
        }
        open.pop();
        done[at] = Some((closure, height));
        Ok(height)
    }

    fn evaluations(&self, closures: &[Closure]) -> u64 {
        let total = |closure: &Closure| {
            closure
                .values()
                .fold(0_u64, |sum, count| sum.saturating_add(*count))
        };
        let own: Vec<u64> = closures.iter().map(total).collect();
        let steps: Vec<_> = closures.iter().map(|closure| self.steps(closure)).collect();
        let mut cost = own.clone();
        for _ in 0..Limits::DEFAULT.depth {
            let below = |parts: &Vec<Closure>| {
                let worth = |part: &Closure| {
                    part.iter().fold(0_u64, |sum, (&at, &count)| {
                        sum.saturating_add(count.saturating_mul(cost[at]))
                    })
                };
                parts.iter().map(worth).max().unwrap_or(0)
            };
            let next: Vec<u64> = steps
                .iter()
                .zip(&own)
                .map(|(parts, own)| own.saturating_add(below(parts)))
                .collect();
            if next == cost || next[0] > EVALUATIONS_MAX {
                return next[0];
            }
            cost = next;
        }
        cost[0]
    }

    /// For each part of a value that the schemas of a closure distinguish: how often which schema is applied to it.
    fn steps(&self, closure: &Closure) -> Vec<Closure> {
        let below = || {
            closure.iter().flat_map(|(&at, &count)| {
                self.nodes[at]
                    .below
                    .iter()
                    .map(move |edge| (at, count, edge))
            })
        };
        let mut parts: Vec<Part<'_>> = below()
            .map(|(_, _, (slot, _))| match *slot {
                Slot::Name(name) => Part::Name(name),
                Slot::OtherNames | Slot::AnyName => Part::OtherName,
                Slot::Key => Part::Key,
                Slot::Index(index) => Part::Index(index),
                Slot::IndexFrom(_) => Part::LaterIndex,
            })
            .collect();
        parts.sort_unstable();
        parts.dedup();
        let step = |part: Part<'_>| {
            let mut step = Closure::new();
            for (at, count, (slot, target)) in below() {
                if self.nodes[at].applies(*slot, part) {
                    let sum = step.entry(*target).or_default();
                    *sum = sum.saturating_add(count);
                }
            }
            step
        };
        parts.into_iter().map(step).collect()
    }
}
