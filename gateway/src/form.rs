//! JSON objects of callers, taken apart and put together again without touching the values: every number keeps its digits, and a
//! field that stands twice stands twice again.

use std::fmt;

use fleet::{
    arguments::{self, Limits},
    wire::{code::Code, message::Message},
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::refusal::Refused;

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
        serde_json::from_slice(body).map_err(|_wrong| wrong(body))
    }

    /// Of this text, where it is an object.
    pub(crate) fn of(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
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

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

/// What is wrong with a body that is no object.
pub(crate) fn wrong(body: &[u8]) -> Refused {
    match arguments::parse(body, &Limits::ANSWER) {
        Err(error) => Refused::new(error.code.into(), error.message),
        Ok(_object) => {
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
}
