//! Puts a stream together into the object that a plain request would have got.
//!
//! Every dialect has its own way; how an object grows by deltas is one for all. What is held is the object and nothing of the
//! chunks it came in, and its size is known at each moment.

use serde_json::{Map, Value};

use super::members::is_there;

/// The most entries of a list that grows by deltas: each delta is looked for among them.
const ENTRIES_MAX: usize = 256;
/// What a value takes beside its text.
const VALUE_OVERHEAD: usize = 16;
/// Members that a delta repeats, or has at last, and never continues.
const WORDS: [&str; 4] = ["id", "type", "role", "index"];

/// Puts one stream together.
pub(in crate::executors::chat) trait Assembler: Send {
    /// Takes the data of one event.
    fn add(&mut self, chunk: Map<String, Value>) -> StreamStep;

    /// The vendor's mark beside its events that nothing follows.
    fn end(&mut self) {}

    /// The bytes of its texts, and a little for each value.
    fn size(&self) -> usize;

    /// Whether an event of this name has the whole reply once more, so that one that is too long says that the reply is.
    fn repeats_all(&self, _name: &[u8]) -> bool {
        false
    }

    /// What is known of its cost so far.
    fn so_far(&self) -> StreamSoFar;

    /// The reply. `None`: it is not whole.
    fn reply(self: Box<Self>) -> Option<Map<String, Value>>;
}

/// What is known of the cost of a stream that may not come to its end.
#[derive(Debug, Default)]
pub(in crate::executors::chat) struct StreamSoFar {
    /// The model and the count of its reply, as far as they came.
    pub(in crate::executors::chat) object: Map<String, Value>,
    /// The bytes of what was written.
    pub(in crate::executors::chat) bytes: usize,
    /// Whether the count has all that was written.
    pub(in crate::executors::chat) is_counted: bool,
}

impl StreamSoFar {
    /// Of a reply that is not whole.
    pub(super) fn of(reply: &Map<String, Value>, bytes: usize, is_counted: bool) -> Self {
        let known = ["model", "usage"].into_iter();
        let known = known.filter_map(|name| Some((name.to_owned(), reply.get(name)?.clone())));
        Self {
            object: known.collect(),
            bytes,
            is_counted,
        }
    }
}

/// What an event does to a stream.
#[derive(Debug, PartialEq)]
pub(in crate::executors::chat) enum StreamStep {
    /// More follows.
    More,
    /// Nothing that follows counts.
    Ended,
    /// It says in these words that the request has failed.
    Failed(Map<String, Value>),
    /// It is no event of the protocol, or not at this place.
    Unfit,
}

/// The words of an event that is an error in any protocol.
pub(super) fn error_of(chunk: &Map<String, Value>) -> Option<StreamStep> {
    let says_so = |member: &str| chunk.get(member).is_some_and(|it| it == "error");
    let has_failed = is_there(chunk.get("error")) || says_so("object") || says_so("type");
    has_failed.then(|| StreamStep::Failed(chunk.clone()))
}

/// Adds a delta to an object: strings go on, objects and lists whose entries have an `index` grow, and of all else the last is
/// right. `None`: it has too many entries.
pub(super) fn grow(
    into: &mut Map<String, Value>,
    delta: Map<String, Value>,
    size: &mut usize,
) -> Option<()> {
    for (name, new) in delta {
        match (into.get_mut(&name), new) {
            // It says nothing new.
            (Some(_), Value::Null) => {}
            (Some(Value::Array(_)), Value::Array(new)) if new.is_empty() => {}
            (Some(Value::String(old)), Value::String(new)) => {
                let is_word = WORDS.contains(&name.as_str());
                // Some servers repeat a name with each delta.
                let is_repeated = name == "name" && *old == new;
                if !is_word && !is_repeated {
                    *size += new.len();
                    old.push_str(&new);
                } else if !new.is_empty() {
                    *size = (*size + new.len()).saturating_sub(old.len());
                    *old = new;
                }
            }
            (Some(Value::Object(old)), Value::Object(new)) => grow(old, new, size)?,
            (Some(Value::Array(old)), Value::Array(new)) if is_indexed(&new) => {
                grow_list(old, new, size)?;
            }
            (_, Value::Array(new)) if is_indexed(&new) => {
                let mut list = Vec::new();
                grow_list(&mut list, new, size)?;
                put(into, name, Value::Array(list), &mut 0);
            }
            (_, new) => put(into, name, new, size),
        }
    }
    Some(())
}

/// Puts a value in the place of another. What is null says nothing where there is one.
pub(super) fn replace(into: &mut Map<String, Value>, name: String, new: Value, size: &mut usize) {
    if !(new.is_null() && into.contains_key(&name)) {
        put(into, name, new, size);
    }
}

/// Adds the entries of lists in an object to those of another.
pub(super) fn append(into: &mut Map<String, Value>, name: &str, new: Value, size: &mut usize) {
    match (into.get_mut(name), new) {
        (Some(Value::Object(old)), Value::Object(new)) => {
            for (name, new) in new {
                append(old, &name, new, size);
            }
        }
        (Some(Value::Array(old)), Value::Array(new)) => {
            *size += new.iter().map(weight).sum::<usize>();
            old.extend(new);
        }
        (_, new) => replace(into, name.to_owned(), new, size),
    }
}

fn put(into: &mut Map<String, Value>, name: String, new: Value, size: &mut usize) {
    *size += name.len() + weight(&new);
    if let Some(old) = into.insert(name, new) {
        *size = size.saturating_sub(weight(&old));
    }
}

fn grow_list(list: &mut Vec<Value>, new: Vec<Value>, size: &mut usize) -> Option<()> {
    for entry in new {
        let index = entry.get("index");
        let known = list.iter().rposition(|old| old.get("index") == index);
        let Some(at) = known else {
            if list.len() >= ENTRIES_MAX {
                return None;
            }
            *size += weight(&entry);
            list.push(entry);
            continue;
        };
        match (&mut list[at], entry) {
            (Value::Object(old), Value::Object(new)) => grow(old, new, size)?,
            (old, new) => *old = new,
        }
    }
    Some(())
}

fn is_indexed(list: &[Value]) -> bool {
    let has_index = |entry: &Value| entry.get("index").is_some_and(Value::is_u64);
    !list.is_empty() && list.iter().all(has_index)
}

/// About how many bytes a value has as JSON.
pub(super) fn weight(value: &Value) -> usize {
    VALUE_OVERHEAD
        + match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(weight).sum(),
            Value::Object(members) => members
                .iter()
                .map(|(name, member)| name.len() + weight(member))
                .sum(),
        }
}
