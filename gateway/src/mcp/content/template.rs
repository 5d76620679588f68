//! Texts with places for values, `{name}`, and addresses of that form.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;

/// The most bytes of a value in an address.
const VALUE_MAX: usize = 1_024;

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

/// A text with values in their places; what is no place of one stays. Within JSON a value is written as in a string.
pub(super) fn filled(text: &str, values: &BTreeMap<String, String>, is_json: bool) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        filled.push_str(before);
        let named = behind.split_once('}');
        let value = named.and_then(|(name, after)| Some((values.get(name)?, after)));
        match value {
            Some((value, after)) if is_json => {
                let written = serde_json::Value::from(value.as_str()).to_string();
                filled.push_str(&written[1..written.len() - 1]);
                rest = after;
            }
            Some((value, after)) => {
                filled.push_str(value);
                rest = after;
            }
            None => {
                filled.push('{');
                rest = behind;
            }
        }
    }
    filled.push_str(rest);
    filled
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
            assert_eq!(filled(text, &values, is_json), expected);
        }
    }
}
