//! The ways in which models get arguments wrong. What each is called, stands in `kinds`.

mod envelopes;
mod keys;
mod kinds;
mod lists;
mod numbers;
mod scalars;
mod spelling;
mod texts;

use arguments::Schema;
use serde_json::{Map, Value, json};

pub(crate) use self::kinds::{KINDS, Mends};
use crate::{
    gold::Gold,
    pointer::{overlap, places, split, under},
    random::Chance,
};

/// What a damage is drawn from.
pub(crate) struct Source<'a> {
    pub(crate) gold: &'a Gold,
    pub(crate) tool: &'a str,
    pub(crate) schema: &'a Schema,
}

/// One change to a value.
#[derive(Debug, Clone)]
enum Change {
    /// Another value at a place.
    Set(String, Value),
    /// A property more in the object at a place, which must not have it.
    Add(String, String, Value),
    /// A property less.
    Remove(String),
}

/// The arguments as a whole, put under a key.
#[derive(Debug, Clone)]
struct Wrap {
    key: String,
    text: bool,
    /// What stands beside it.
    company: Option<(String, Value)>,
}

/// What is done to gold; it can be done to other arguments too, if they have the places.
#[derive(Debug, Clone, Default)]
pub(crate) struct Damage {
    changes: Vec<Change>,
    wrap: Option<Wrap>,
    /// The damages that this one is put together of; none where it is one.
    parts: Vec<Damage>,
    /// What it also stands for, if that fits: of `"5.5"` in the place of a 5 it is 5.5.
    readings: Vec<Damage>,
}

impl Damage {
    fn set(at: impl Into<String>, value: Value) -> Self {
        Self::of(vec![Change::Set(at.into(), value)])
    }

    /// Another value at a place, which is what it is where a union takes it as an array of one or as text.
    fn read_as(at: &str, value: Value) -> Self {
        let text = Self::set(at, json!(value.to_string()));
        Self::set(at, value.clone())
            .or(Self::set(at, json!([value])))
            .or(text)
    }

    fn add(at: impl Into<String>, name: impl Into<String>, value: Value) -> Self {
        Self::of(vec![Change::Add(at.into(), name.into(), value)])
    }

    /// The property under another name, in the same object or in another.
    fn moved(from: &str, value: Value, to: &str, name: impl Into<String>) -> Self {
        Self::of(vec![
            Change::Remove(from.to_owned()),
            Change::Add(to.to_owned(), name.into(), value),
        ])
    }

    const fn of(changes: Vec<Change>) -> Self {
        Self {
            changes,
            wrap: None,
            parts: Vec::new(),
            readings: Vec::new(),
        }
    }

    fn wrap(key: impl Into<String>, text: bool) -> Self {
        Self::default().wrapped(key, text, None)
    }

    fn wrapped(
        mut self,
        key: impl Into<String>,
        text: bool,
        company: Option<(String, Value)>,
    ) -> Self {
        self.wrap = Some(Wrap {
            key: key.into(),
            text,
            company,
        });
        self
    }

    /// The damaged arguments; `None` where a place is missing, or nothing became of it.
    pub(crate) fn of_args(&self, args: &Value) -> Option<Value> {
        let mut damaged = args.clone();
        for change in &self.changes {
            change.apply(&mut damaged)?;
        }
        if let Some(wrap) = &self.wrap {
            damaged = wrap.around(damaged)?;
        }
        (&damaged != args).then_some(damaged)
    }

    /// Both at once, where neither gets into the other's way.
    pub(crate) fn and(&self, other: &Self) -> Option<Self> {
        let apart = self
            .touched()
            .all(|one| other.touched().all(|two| !overlap(&one, &two)));
        if !apart || (self.wrap.is_some() && other.wrap.is_some()) {
            return None;
        }
        Some(Self {
            changes: [&self.changes[..], &other.changes[..]].concat(),
            wrap: self.wrap.clone().or_else(|| other.wrap.clone()),
            parts: self.split().chain(other.split()).cloned().collect(),
            readings: Vec::new(),
        })
    }

