//! Texts with places for values, `{name}`, and addresses of that form.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;

/// The most bytes of a value in an address.
const VALUE_MAX: usize = 1_024;
/// The most bytes of the texts of one answer: a text may have a long value in many places.
pub(in super::super) const FILLED_MAX: usize = 4 * 1024 * 1024;

/// A form of addresses: text, and variables between it. Each stands for what has no `/`, `?` or `#`.
#[derive(Debug, Clone)]
pub(in super::super) struct UriPattern {
    written: String,
    /// A text, and the name of the variable behind it.
    parts: Vec<(String, String)>,
    /// The text behind the last variable.
    end: String,
}

impl UriPattern {
    /// Of a template with simple expressions, `{name}`.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(super) fn read(written: &str) -> Result<Self, &'static str> {
        let mut parts: Vec<(String, String)> = Vec::new();
        let mut rest = written;
        while let Some((text, behind)) = rest.split_once('{') {
            let (name, behind) = behind.split_once('}').ok_or("a { is not closed")?;
            if !is_name(name) {
                return Err("what stands in {} must be a name of letters, digits and _");
            }
            if parts.iter().any(|(_, known)| known == name) {
                return Err("a variable stands there twice");
            }
            if text.is_empty() && !parts.is_empty() {
                return Err("between two variables there must be text");
            }
            parts.push((text.to_owned(), name.to_owned()));
            rest = behind;
        }
        if parts.is_empty() {
            return Err("it has no variable, so write it as uri");
        }
        Ok(Self {
            written: written.to_owned(),
            parts,
            end: rest.to_owned(),
        })
    }

    /// As it was written.
    pub(in super::super) fn as_str(&self) -> &str {
        &self.written
    }

    /// Whether it has this variable.
    pub(super) fn has(&self, name: &str) -> bool {
        self.parts.iter().any(|(_, known)| known == name)
    }

    /// The values of its variables in an address; `None`: it is of another form.
    pub(in super::super) fn matches(&self, uri: &str) -> Option<BTreeMap<String, String>> {
        let mut values = BTreeMap::new();
        let mut rest = uri;
        for (number, (text, name)) in self.parts.iter().enumerate() {
            rest = rest.strip_prefix(text.as_str())?;
            let next = self
                .parts
                .get(number + 1)
                .map_or(&self.end, |(text, _)| text);
            let end = match next.is_empty() {
                true => rest.len(),
                false => rest.find(next.as_str())?,
            };
            let (value, behind) = rest.split_at(end);
            let is_fit =
                !value.is_empty() && value.len() <= VALUE_MAX && !value.contains(['/', '?', '#']);
            if !is_fit {
                return None;
            }
            let value = percent_decode_str(value).decode_utf8().ok()?;
            values.insert(name.clone(), value.into_owned());
            rest = behind;
        }
        (rest == self.end).then_some(values)
    }
}

/// Whether it can be the name of a variable.
pub(super) fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.len() <= 64 && name.bytes().all(fits)
}

/// Whether a type is one of JSON.
pub(super) fn is_json(mime: &str) -> bool {
    let kind = mime.split(';').next().unwrap_or_default().trim();
    kind == "application/json" || kind.ends_with("+json")
}

/// The room for the texts of one answer.
#[derive(Debug)]
pub(super) struct TextRoom(usize);

/// Texts with values in their places have more bytes than an answer may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct TooLong;

impl TextRoom {
    /// For one answer.
    pub(super) const fn of_answer() -> Self {
        Self(FILLED_MAX)
    }

    fn take(&mut self, text: &str, filled: &mut String) -> Result<(), TooLong> {
        self.0 = self.0.checked_sub(text.len()).ok_or(TooLong)?;
        filled.push_str(text);
        Ok(())
    }
}

/// A text with values in their places, as far as there is room; what is no place of one stays. Within JSON a value is written as in
/// a string.
///
/// # Errors
///
/// There is no room for it.
pub(super) fn filled(
    text: &str,
    values: &BTreeMap<String, String>,
    is_json: bool,
    room: &mut TextRoom,
) -> Result<String, TooLong> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        room.take(before, &mut filled)?;
        let named = behind.split_once('}');
        let value = named.and_then(|(name, after)| Some((values.get(name)?, after)));
        match value {
            Some((value, after)) if is_json => {
                let written = serde_json::Value::from(value.as_str()).to_string();
                room.take(&written[1..written.len() - 1], &mut filled)?;
                rest = after;
            }
            Some((value, after)) => {
                room.take(value, &mut filled)?;
                rest = after;
            }
            None => {
                room.take("{", &mut filled)?;
                rest = behind;
            }
        }
    }
    room.take(rest, &mut filled)?;
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn an_address_of_a_form_has_its_values() {
        let of = |pattern: &str, uri: &str| UriPattern::read(pattern).unwrap().matches(uri);
        for (pattern, uri, expected) in [
            (
                "test://a/{id}/data",
                "test://a/123/data",
                Some(vec![("id", "123")]),
            ),
            (
                "test://a/{id}",
                "test://a/%E4%B8%AD%2F",
                Some(vec![("id", "中/")]),
            ),
            (
                "test://{a}/{b}.txt",
                "test://x/y.txt",
                Some(vec![("a", "x"), ("b", "y")]),
            ),
            ("test://a/{id}/data", "test://a/1/2/data", None),
            ("test://a/{id}/data", "test://a//data", None),
            ("test://a/{id}/data", "test://a/1/datax", None),
            ("test://a/{id}", "test://a/", None),
            ("test://a/{id}", "test://a/1?x", None),
            ("test://a/{id}", "test://a/%ff", None),
        ] {
            assert_eq!(
                of(pattern, uri),
                expected.map(|pairs| values(&pairs)),
                "{uri}"
            );
        }
        for wrong in ["test://a", "a/{", "a/{}", "a/{+x}", "a/{x}{y}", "a/{x}/{x}"] {
            assert!(UriPattern::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn values_stand_in_their_places_and_nothing_else_changes() {
        let values = values(&[("a", "x\"{b}"), ("b", "y")]);
        for (text, is_json, expected) in [
            ("{a}-{b}", false, "x\"{b}-y"),
            ("{\"v\": \"{a}\"}", true, "{\"v\": \"x\\\"{b}\"}"),
            ("{c} { {a", false, "{c} { {a"),
            ("{{b}}", false, "{y}"),
        ] {
            let mut room = TextRoom::of_answer();
            let filled = filled(text, &values, is_json, &mut room);
            assert_eq!(filled.as_deref(), Ok(expected));
        }
    }

    #[test]
    fn a_value_in_many_places_takes_the_room_of_an_answer_and_no_more() {
        let values = values(&[("a", &"x".repeat(1_000))]);
        let mut room = TextRoom(3_003);
        let twice = filled("-{a}{a}", &values, false, &mut room).unwrap();
        assert_eq!((twice.len(), room.0), (2_001, 1_002));
        assert_eq!(filled("-{a}{a}", &values, false, &mut room), Err(TooLong));
        let escaped = BTreeMap::from([("a".to_owned(), "\"\"".to_owned())]);
        let mut room = TextRoom(3);
        assert_eq!(filled("{a}", &escaped, true, &mut room), Err(TooLong));
    }
}
