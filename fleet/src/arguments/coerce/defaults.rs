//! Defaults of the schema for properties that were not sent.
//!
//! Only where the place is certain: not in the branches of a union or of a condition. Where they stand is worked out once,
//! so that arguments in which nothing is missing cost no more than a look at each of these places.

use std::{collections::HashMap, ptr};

use serde_json::{Map, Value};

use super::{places, pointer, size};
use crate::arguments::{Schema, schema::SchemaProblem};

/// Defaults filled into one call's arguments.
const DEFAULTS_MAX: usize = 256;
/// Kinds of places: schemas that apply to one value together.
const NODES_MAX: usize = 2_000;

/// Where a schema has defaults: a graph, for a schema may refer to itself. The first node is that of the whole.
#[derive(Debug, Default)]
pub(in crate::arguments) struct Defaults {
    nodes: Vec<Node>,
}

/// What may be filled in below one value.
#[derive(Debug, Default)]
struct Node {
    properties: Vec<Property>,
    /// Of the first items, one by one.
    prefix: Vec<Option<usize>>,
    /// Of all further items.
    items: Option<usize>,
}

#[derive(Debug)]
struct Property {
    name: String,
    default: Option<Value>,
    node: Option<usize>,
}

impl Defaults {
    /// Finds them.
    ///
    /// # Errors
    ///
    /// They stand in more places than can be kept.
    pub(in crate::arguments) fn of(root: &Value) -> Result<Self, SchemaProblem> {
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
    pub(in crate::arguments) const fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

/// Whether a default can be reached from each of these.
fn useful(nodes: &[Node]) -> Vec<bool> {
    let has_one = |node: &Node| {
        node.properties
            .iter()
            .any(|property| property.default.is_some())
    };
    let mut useful: Vec<bool> = nodes.iter().map(has_one).collect();
    loop {
        let leads = |node: &Node| {
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
    nodes: Vec<Node>,
    /// By the schemas that apply together.
    known: HashMap<Vec<*const Value>, usize>,
}

impl<'s> Survey<'s> {
    /// The node of a value to which these schemas apply; `None` if there are too many. Recurses as deep as the schema is nested
    /// or as it has references.
    fn node(&mut self, schemas: &[&'s Value]) -> Option<usize> {
        let all = certain(self.root, schemas);
        let mut key: Vec<*const Value> = all.iter().map(|schema| ptr::from_ref(*schema)).collect();
        key.sort_unstable();
        if let Some(&known) = self.known.get(&key) {
            return Some(known);
        }
        let at = self.nodes.len();
        if at == NODES_MAX {
            return None;
        }
        self.nodes.push(Node::default());
        self.known.insert(key, at);
        let mut node = Node::default();
        for (name, schemas) in places::declared(&all) {
            node.properties.push(Property {
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

/// Fills in what is missing and answers where, in order; nothing, if the whole would not be valid then.
pub(super) fn fill(schema: &Schema, args: &mut Value) -> Vec<String> {
    let mut filling = Filling {
        defaults: schema.defaults(),
        path: Vec::new(),
        filled: Vec::new(),
    };
    let is_done = filling.fill(0, args).is_some();
    if filling.filled.is_empty() || (is_done && fits(schema, args)) {
        return filling.filled;
    }
    for place in filling.filled.iter().rev() {
        let entry = pointer::split(place)
            .and_then(|(parent, name)| Some((args.pointer_mut(parent)?.as_object_mut()?, name)));
        let (object, name) = entry.expect("a default was put there");
        object.remove(&*name);
    }
    Vec::new()
}

fn fits(schema: &Schema, args: &Value) -> bool {
    size::is_admitted(args) && schema.is_valid(args)
}

struct Filling<'d> {
    defaults: &'d Defaults,
    path: Vec<Segment<'d>>,
    filled: Vec<String>,
}

#[derive(Clone, Copy)]
enum Segment<'d> {
    Name(&'d str),
    Index(usize),
}

impl<'d> Filling<'d> {
    /// `None` if it would be too many.
    fn fill(&mut self, node: usize, value: &mut Value) -> Option<()> {
        let node = &self.defaults.nodes[node];
        match value {
            Value::Object(entries) => self.fill_object(node, entries),
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    let below = node.prefix.get(index).copied().unwrap_or(node.items);
                    if let Some(below) = below {
                        self.under(Segment::Index(index), below, item)?;
                    }
                }
                Some(())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(()),
        }
    }

    fn fill_object(&mut self, node: &'d Node, entries: &mut Map<String, Value>) -> Option<()> {
        for property in &node.properties {
            let name = property.name.as_str();
            if let Some(default) = &property.default
                && !entries.contains_key(name)
            {
                if self.filled.len() == DEFAULTS_MAX {
                    return None;
                }
                entries.insert(name.to_owned(), default.clone());
                self.filled.push(self.place_of(name));
            }
            // A default is filled up too, so that filling it in again changes nothing.
            if let (Some(below), Some(value)) = (property.node, entries.get_mut(name)) {
                self.under(Segment::Name(name), below, value)?;
            }
        }
        Some(())
    }

    fn under(&mut self, segment: Segment<'d>, node: usize, value: &mut Value) -> Option<()> {
        self.path.push(segment);
        self.fill(node, value)?;
        self.path.pop();
        Some(())
    }

    fn place_of(&self, name: &str) -> String {
        let mut place = String::new();
        for segment in self.path.iter().chain([&Segment::Name(name)]) {
            match segment {
                Segment::Name(name) => place = pointer::below(&place, name),
                Segment::Index(index) => place = format!("{place}/{index}"),
            }
        }
        place
    }
}

/// These schemas and those that apply to the same value in any case.
pub(super) fn certain<'s>(root: &'s Value, schemas: &[&'s Value]) -> Vec<&'s Value> {
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

fn also_certain<'s>(root: &'s Value, schema: &'s Value) -> impl Iterator<Item = &'s Value> {
    let target = schema
        .get("$ref")
        .and_then(|reference| places::target(root, reference));
    let all = schema.get("allOf").and_then(Value::as_array);
    target.into_iter().chain(all.into_iter().flatten())
}

/// The default that all these schemas agree on; what stands beside a reference overrules what it leads to.
fn default<'s>(root: &'s Value, schemas: &[&'s Value]) -> Option<&'s Value> {
    let of_one = |schema: &&'s Value| {
        schema.get("default").or_else(|| {
            let inner: Vec<&Value> = also_certain(root, schema).collect();
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
