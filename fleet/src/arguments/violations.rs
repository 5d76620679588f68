//! What a model reads when its arguments do not fit: where, what was expected, what was found.

use std::fmt::{self, Write};

use jsonschema::{ValidationError, error::ValidationErrorKind as Kind};
use serde::Serialize;
use serde_json::Value;

use super::{
    pointer_segment, shorten,
    wording::{FOUND_BYTES_MAX, NEAREST, describe, expected, no_such_property, required},
};

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
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// JSON pointer to the value, or to the property that is missing; empty for the arguments as a whole.
    pub path: String,
    /// What the schema wants, to be read after "expected".
    pub expected: String,
    /// What stood there: its kind and the beginning of it, at most 64 bytes.
    pub found: String,
    /// The keyword of the schema that failed.
    #[serde(skip)]
    pub keyword: String,
}

impl Violation {
    /// What was expected and what was found, without the place.
    pub fn sentence(&self) -> String {
        format!("expected {}, found {}", self.expected, self.found)
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

/// Of what was found its kind alone.
fn kind_of(found: &str) -> &str {
    match found.split(' ').next() {
        Some(kind @ ("string" | "number" | "integer" | "boolean" | "key")) => kind,
        _shows_no_value => found,
    }
}

/// Everything about a value that does not fit, bounded: at most 16 entries and 2 KiB of JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Violations {
    #[serde(rename = "violations")]
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
                item.found = kind_of(&item.found).to_owned();
                let hint = item.expected.find(NEAREST).unwrap_or(item.expected.len());
                item.expected.truncate(hint);
            }
        }
        self
    }

    /// One sentence about the arguments, with as many violations as fit into 480 bytes.
    pub fn summary(&self) -> String {
        self.summary_of("the arguments")
    }

    /// One sentence about `whole`, with as many violations as fit into 480 bytes.
    pub fn summary_of(&self, whole: &str) -> String {
        let mut text = String::new();
        for (shown, item) in self.items.iter().enumerate() {
            let place = if item.path.is_empty() {
                whole
            } else {
                &item.path
            };
            let separator = if shown == 0 { "" } else { "; " };
            let next = format!("{separator}{place}: {}", item.sentence());
            let rest = self.total() - shown;
            if !text.is_empty()
                && text.len() + next.len() > SUMMARY_BYTES_MAX - " (and 100000 more)".len()
            {
                write!(text, " (and {rest} more)").expect("writing to a string does not fail");
                return text;
            }
            text.push_str(&next);
        }
        if self.left_out > 0 {
            write!(text, " (and {} more)", self.left_out)
                .expect("writing to a string does not fail");
        }
        shorten(&text, SUMMARY_BYTES_MAX).into_owned()
    }

    /// Sorts, bounds and words the errors. `source` is the schema, for the names of the properties it allows.
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
            bytes += serde_json::to_string(&item).map_or(BYTES_MAX, |text| text.len() + 1);
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
        let (expected, found) = match (self.unexpected, self.error.kind()) {
            (Some(name), _) => {
                let value = self
                    .error
                    .instance()
                    .get(name)
                    .map_or_else(|| "a property".to_owned(), describe);
                (
                    no_such_property(name, self.error.schema_path(), source),
                    value,
                )
            }
            (None, Kind::Required { property }) => {
                let property = property.as_str().unwrap_or_default();
                (
                    required(property, self.error.schema_path(), source),
                    "nothing".to_owned(),
                )
            }
            (None, Kind::PropertyNames { error }) => (
                format!("every key to be {}", expected(error)),
                format!("key {}", describe(error.instance())),
            ),
            (None, _) => (expected(self.error), describe(self.error.instance())),
        };
        Violation {
            path: shorten(&self.path, PATH_BYTES_MAX).into_owned(),
            expected: shorten(&expected, EXPECTED_BYTES_MAX).into_owned(),
            found: shorten(&found, FOUND_BYTES_MAX).into_owned(),
            keyword: self.error.kind().keyword().to_owned(),
        }
    }
}
