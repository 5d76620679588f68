//! Which unknown property may be left out: one that cannot be a declared one under another name or in another place.

use std::{
    collections::{BTreeSet, HashSet},
    iter, ptr,
};

use jsonschema::JsonType;
use serde_json::Value;

use super::{
    kind::{self, KINDS},
    places, rules,
};
use crate::arguments::{Limits, nearest::nearest};

/// Under such names models talk to themselves.
const CHATTER: [&str; 6] = [
    "explanation",
    "rationale",
    "reasoning",
    "thought",
    "thought_process",
    "thoughts",
];

/// What a schema knows of names.
pub(super) struct Vocabulary<'s> {
    /// Those of all properties, wherever they are declared.
    names: BTreeSet<&'s str>,
    /// Whether there is an object for which any name is a good one, or a list for which any item is.
    is_open: bool,
}

impl<'s> Vocabulary<'s> {
    pub(super) fn of(root: &'s Value) -> Self {
        let mut vocabulary = Self {
            names: BTreeSet::new(),
            is_open: false,
        };
        for schema in places::everywhere(root) {
            let in_place = places::in_place(root, vec![schema]);
            vocabulary.is_open |= places::takes_other_names(root, schema)
                || places::takes_any_items(root, schema)
                || in_place
                    .iter()
                    .any(|s| s.get("patternProperties").is_some());
            vocabulary.names.extend(places::declared(&in_place).keys());
        }
        vocabulary
    }

    /// Whether a name could be meant for a known one: it is one, nearly one, or shares a word with one.
    fn resembles(&self, name: &str) -> bool {
        let names = || self.names.iter().copied();
        names().any(|known| is_kin(name, known)) || nearest(name, names()).is_some()
    }

    /// Whether a known name stands anywhere in a value, or might in a text.
    fn is_spoken_in(&self, value: &Value) -> bool {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
            Value::String(text) => text.contains(['{', '[']),
            Value::Array(items) => items.iter().any(|item| self.is_spoken_in(item)),
            Value::Object(entries) => entries
                .iter()
                .any(|(name, value)| self.names.contains(&**name) || self.is_spoken_in(value)),
        }
    }
}

/// Whether leaving out a property loses nothing that the tool could have understood.
///
/// It may be any value that is `absent`, so there must be none, unless its name says that it is talk.
pub(super) fn may_go(
    root: &Value,
    words: &Vocabulary<'_>,
    absent: &[&Value],
    name: &str,
    value: &Value,
) -> bool {
    let is_talk = || CHATTER.contains(&name) && !absent.iter().any(|s| would_take(root, s, value));
    (absent.is_empty() || is_talk())
        && !words.is_open
        && !words.resembles(name)
        && !words.is_spoken_in(value)
}

/// The schemas of all properties that could stand somewhere in these arguments and do not.
pub(super) fn absent<'s>(root: &'s Value, args: &Value) -> Vec<&'s Value> {
    let mut absent = Vec::new();
    let mut open = vec![(vec![root], args)];
    while let Some((schemas, value)) = open.pop() {
        let all = places::in_place(root, schemas);
        let declared = places::declared(&all);
        let is_missing = |name: &str| value.is_object() && value.get(name).is_none();
        let missing = declared.iter().filter(|(name, _)| is_missing(name));
        absent.extend(missing.flat_map(|(_, schemas)| schemas));
        open.extend(
            (places::parts(value).filter(|(_, part)| part.is_object() || part.is_array()))
                .map(|(name, part)| (places::below(&all, value, &name), part)),
        );
    }
    let mut seen = HashSet::new();
    absent.retain(|schema| seen.insert(ptr::from_ref(*schema)));
    absent
}

/// Whether a property could hold the value or a part of it, as it is or mended.
fn would_take(root: &Value, schema: &Value, value: &Value) -> bool {
    let mut parts: Box<dyn Iterator<Item = &Value>> = match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(entries) => Box::new(entries.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Box::new(iter::empty())
        }
    };
    let takes = |wanted: JsonType| {
        let as_it_is = kind::is(value, wanted) && places::may_be(root, schema, wanted, None);
        let mended = || {
            let (mended, _) = rules::to_type(value, wanted, &Limits::DEFAULT)?;
            let exactly = (wanted != JsonType::Array).then_some(&mended);
            Some(places::may_be(root, schema, wanted, exactly))
        };
        as_it_is || mended() == Some(true)
    };
    KINDS.into_iter().any(takes) || parts.any(|part| would_take(root, schema, part))
}

/// Whether two names share a word: `max_price` and `minPrice`.
fn is_kin(a: &str, b: &str) -> bool {
    let (a, b) = (words(a), words(b));
    a.concat() == b.concat() || a.iter().any(|word| word.len() > 1 && b.contains(word))
}

fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for letter in name.chars() {
        let hump = before.is_lowercase() && letter.is_uppercase();
        let digit = before.is_alphabetic() && letter.is_numeric();
        if hump || digit || !letter.is_alphanumeric() {
            words.push(String::new());
        }
        if letter.is_alphanumeric() {
            words
                .last_mut()
                .expect("there is always a last word")
                .extend(letter.to_lowercase());
        }
        before = letter;
    }
    words.into_iter().filter(|word| !word.is_empty()).collect()
}
