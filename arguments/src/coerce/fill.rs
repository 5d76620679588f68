//! Fills in the schema's defaults.

use serde_json::{Map, Value};

use super::size;
use crate::{
    pointer,
    schema::{DefaultNode, Defaults, Schema},
};

/// The most defaults filled into one call's arguments.
const DEFAULTS_MAX: usize = 256;

/// Fills in what is missing and returns the places, in order; fills in nothing if the whole would not fit then.
pub(super) fn fill(
    schema: &Schema,
    args: &mut Value,
    fits: impl Fn(&Schema, &Value) -> bool,
) -> Vec<String> {
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

/// Whether arguments fit, and are within the limits of what may be sent.
pub(super) fn fits(schema: &Schema, args: &Value) -> bool {
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
    /// `None` if there would be too many.
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

    fn fill_object(
        &mut self,
        node: &'d DefaultNode,
        entries: &mut Map<String, Value>,
    ) -> Option<()> {
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
            // A default is filled up too, so that filling in again changes nothing.
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
