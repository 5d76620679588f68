//! What an error of the validator says is wanted.

use std::slice;

use jsonschema::{
    ValidationError,
    error::{TypeKind, ValidationErrorKind as Kind},
};
use serde_json::Value;

use super::edit::CHANGES_MAX;

/// The narrowest first.
pub(super) enum Wanted<'e> {
    /// One of these values.
    OneOf(&'e [Value]),
    /// A value of another type.
    Type(&'e TypeKind),
    /// None of the properties of these names.
    Without(Vec<String>),
    /// What any branch of a union wants.
    AnyOf(&'e [Vec<ValidationError<'static>>]),
}

impl<'e> Wanted<'e> {
    /// What is wanted instead of `value`; the narrowest decides, for whatever helps must satisfy it.
    pub(super) fn of(errors: &[&'e ValidationError<'_>], value: &Value) -> Option<Self> {
        let wanted = errors.iter().filter_map(|error| Self::by(error, value));
        wanted.min_by_key(Self::breadth)
    }

    fn by(error: &'e ValidationError<'_>, value: &Value) -> Option<Self> {
        match error.kind() {
            Kind::Enum { options } => Some(Self::OneOf(options.as_array()?)),
            Kind::Constant { expected_value } => Some(Self::OneOf(slice::from_ref(expected_value))),
            Kind::Type { kind } => Some(Self::Type(kind)),
            Kind::AdditionalProperties { unexpected }
            | Kind::UnevaluatedProperties { unexpected } => Some(Self::Without(unexpected.clone())),
            // So it is told where the schema names no properties at all.
            Kind::FalseSchema => {
                let names = value.as_object()?.keys().take(CHANGES_MAX + 1);
                error
                    .schema_path()
                    .as_str()
                    .ends_with("/additionalProperties")
                    .then(|| Self::Without(names.cloned().collect()))
            }
            Kind::AnyOf { context } | Kind::OneOfNotValid { context } => Some(Self::AnyOf(context)),
            _nothing_can_be_done => None,
        }
    }

    const fn breadth(&self) -> u8 {
        match self {
            Self::OneOf(_) => 0,
            Self::Type(_) => 1,
            Self::Without(_) => 2,
            Self::AnyOf(_) => 3,
        }
    }
}
