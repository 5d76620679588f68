//! JSON objects of callers, taken apart and put together again without touching the values: every number keeps its digits, and a
//! field that stands twice stands twice again.

use std::fmt;

use fleet::{
    arguments::{self, Limits},
    said,
    wire::{code::Code, message::Message},
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::refusal::Refused;

/// The most fields of an object. Ours have fewer, and the door takes fewer of most.
const FIELDS_MAX: usize = 1_000;

/// The most values of a body that is looked at closer to say what is wrong with it.
const VALUES_MAX: usize = 100_000;

/// The fields of an object, in their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields(Vec<(String, Box<RawValue>)>);

impl Fields {
    /// Of these bytes; none of no bytes.
    ///
    /// # Errors
    ///
    /// They are no JSON object: what is wrong, with the code that the door would give it.
    pub(crate) fn read(body: &[u8]) -> Result<Self, Refused> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        let read: InOrder = serde_json::from_slice(body).map_err(|_wrong| wrong(body))?;
        read.all().ok_or_else(too_many)
    }

    /// Of this text.
    ///
    /// # Errors
    ///
    /// It is no object that can be read.
    pub(crate) fn of(text: &str) -> Result<Self, NoFields> {
        let read = serde_json::from_str::<InOrder>(text);
        let read = read.map_err(|_other| NoFields::Other)?;
        read.all().ok_or(NoFields::TooMany)
    }

    /// The values of this field, however often it stands there.
    pub(crate) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a RawValue> {
        let named = move |(field, _): &&(String, Box<RawValue>)| field == name;
        self.0.iter().filter(named).map(|(_, value)| &**value)
    }

    /// The names of all fields, one that stands twice twice.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Whether there is such a field.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }

    /// Adds a field at the end.
    pub(crate) fn push(&mut self, name: &str, value: &impl Serialize) {
        let value = serde_json::value::to_raw_value(value).expect("a value has only string keys");
        self.0.push((name.to_owned(), value));
    }

    /// Leaves this field out.
    pub(crate) fn remove(&mut self, name: &str) {
        self.0.retain(|(field, _)| field != name);
    }

    /// Changes the values of this field.
    pub(crate) fn change(
        &mut self,
        name: &str,
        mut change: impl FnMut(&RawValue) -> Option<Box<RawValue>>,
    ) {
        for (_, value) in self.0.iter_mut().filter(|(field, _)| field == name) {
            if let Some(changed) = change(value) {
                *value = changed;
            }
        }
    }

    /// As the text of an object.
    pub(crate) fn to_text(&self) -> String {
        let size: usize = self
            .0
            .iter()
            .map(|(name, value)| name.len() + value.get().len() + 4)
            .sum();
        let mut text = String::with_capacity(size + 2);
        text.push('{');
        for (place, (name, value)) in self.0.iter().enumerate() {
            if place > 0 {
                text.push(',');
            }
            text.push_str(&serde_json::to_string(name).expect("a name is a string"));
            text.push(':');
            text.push_str(value.get());
        }
        text.push('}');
        text
    }

    /// Refuses a field that the caller does not give.
    ///
    /// # Errors
    ///
    /// It is there.
    pub(crate) fn refuse(&self, name: &str, why: Message) -> Result<(), Refused> {
        if self.has(name) {
            return Err(Refused::new(Code::InvalidArguments, why));
        }
        Ok(())
    }

    /// Names who decides: the token of this name. `None`: nobody was asked for one, and whoever decides says it.
    ///
    /// # Errors
    ///
    /// The caller says it, too.
    pub(crate) fn name_actor(&mut self, token: Option<&str>) -> Result<(), Refused> {
        let Some(name) = token else {
            return Ok(());
        };
        let what = Message::fixed(
            "the token says who decides: leave actor out",
            "token 已说明由谁决定：请去掉 actor",
        );
        self.refuse("actor", what)?;
        self.push("actor", &name);
        Ok(())
    }
}

/// Why a text has no fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoFields {
    /// It is an object with more than may be. Whoever passes on what was not looked at has to refuse it.
    TooMany,
    /// It is no object, or one of its names is no text. The door says so.
    Other,
}

/// The first fields of an object, and whether there are more.
struct InOrder {
    first: Fields,
    has_more: bool,
}

impl InOrder {
    fn all(self) -> Option<Fields> {
        (!self.has_more).then_some(self.first)
    }
}

impl<'de> Deserialize<'de> for InOrder {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = InOrder;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<InOrder, A::Error> {
                let mut fields = Vec::new();
                while fields.len() < FIELDS_MAX
                    && let Some(field) = map.next_entry()?
                {
                    fields.push(field);
                }
                let mut has_more = false;
                while fields.len() >= FIELDS_MAX
                    && map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some()
                {
                    has_more = true;
                }
                Ok(InOrder {
                    first: Fields(fields),
                    has_more,
                })
            }
        }

        deserializer.deserialize_map(Members)
    }
}

