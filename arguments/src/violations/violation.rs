//! One thing about a value that does not fit.

use std::fmt;

use serde_json::{Value, json};

use super::naming::{each, quoted_value, spaced};
use crate::message::{Language, Message};

/// One thing about a value that does not fit its schema.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    /// JSON pointer to the value, or to the property that is missing; empty for the arguments as a whole.
    pub path: String,
    /// What the schema wants, to be read after "expected".
    pub expected: Message,
    /// What stood there: its kind and the beginning of it, at most 64 bytes.
    pub found: Message,
    /// The allowed value, or the declared property, that is nearest to what stood there.
    pub nearest: Option<Value>,
    /// The keyword of the schema that failed.
    pub keyword: String,
    /// What stood there, without anything of its value.
    pub(super) found_kind: Message,
    /// Whether the schema names the property at this place, or a property around it.
    pub(super) declared: bool,
}

impl Violation {
    /// What was expected and what was found, without the place.
    pub fn sentence(&self) -> Message {
        let nearest = self.nearest.as_ref().map(quoted_value);
        // The only value there may be has been named already.
        let nearest = nearest.filter(|nearest| nearest != self.expected.english());
        each(|language| {
            let (expected, found) = (self.expected.told(language), self.found.told(language));
            match (language, &nearest) {
                (Language::En, None) => format!("expected {expected}, found {found}"),
                (Language::En, Some(nearest)) => {
                    format!("expected {expected}; the nearest is {nearest}, found {found}")
                }
                (Language::Zh, None) => format!("应为{}，实际：{found}", spaced(expected)),
                (Language::Zh, Some(nearest)) => {
                    let expected = spaced(expected);
                    format!("应为{expected}（最接近的是 {nearest}），实际：{found}")
                }
            }
        })
    }

    pub(super) fn hide_value(&mut self) {
        self.found = self.found_kind.clone();
        // A guess at what was meant tells of the value; the name of a property stands in the path anyway.
        if !self.is_about_a_name() {
            self.nearest = None;
        }
    }

    fn is_about_a_name(&self) -> bool {
        matches!(
            self.keyword.as_str(),
            "additionalProperties" | "unevaluatedProperties"
        )
    }

    pub(super) fn to_json(&self, language: Language) -> Value {
        let mut told = json!({
            "path": self.path,
            "expected": self.expected.told(language),
            "found": self.found.told(language),
        });
        if let Some(nearest) = &self.nearest {
            told["nearest"] = nearest.clone();
        }
        told
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.path.is_empty() {
            "the arguments"
        } else {
            &self.path
        };
        write!(f, "{place}: {}", self.sentence())
    }
}
