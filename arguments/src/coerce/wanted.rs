//! The values that the validator's errors ask for.

use std::slice;

use jsonschema::{
    ValidationError,
    error::{TypeKind, ValidationErrorKind as Kind},
};
use serde_json::Value;

/// The narrowest first.
pub(super) enum Wanted<'e> {
    /// One of these values.
    OneOf(&'e [Value]),
    /// A value of another type.
    Type(&'e TypeKind),
    /// What any branch of a union wants.
    AnyOf(&'e [Vec<ValidationError<'static>>]),
}

impl<'e> Wanted<'e> {
    /// What is wanted instead of a value. The narrowest decides, for every remedy must satisfy it.
    pub(super) fn of(errors: &[&'e ValidationError<'_>]) -> Option<Self> {
        let wanted = errors.iter().filter_map(|error| Self::by(error));
        wanted.min_by_key(Self::breadth)
    }

    fn by(error: &'e ValidationError<'_>) -> Option<Self> {
        match error.kind() {
            Kind::Enum { options } => Some(Self::OneOf(options.as_array()?)),
            Kind::Constant { expected_value } => Some(Self::OneOf(slice::from_ref(expected_value))),
            Kind::Type { kind } => Some(Self::Type(kind)),
            Kind::AnyOf { context } | Kind::OneOfNotValid { context } => Some(Self::AnyOf(context)),
            _nothing_can_be_done => None,
        }
    }

    const fn breadth(&self) -> u8 {
        match self {
            Self::OneOf(_) => 0,
            Self::Type(_) => 1,
            Self::AnyOf(_) => 2,
        }
    }
}
