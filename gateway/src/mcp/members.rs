//! The members of a JSON object, each value as the bytes that it has in the body: nothing is copied, and no number is read.

use std::fmt;

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// The most members of an object.
const MEMBERS_MAX: usize = 1_000;

/// The members of an object of a message, in their order. Each value shares the memory of the body.
#[derive(Debug, Clone, Default)]
pub(super) struct RawMembers(Vec<(String, Bytes)>);

/// Why an object is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoMembers {
    /// It is no object, or no JSON.
    NoObject,
    /// A name stands in it twice.
    Twice,
    /// It has more members than may be.
    TooMany,
}

impl RawMembers {
    /// Of an object that fills these bytes.
    ///
    /// # Errors
    ///
    /// As [`NoMembers`] says.
    pub(super) fn of(object: &Bytes) -> Result<Self, NoMembers> {
        let read: ReadMembers<'_> =
            serde_json::from_slice(object).map_err(|_other| NoMembers::NoObject)?;
        if read.has_more {
            return Err(NoMembers::TooMany);
        }
        let mut members: Vec<(String, Bytes)> = Vec::with_capacity(read.first.len());
        for (name, value) in read.first {
            members.push((name, object.slice_ref(value.get().as_bytes())));
        }
        let members = Self(members);
        if members.has_a_name_twice() {
            return Err(NoMembers::Twice);
        }
        Ok(members)
    }

    /// Of these, each JSON text, whose names are all different.
    pub(super) fn made(members: &[(&str, Bytes)]) -> Self {
        let members = members.iter();
        Self(
            members
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
        )
    }

    /// The value of this member, JSON text.
    pub(super) fn get(&self, name: &str) -> Option<&Bytes> {
        let found = self.0.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value)
    }

    /// The text of this member; `None` where there is none, or where it is no string.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        serde_json::from_slice(self.get(name)?).ok()
    }

    /// The members, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Those that have another name, under that.
    pub(super) fn renamed(self, name: impl Fn(&str) -> Option<String>) -> Self {
        let renamed = self.0.into_iter();
        Self(
            renamed
                .filter_map(|(given, value)| Some((name(&given)?, value)))
                .collect(),
        )
    }

    /// With another value of a member that is there.
    pub(super) fn with(mut self, name: &str, value: Bytes) -> Self {
        let mut members = self.0.iter_mut();
        if let Some((_, known)) = members.find(|(given, _)| given == name) {
            *known = value;
        }
        self
    }

    /// The object. Every value stays the bytes that it is.
    pub(super) fn to_object(&self) -> Bytes {
        self.written(|_name| true)
    }

    /// The object without this member. Every value stays the bytes that it is.
    pub(super) fn without(&self, name: &str) -> Bytes {
        self.written(|given| given != name)
    }

    fn written(&self, is_kept: impl Fn(&str) -> bool) -> Bytes {
        let size: usize = self
            .0
            .iter()
            .map(|(name, value)| name.len() + value.len() + 4)
            .sum();
        let mut text = Vec::with_capacity(size + 2);
        text.push(b'{');
        for (given, value) in self.0.iter().filter(|(given, _)| is_kept(given)) {
            if text.len() > 1 {
                text.push(b',');
            }
            serde_json::to_writer(&mut text, given).expect("a name is a string");
            text.push(b':');
            text.extend_from_slice(value);
        }
        text.push(b'}');
        text.into()
    }

    fn has_a_name_twice(&self) -> bool {
        let mut names: Vec<&str> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names.windows(2).any(|pair| pair[0] == pair[1])
    }
}

/// What is read of an object.
struct ReadMembers<'a> {
    first: Vec<(String, &'a RawValue)>,
    has_more: bool,
}

impl<'de> Deserialize<'de> for ReadMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = ReadMembers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<ReadMembers<'de>, A::Error> {
                let mut first = Vec::new();
                while first.len() < MEMBERS_MAX
                    && let Some(member) = map.next_entry()?
                {
                    first.push(member);
                }
                let mut has_more = false;
                while first.len() >= MEMBERS_MAX
                    && map
                        .next_entry::<de::IgnoredAny, de::IgnoredAny>()?
                        .is_some()
                {
                    has_more = true;
                }
                Ok(ReadMembers { first, has_more })
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<RawMembers, NoMembers> {
        RawMembers::of(&Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn values_are_the_bytes_of_the_body() {
        let body =
            Bytes::from_static(br#"{"a": {"n" : 9007199254740993, "n":1.10 } , "\u0062":"x"}"#);
        let members = RawMembers::of(&body).unwrap();
        let value = members.get("a").unwrap();
        assert_eq!(&value[..], br#"{"n" : 9007199254740993, "n":1.10 }"#);
        // The same memory, so that the body is not kept twice.
        let place = value.as_ptr() as usize - body.as_ptr() as usize;
        assert_eq!(place, 6);
        assert_eq!(members.text("b").as_deref(), Some("x"));
        assert_eq!(members.text("a"), None);
        assert!(members.get("c").is_none());
    }

    #[test]
    fn what_cannot_mean_one_thing_is_not_taken() {
        for (text, why) in [
            ("[]", NoMembers::NoObject),
            ("1", NoMembers::NoObject),
            ("{", NoMembers::NoObject),
            ("{}x", NoMembers::NoObject),
            (r#"{"a":1,"\u0061":2}"#, NoMembers::Twice),
        ] {
            assert_eq!(of(text).unwrap_err(), why, "{text}");
        }
        let many = |count: usize| {
            let members: Vec<String> = (0..count).map(|n| format!("\"k{n}\":0")).collect();
            of(&format!("{{{}}}", members.join(",")))
        };
        assert!(many(MEMBERS_MAX).is_ok());
        assert_eq!(many(MEMBERS_MAX + 1).unwrap_err(), NoMembers::TooMany);
    }
}
