//! The places where a schema has defaults for missing properties.
//!
//! Only where the place is certain: not in the branches of a union or of a condition. The places are found once, when the
//! schema is compiled, so arguments without missing properties cost only a look at each place.

use std::{collections::HashMap, ptr};

use serde_json::Value;

use super::{places, problem::SchemaProblem};

/// The most kinds of places: sets of schemas that apply to one value together.
const NODES_MAX: usize = 2_000;

/// The places as a graph, for a schema may refer to itself. The first node is that of the whole.
#[derive(Debug, Default)]
pub(crate) struct Defaults {
    pub(crate) nodes: Vec<DefaultNode>,
}

/// What may be filled in below one value.
#[derive(Debug, Default)]
pub(crate) struct DefaultNode {
    pub(crate) properties: Vec<DefaultProperty>,
    /// The first items, one by one.
    pub(crate) prefix: Vec<Option<usize>>,
    /// All further items.
    pub(crate) items: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct DefaultProperty {
    pub(crate) name: String,
    pub(crate) default: Option<Value>,
    /// The node of its value.
    pub(crate) node: Option<usize>,
}

impl Defaults {
    /// Finds the places.
    ///
    /// # Errors
    ///
    /// There are more places than can be kept.
    pub(crate) fn of(root: &Value) -> Result<Self, SchemaProblem> {
        let mut survey = Survey {
            root,
            nodes: Vec::new(),
            known: HashMap::new(),
        };
        if survey.node(&[root]).is_none() {
            let message = format!(
                "its parts apply together in more than {NODES_MAX} ways; use fewer nested allOf beside $ref"
            );
            return Err(SchemaProblem::new("", message));
        }
        let mut nodes = survey.nodes;
        let useful = useful(&nodes);
        if !useful[0] {
            return Ok(Self::default());
        }
        let keep = |node: &mut Option<usize>| *node = node.filter(|node| useful[*node]);
        for node in &mut nodes {
            node.properties
                .iter_mut()
                .for_each(|property| keep(&mut property.node));
            node.properties
                .retain(|property| property.default.is_some() || property.node.is_some());
            node.prefix.iter_mut().for_each(keep);
            keep(&mut node.items);
        }
        Ok(Self { nodes })
    }

    /// Whether there is none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

/// Whether a default can be reached from each of these.
fn useful(nodes: &[DefaultNode]) -> Vec<bool> {
    let has_one = |node: &DefaultNode| {
        node.properties
            .iter()
            .any(|property| property.default.is_some())
    };
    let mut useful: Vec<bool> = nodes.iter().map(has_one).collect();
    loop {
        let leads = |node: &DefaultNode| {
            let below = node.properties.iter().filter_map(|property| property.node);
            let below = below
                .chain(node.prefix.iter().flatten().copied())
                .chain(node.items);
            below.into_iter().any(|node| useful[node])
        };
        let more: Vec<bool> = nodes
            .iter()
            .zip(&useful)
            .map(|(node, is)| *is || leads(node))
            .collect();
        if more == useful {
            return useful;
        }
        useful = more;
    }
}

struct Survey<'s> {
    root: &'s Value,
    nodes: Vec<DefaultNode>,
    /// By the set of schemas that apply together.
    known: HashMap<Vec<*const Value>, usize>,
}

impl<'s> Survey<'s> {
    /// The node of a value to which these schemas apply; `None` if there are too many. Recurses as deep as the schema is nested
    /// or has references.
    fn node(&mut self, schemas: &[&'s Value]) -> Option<usize> {
        let all = places::certain(self.root, schemas);
        let mut key: Vec<*const Value> = all.iter().map(|schema| ptr::from_ref(*schema)).collect();
        key.sort_unstable();
        if let Some(&known) = self.known.get(&key) {
            return Some(known);
        }
        let at = self.nodes.len();
        if at == NODES_MAX {
            return None;
        }
        self.nodes.push(DefaultNode::default());
        self.known.insert(key, at);
        let mut node = DefaultNode::default();
        for (name, schemas) in places::declared(&all) {
            node.properties.push(DefaultProperty {
                name: name.to_owned(),
                default: default(self.root, &schemas).cloned(),
                node: Some(self.node(&schemas)?),
            });
        }
        let prefix = all
            .iter()
            .filter_map(|schema| schema.get("prefixItems")?.as_array());
        let prefix = prefix.map(Vec::len).max().unwrap_or(0);
        for index in 0..=prefix {
            let items = all.iter().filter_map(|schema| item_schema(schema, index));
            let items: Vec<&Value> = items.collect();
            let below = match items.is_empty() {
                true => None,
                false => Some(self.node(&items)?),
            };
            match index == prefix {
                true => node.items = below,
                false => node.prefix.push(below),
            }
        }
        self.nodes[at] = node;
        Some(at)
    }
}

/// The default on which all these schemas agree; a default beside a reference overrules the one at its target.
pub(crate) fn default<'s>(root: &'s Value, schemas: &[&'s Value]) -> Option<&'s Value> {
    let of_one = |schema: &&'s Value| {
        schema.get("default").or_else(|| {
            let inner: Vec<&Value> = places::also_certain(root, schema).collect();
            default(root, &inner)
        })
    };
    let mut found = schemas.iter().filter_map(of_one);
    let first = found.next()?;
    found.all(|other| other == first).then_some(first)
}

fn item_schema(schema: &Value, index: usize) -> Option<&Value> {
    let prefix = schema.get("prefixItems").and_then(|all| all.get(index));
    prefix.or_else(|| schema.get("items"))
}
