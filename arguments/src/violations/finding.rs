//! From an error of the validator to a violation in words.

use jsonschema::{ValidationError, error::ValidationErrorKind as Kind};
use serde_json::Value;

use super::{
    naming::{FOUND_BYTES_MAX, describe, describe_kind, each},
    property::no_such_property,
    violation::Violation,
    wording::{expected, nearest_value},
};
use crate::{
    message::{Language, Message},
    pointer,
    shorten::shorten,
};

/// Bytes of the pointer of a violation.
pub(super) const PATH_BYTES_MAX: usize = 256;
/// Bytes of one `expected`.
const EXPECTED_BYTES_MAX: usize = 400;

/// One violation before it is put into words.
pub(super) struct Finding<'e, 'a> {
    pub(super) path: String,
    pub(super) error: &'e ValidationError<'a>,
    /// The property that must not be there.
    unexpected: Option<&'e str>,
}

/// What an error says; an error about several properties becomes one finding for each.
pub(super) fn findings<'e, 'a>(error: &'e ValidationError<'a>) -> Vec<Finding<'e, 'a>> {
    let base = error.instance_path().as_str();
    match error.kind() {
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let each = |name: &'e String| Finding {
                path: pointer::below(base, name),
                error,
                unexpected: Some(name.as_str()),
            };
            unexpected.iter().map(each).collect()
        }
        Kind::Required { property } => {
            let path = pointer::below(base, property.as_str().unwrap_or_default());
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

impl Finding<'_, '_> {
    pub(super) fn word(&self, source: Option<&Value>) -> Violation {
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

/// Whether the schema names every property on the way to a value.
fn is_declared(error: &ValidationError<'_>) -> bool {
    // A property may have the name of a keyword; its value is then hidden without need.
    !error.evaluation_path().as_str().split('/').any(|segment| {
        matches!(
            segment,
            "additionalProperties" | "unevaluatedProperties" | "patternProperties"
        )
    })
}