/// The first values of a list, and how many there are.
#[derive(Debug)]
pub(crate) struct Listed<'a> {
    /// At most as many as were asked for.
    pub(crate) first: Vec<&'a RawValue>,
    /// How many there are, those included that are left out.
    pub(crate) count: usize,
}

impl<'a> Listed<'a> {
    /// Of this text, at most so many; `None` where it is no list.
    pub(crate) fn of(text: &'a str, most: usize) -> Option<Self> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let listed = AtMost(most).deserialize(&mut reader).ok()?;
        reader.end().ok()?;
        Some(listed)
    }

    /// All of them, where they are one at least and not more than were asked for.
    pub(crate) fn all(self) -> Option<Vec<&'a RawValue>> {
        (self.count == self.first.len() && self.count > 0).then_some(self.first)
    }
}

struct AtMost(usize);

impl<'de> DeserializeSeed<'de> for AtMost {
    type Value = Listed<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Listed<'de>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for AtMost {
    type Value = Listed<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Listed<'de>, A::Error> {
        let mut first = Vec::new();
        while first.len() < self.0
            && let Some(one) = list.next_element()?
        {
            first.push(one);
        }
        let mut count = first.len();
        while count >= self.0 && list.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(Listed { first, count })
    }
}

fn too_many() -> Refused {
    let what = said!(
        "an object of a body may have {FIELDS_MAX} fields",
        "请求体中的对象最多有 {FIELDS_MAX} 个字段"
    );
    Refused::new(Code::InvalidArguments, what)
}

/// What is wrong with a body that is no object. Of one with very many values it is only said that it is no JSON: to look closer, all of
/// them would have to be kept.
pub(crate) fn wrong(body: &[u8]) -> Refused {
    let limits = Limits {
        nodes: VALUES_MAX,
        ..Limits::ANSWER
    };
    match arguments::parse(body, &limits).map_err(|error| (error.code.into(), error.message)) {
        Err((code, message)) if code != Code::TooManyNodes => Refused::new(code, message),
        Ok(_) | Err(_) => {
            let what = Message::fixed("the body is not JSON", "请求体不是 JSON");
            Refused::new(Code::MalformedJson, what)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_as_they_are() {
        let body = br#"{"result": {"a" : 9007199254740993, "a": 1E2} , "\u0061": "\u4e2d", "result":0.10}"#;
        let mut fields = Fields::read(body).unwrap();
        fields.push("call_id", &"x");
        assert_eq!(
            fields.to_text(),
            r#"{"result":{"a" : 9007199254740993, "a": 1E2},"a":"\u4e2d","result":0.10,"call_id":"x"}"#
        );
        assert_eq!(fields.values("result").count(), 2);
        assert!(fields.has("a") && !fields.has("b"));
        assert_eq!(Fields::read(b"").unwrap().to_text(), "{}");
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for body in [
            "[]",
            "{",
            "nothing",
            "{\"a\":1}x",
            "\"a\"",
            "{\"a\":\"\\ud800\"}",
        ] {
            let read = Fields::read(body.as_bytes());
            // A lone surrogate is the door's to refuse: values are not looked into here.
            assert_eq!(read.is_ok(), body.contains("ud800"), "{body}");
        }
    }

    #[test]
    fn no_more_is_kept_of_a_body_than_may_be_in_it() {
        let of = |count: usize| format!("{{{}}}", vec!["\"a\":0"; count].join(","));
        assert!(Fields::read(of(FIELDS_MAX).as_bytes()).is_ok());
        assert!(Fields::read(of(FIELDS_MAX + 1).as_bytes()).is_err());
        let none = |text: &str| Fields::of(text).unwrap_err();
        assert_eq!(none(&of(FIELDS_MAX + 1)), NoFields::TooMany);
        assert_eq!(none("[]"), NoFields::Other);
        assert_eq!(none(&format!("{}x", of(FIELDS_MAX + 1))), NoFields::Other);
        let list = Listed::of("[1,[2],3]", 2).unwrap();
        assert_eq!((list.first.len(), list.count), (2, 3));
        assert_eq!(Listed::of("[1,[2]]", 2).unwrap().all().unwrap().len(), 2);
        assert!(Listed::of("[]", 2).unwrap().all().is_none());
        assert!(Listed::of("[1,2,3]", 2).unwrap().all().is_none());
        assert!(Listed::of("{}", 2).is_none() && Listed::of("[1]x", 2).is_none());
    }
}
