//! What a model reads when its arguments do not fit: where, what was expected, what was found.
//!
//! `finding` takes an error of the validator apart, `wording` and `property` say what was expected, `naming` how a value, a list
//! and a number are named in a sentence; a `violation` is one of them, and this file sorts, bounds and shows all.

mod finding;
mod naming;
mod property;
mod violation;
mod wording;

use jsonschema::ValidationError;
use serde_json::{Value, json};

pub(crate) use self::naming::describe;
pub use self::violation::Violation;
use self::{
    finding::{PATH_BYTES_MAX, findings},
    naming::{VALUE_BYTES_MAX, describe_kind, each, quoted},
};
use crate::{
    message::{Language, Message, said},
    pointer,
    shorten::shorten,
};

/// Violations shown in one answer.
const ITEMS_MAX: usize = 16;
/// Bytes of all of them as JSON.
const BYTES_MAX: usize = 2 * 1024;
/// Bytes of a summary.
const SUMMARY_BYTES_MAX: usize = 480;

/// Everything about a value that does not fit, bounded: at most 16 entries and 2 KiB of JSON in either language.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Violations {
    items: Vec<Violation>,
    left_out: usize,
}

impl Violations {
    /// Whether the value fits.
    pub const fn is_empty(&self) -> bool {
        self.items.is_empty() && self.left_out == 0
    }

    /// What is shown, sorted by path, then keyword.
    pub fn items(&self) -> &[Violation] {
        &self.items
    }

    /// How many more there are.
    pub const fn left_out(&self) -> usize {
        self.left_out
    }

    /// How many there are in all.
    pub const fn total(&self) -> usize {
        self.items.len() + self.left_out
    }

    /// The same without the values that `hides` says of their pointers: only their kind is told.
    #[must_use]
    pub fn without_values(mut self, hides: impl Fn(&str) -> bool) -> Self {
        for item in &mut self.items {
            // A pointer that was cut may lead anywhere.
            if item.path.ends_with('…') || hides(&item.path) {
                item.hide_value();
            }
        }
        self
    }

    /// The same without the values of properties that the schema does not name: only their kind is told.
    #[must_use]
    pub fn without_undeclared_values(mut self) -> Self {
        for item in self.items.iter_mut().filter(|item| !item.declared) {
            item.hide_value();
        }
        self
    }

    /// The same, with the wrapper `key` named that holds `value`, in which the arguments were sent and must not be.
    #[must_use]
    pub(crate) fn with_wrapper(mut self, key: &str, value: &Value) -> Self {
        let path = shorten(&pointer::below("", key), PATH_BYTES_MAX).into_owned();
        self.items.retain(|item| item.path != path);
        let name = quoted(key, VALUE_BYTES_MAX);
        let wrapper = Violation {
            path: path.clone(),
            expected: said!(
                "the arguments themselves, not inside {name}",
                "参数本身，而不是放在 {name} 里面"
            ),
            found: describe(value),
            nearest: None,
            keyword: "wrapper".to_owned(),
            found_kind: describe_kind(value),
            declared: false,
        };
        let at = self.items.partition_point(|item| item.path < wrapper.path);
        self.items.insert(at, wrapper);
        // It is shown in any case; what is over the bounds gives way.
        while self.is_over()
            && let Some(last) = self.items.iter().rposition(|item| item.path != path)
        {
            self.items.remove(last);
            self.left_out += 1;
        }
        self
    }

    fn is_over(&self) -> bool {
        let mut sizes = Language::ALL.iter();
        self.items.len() > ITEMS_MAX
            || sizes.any(|language| self.details(*language).to_string().len() > BYTES_MAX)
    }

    /// One sentence about the arguments, with as many violations as fit into 480 bytes.
    pub fn summary(&self) -> Message {
        self.summary_of(&Message::fixed("the arguments", "参数"))
    }

    /// One sentence about `whole`, with as many violations as fit into 480 bytes.
    pub fn summary_of(&self, whole: &Message) -> Message {
        each(|language| self.told(whole, language))
    }

    /// What stands in the `details` of an error: `violations`, each with `path`, `expected`, `found` and perhaps `nearest`,
    /// and how many were `left_out`.
    pub fn details(&self, language: Language) -> Value {
        let items: Vec<Value> = self
            .items
            .iter()
            .map(|item| item.to_json(language))
            .collect();
        json!({"violations": items, "left_out": self.left_out})
    }

    fn told(&self, whole: &Message, language: Language) -> String {
        let (between, colon) = match language {
            Language::En => ("; ", ": "),
            Language::Zh => ("；", "："),
        };
        let more = |rest: usize| {
            let more = said!(" (and {rest} more)", "（另有 {rest} 处）");
            more.told(language).to_owned()
        };
        let room = SUMMARY_BYTES_MAX - more(100_000).len();
        let mut text = String::new();
        for (shown, item) in self.items.iter().enumerate() {
            let place = match item.path.as_str() {
                "" => whole.told(language),
                path => path,
            };
            let between = if shown == 0 { "" } else { between };
            let next = format!("{between}{place}{colon}{}", item.sentence().told(language));
            if !text.is_empty() && text.len() + next.len() > room {
                return text + &more(self.total() - shown);
            }
            text.push_str(&next);
        }
        if self.left_out > 0 {
            text = shorten(&text, room).into_owned() + &more(self.left_out);
        }
        shorten(&text, SUMMARY_BYTES_MAX).into_owned()
    }

    /// Sorts, bounds and words the errors. `source` is the schema, for what it says of the properties it names.
    pub(crate) fn collect<'a>(
        errors: impl Iterator<Item = ValidationError<'a>>,
        source: Option<&Value>,
    ) -> Self {
        let errors: Vec<_> = errors.collect();
        let mut findings: Vec<_> = errors.iter().flat_map(findings).collect();
        findings.sort_by(|a, b| {
            (&a.path, a.error.kind().keyword()).cmp(&(&b.path, b.error.kind().keyword()))
        });

        let mut items = Vec::new();
        let mut bytes = r#"{"violations":[],"left_out":100000}"#.len();
        for finding in findings.iter().take(ITEMS_MAX) {
            let item = finding.word(source);
            let sizes = Language::ALL
                .iter()
                .map(|language| item.to_json(*language).to_string().len());
            bytes += sizes.max().unwrap_or(BYTES_MAX) + ",".len();
            if bytes > BYTES_MAX {
                break;
            }
            items.push(item);
        }
        Self {
            left_out: findings.len() - items.len(),
            items,
        }
    }
}

#[cfg(test)]
mod tests;
