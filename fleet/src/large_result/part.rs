//! The part of a JSON text at a pointer.

use std::{borrow::Cow, fmt};

use serde::{
    Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// The value at a JSON pointer, with its tokens as they are (RFC 6901). Keeps nothing of the rest.
pub fn part_at<'a>(result: &'a RawValue, path: &str) -> Option<&'a RawValue> {
    let mut part = result;
    if path.is_empty() {
        return Some(part);
    }
    for segment in path.strip_prefix('/')?.split('/') {
        let name = segment.replace("~1", "/").replace("~0", "~");
        let mut reader = serde_json::Deserializer::from_str(part.get());
        part = match part.get().as_bytes().first()? {
            b'{' => reader.deserialize_map(Member(&name)).ok()??,
            b'[' => {
                let is_index = name == "0" || !name.starts_with(['0', '+']);
                let index = name.parse().ok().filter(|_| is_index)?;
                reader.deserialize_seq(Nth(index)).ok()??
            }
            _scalar => return None,
        };
    }
    Some(part)
}

/// Takes the member of this name; of several the last, as everybody else does.
struct Member<'n>(&'n str);

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<Self::Value, M::Error> {
        let mut found = None;
        while let Some(name) = members.next_key::<Cow<'de, str>>()? {
            if name == self.0 {
                found = Some(members.next_value()?);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Takes the item of this number.
struct Nth(usize);

impl<'de> Visitor<'de> for Nth {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<Self::Value, S::Error> {
        for _before in 0..self.0 {
            if items.next_element::<IgnoredAny>()?.is_none() {
                return Ok(None);
            }
        }
        let found = items.next_element()?;
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }
}
