//! How many nulls could stand for optional properties in one call: the door removes only a bounded number.

use std::collections::HashMap;

use serde_json::Value;

use crate::arguments::keywords::required;

/// The largest number of optional properties that the schemas of one document can bring into one value.
pub(super) struct Nulls<'a> {
    root: &'a Value,
    /// By reference; `None` while it is being counted.
    known: HashMap<String, Option<u32>>,
    /// References that lead back to themselves.
    recursive: Vec<String>,
}

impl<'a> Nulls<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        Self {
            root,
            known: HashMap::new(),
            recursive: Vec::new(),
        }
    }

    /// In the whole document.
    pub(super) fn all(mut self) -> u32 {
        self.referred("#")
    }

    /// In a value of this schema; `u32::MAX` if there is no bound.
    pub(super) fn count(&mut self, schema: &Value) -> u32 {
        let list = |word: &str| {
            let all = schema.get(word).and_then(Value::as_array);
            all.map_or(&[][..], Vec::as_slice)
        };
        let reference = schema.get("$ref").and_then(Value::as_str);
        let mut total = reference.map_or(0, |reference| self.referred(reference));
        for branch in list("allOf") {
            total = total.saturating_add(self.count(branch));
        }
        for union in ["anyOf", "oneOf"] {
            let most = list(union).iter().map(|branch| self.count(branch)).max();
            total = total.saturating_add(most.unwrap_or(0));
        }
        if let Some(items) = schema.get("items") {
            let many = schema.get("maxItems").and_then(Value::as_u64);
            let many = many.map_or(u32::MAX, |many| u32::try_from(many).unwrap_or(u32::MAX));
            total = total.saturating_add(self.count(items).saturating_mul(many));
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            let inside = self.count(property);
            let is_required = required(schema).contains(&name.as_str());
            total = total.saturating_add(if is_required { inside } else { inside.max(1) });
        }
        total
    }

    fn referred(&mut self, reference: &str) -> u32 {
        let root = self.root;
        let target = reference
            .strip_prefix('#')
            .and_then(|pointer| root.pointer(pointer));
        let Some(target) = target else {
            return 0;
        };
        match self.known.get(reference) {
            Some(Some(count)) => return *count,
            Some(None) => {
                self.recursive.push(reference.to_owned());
                return 0;
            }
            None => {}
        }
        self.known.insert(reference.to_owned(), None);
        let mut count = self.count(target);
        if count > 0
            && self
                .recursive
                .iter()
                .any(|recursive| recursive == reference)
        {
            count = u32::MAX;
        }
        self.known.insert(reference.to_owned(), Some(count));
        count
    }
}