    /// What the same would mean if it were read another way, and is meant where it fits.
    fn or(mut self, other: Self) -> Self {
        self.readings.push(other);
        self
    }

    fn split(&self) -> impl Iterator<Item = &Self> {
        let one = self.parts.is_empty().then_some(self);
        one.into_iter().chain(&self.parts)
    }

    /// What else may be meant, where it fits: each choice of the damages that this one is put together of, and each way of
    /// reading them.
    pub(crate) fn meanings(&self) -> Vec<Self> {
        let nothing = Self::default();
        self.split().fold(vec![nothing], |chosen, part| {
            let together = chosen.iter().flat_map(|so_far| {
                let options = std::iter::once(part).chain(&part.readings);
                options.filter_map(|option| so_far.and(option))
            });
            let more: Vec<Self> = together.collect();
            chosen.into_iter().chain(more).collect()
        })
    }

    fn touched(&self) -> impl Iterator<Item = String> {
        self.changes.iter().map(|change| match change {
            Change::Set(at, _) | Change::Remove(at) => at.clone(),
            Change::Add(at, name, _) => under(at, name),
        })
    }
}

impl Change {
    fn apply(&self, args: &mut Value) -> Option<()> {
        match self {
            Self::Set(at, value) => *args.pointer_mut(at)? = value.clone(),
            Self::Add(at, name, value) => {
                let entries = args.pointer_mut(at)?.as_object_mut()?;
                if entries.contains_key(name) {
                    return None;
                }
                entries.insert(name.clone(), value.clone());
            }
            Self::Remove(at) => {
                let (parent, name) = split(at)?;
                args.pointer_mut(parent)?.as_object_mut()?.remove(&name)?;
            }
        }
        Some(())
    }
}

impl Wrap {
    fn around(&self, args: Value) -> Option<Value> {
        let inner = if self.text {
            Value::String(args.to_string())
        } else {
            args
        };
        let mut entries = Map::from_iter([(self.key.clone(), inner)]);
        if let Some((name, value)) = &self.company {
            if entries.contains_key(name) {
                return None;
            }
            entries.insert(name.clone(), value.clone());
        }
        Some(Value::Object(entries))
    }
}

impl<'a> Source<'a> {
    /// One of the values below the whole that are as asked.
    fn one(
        &self,
        chance: &mut Chance,
        asked: impl Fn(&Value) -> bool,
    ) -> Option<(String, &'a Value)> {
        let mut found = places(&self.gold.args);
        found.retain(|(at, value)| !at.is_empty() && asked(value));
        chance.pick(&found)
    }

    /// One of the values that stand in an object under a name.
    fn property(&self, chance: &mut Chance) -> Option<(String, String, String, &'a Value)> {
        let args = &self.gold.args;
        let mut found = places(args);
        found.retain(|(at, _)| {
            split(at).is_some_and(|(parent, _)| args.pointer(parent).is_some_and(Value::is_object))
        });
        let (at, value) = chance.pick(&found)?;
        let (parent, name) = split(&at)?;
        Some((at.clone(), parent.to_owned(), name, value))
    }

    /// One of the objects, the whole being one.
    fn object(&self, chance: &mut Chance) -> Option<(String, &'a Map<String, Value>)> {
        let found: Vec<_> = places(&self.gold.args)
            .into_iter()
            .filter_map(|(at, value)| Some((at, value.as_object()?)))
            .collect();
        chance.pick(&found)
    }

    /// One of the words that were chosen from a list.
    fn chosen(&self, chance: &mut Chance) -> Option<(String, &'a str)> {
        let at = chance.pick(&self.gold.sites.chosen)?;
        let word = self.gold.args.pointer(&at)?.as_str()?;
        Some((at, word))
    }
}

/// A value that has nothing to do with the matter.
fn chatter(chance: &mut Chance) -> Value {
    match chance.below(5) {
        0 => json!(0.9),
        1 => json!(true),
        2 => json!(["because"]),
        3 => json!({"step": 1}),
        _ => json!("The user asked for it."),
    }
}
