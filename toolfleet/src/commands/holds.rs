//! A value at a place of a JSON document, on the command line: `/pointer=value`.

use std::str::FromStr;

use fleet::{call::Language, controls::ArgumentEquals};
use fleet_history::filter::ValueAt;
use serde_json::Value;

/// The most bytes of a pointer.
const POINTER_MAX: usize = 1024;

/// A value at a place.
#[derive(Debug, Clone)]
pub(super) struct Holds {
    /// JSON pointer.
    pub(super) pointer: String,
    /// Canonical JSON.
    pub(super) value: String,
}

impl Holds {
    /// As the history is asked.
    ///
    /// # Errors
    ///
    /// The pointer is none.
    pub(super) fn value_at(&self) -> Result<ValueAt, String> {
        let segments = self.pointer.split('/').skip(1);
        let path: Option<Vec<String>> = segments.map(unescaped).collect();
        match path {
            Some(path) if self.pointer.len() <= POINTER_MAX => Ok(ValueAt {
                path,
                value: self.value.clone(),
            }),
            Some(_) | None => Err(format!(
                "a JSON pointer such as /account/id has at most {POINTER_MAX} bytes, and ~ only in ~0 and ~1"
            )),
        }
    }
}

/// A segment of a pointer as the member's name that it stands for; `None` where `~` stands for nothing.
fn unescaped(segment: &str) -> Option<String> {
    let mut parts = segment.split('~');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (letter, rest) = match part.as_bytes().first()? {
            b'0' => ('~', &part[1..]),
            b'1' => ('/', &part[1..]),
            _other => return None,
        };
        name.push(letter);
        name.push_str(rest);
    }
    Some(name)
}

impl FromStr for Holds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let split = text.split_once('=');
        let Some((pointer, value)) = split.filter(|(pointer, _)| pointer.starts_with('/')) else {
            return Err(
                "write /pointer=value; a value that is JSON is compared as JSON, else as text"
                    .to_owned(),
            );
        };
        let value = if serde_json::from_str::<Value>(value).is_ok() {
            ArgumentEquals::canonical(value)
        } else {
            ArgumentEquals::canonical(&Value::from(value).to_string())
        };
        Ok(Self {
            pointer: pointer.to_owned(),
            value: value.map_err(|problem| problem.told(Language::En).to_owned())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Result<Vec<String>, String> {
        text.parse::<Holds>()?.value_at().map(|at| at.path)
    }

    #[test]
    fn a_pointer_becomes_the_names_that_lead_there() {
        assert_eq!(path("/account/id=7").unwrap(), ["account", "id"]);
        assert_eq!(path("/a~1b/~0/=x").unwrap(), ["a/b", "~", ""]);
        for wrong in ["/a~=1", "/a~2=1", "a=1", "/a"] {
            assert!(path(wrong).is_err(), "{wrong}");
        }
        assert!(path(&format!("/{}=1", "a".repeat(POINTER_MAX))).is_err());
    }

    #[test]
    fn a_value_is_json_where_it_can_be_and_text_where_not() {
        let value = |text: &str| text.parse::<Holds>().unwrap().value;
        assert_eq!(value("/a=7"), "7");
        assert_eq!(value("/a=Oslo"), "\"Oslo\"");
        assert_eq!(value("/a=\"7\""), "\"7\"");
        assert_eq!(value("/a=x=y"), "\"x=y\"");
    }
}
