//! What a model reads when its arguments do not fit: where, what was expected, what was found.

use std::fmt;

use jsonschema::{ValidationError, error::ValidationErrorKind as Kind};
use serde_json::{Value, json};

use super::{
    naming::{
        FOUND_BYTES_MAX, VALUE_BYTES_MAX, describe, describe_kind, each, quoted, quoted_value,
        spaced,
    },
    pointer_segment,
    property::no_such_property,
    shorten,
    wording::{expected, nearest_value},
};
use crate::{call::Language, said, wire::message::Message};

/// Violations shown in one answer.
const ITEMS_MAX: usize = 16;
/// Bytes of all of them as JSON.
const BYTES_MAX: usize = 2 * 1024;
/// Bytes of one pointer.
const PATH_BYTES_MAX: usize = 256;
/// Bytes of one `expected`.
const EXPECTED_BYTES_MAX: usize = 400;
/// Bytes of a summary.
const SUMMARY_BYTES_MAX: usize = 480;

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
    found_kind: Message,
    /// Whether the schema names the property that stood there, or one that it stood in.
    declared: bool,
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

    fn hide_value(&mut self) {
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

    fn to_json(&self, language: Language) -> Value {
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
    pub(super) fn with_wrapper(mut self, key: &str, value: &Value) -> Self {
        let path = shorten(&below("", key), PATH_BYTES_MAX).into_owned();
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
    pub(super) fn collect<'a>(
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

/// One violation before it is put into words; an error about several properties becomes one for each.
struct Finding<'e, 'a> {
    path: String,
    error: &'e ValidationError<'a>,
    /// The property that must not be there.
    unexpected: Option<&'e str>,
}

fn findings<'e, 'a>(error: &'e ValidationError<'a>) -> Vec<Finding<'e, 'a>> {
    let base = error.instance_path().as_str();
    match error.kind() {
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let each = |name: &'e String| Finding {
                path: below(base, name),
                error,
                unexpected: Some(name.as_str()),
            };
            unexpected.iter().map(each).collect()
        }
        Kind::Required { property } => {
            let path = below(base, property.as_str().unwrap_or_default());
            vec![Finding {
                path,
                error,
                unexpected: None,
            }]
        }
        _about_the_value => vec![Finding {
            path: base.to_owned(),
            error,
            unexpected: None,
        }],
    }
}

fn below(base: &str, name: &str) -> String {
    format!("{base}/{}", pointer_segment(name))
}

impl Finding<'_, '_> {
    fn word(&self, source: Option<&Value>) -> Violation {
        let instance = self.error.instance().as_ref();
        let (expected, nearest, found, found_kind) = match (self.unexpected, self.error.kind()) {
            (Some(name), _) => {
                let value = instance.get(name).unwrap_or(&Value::Null);
                let (expected, nearest) = no_such_property(name, self.error, source);
                (expected, nearest, describe(value), describe_kind(value))
            }
            (None, Kind::Required { .. }) => {
                let nothing = Message::fixed("nothing", "缺失");
                (expected(self.error, source), None, nothing.clone(), nothing)
            }
            (None, Kind::PropertyNames { error }) => {
                let key = error.instance();
                let named = |what: Message| {
                    each(|language| match language {
                        Language::En => format!("key {}", what.told(language)),
                        Language::Zh => format!("键 {}", what.told(language)),
                    })
                };
                let (found, kind) = (named(describe(key)), Message::fixed("key", "键"));
                (
                    expected(self.error, source),
                    nearest_value(self.error),
                    found,
                    kind,
                )
            }
            (None, _) => (
                expected(self.error, source),
                nearest_value(self.error),
                describe(instance),
                describe_kind(instance),
            ),
        };
        let bounded = |told: Message, max: usize| told.map(|text| shorten(&text, max).into_owned());
        Violation {
            path: shorten(&self.path, PATH_BYTES_MAX).into_owned(),
            expected: bounded(expected, EXPECTED_BYTES_MAX),
            found: bounded(found, FOUND_BYTES_MAX),
            nearest,
            keyword: self.error.kind().keyword().to_owned(),
            found_kind,
            declared: self.unexpected.is_none() && is_declared(self.error),
        }
    }
}

/// Whether every property on the way to a value is one that the schema names.
fn is_declared(error: &ValidationError<'_>) -> bool {
    // A property may have the name of a keyword; its value is then hidden without need.
    !error.evaluation_path().as_str().split('/').any(|segment| {
        matches!(
            segment,
            "additionalProperties" | "unevaluatedProperties" | "patternProperties"
        )
    })
}

#[cfg(test)]
mod tests;
