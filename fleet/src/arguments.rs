//! The crate `arguments` as the fleet uses it: refusals of its parser get a [`Code`] of the wire.

use serde_json::Value;

pub use ::arguments::{
    Coercing, Coercion, Fitted, Level, Limits, Rule, Schema, SchemaProblem, Violation, Violations,
};
pub(crate) use ::arguments::{
    Inner, WRAPPERS, inner, keywords, nearest, pointer_segment, shorten, unfit_defaults,
};
use ::arguments::{ParseCode, ParseError as Refused};

use crate::wire::{code::Code, message::Message};

/// Why a body was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    /// The stable code.
    pub code: Code,
    /// JSON pointer to the value that is wrong; empty for the whole body. At most 512 bytes.
    pub path: String,
    /// One sentence: what is wrong and what to send instead. It quotes at most one character of the body.
    pub message: Message,
}

/// Reads the arguments of a call: one JSON object and nothing else.
///
/// # Errors
///
/// The first error, with its place; `invalid_arguments` when the body is JSON but not an object.
pub fn parse(body: &[u8], limits: &Limits) -> Result<Value, ParseError> {
    ::arguments::parse(body, limits).map_err(ParseError::from)
}

/// Reads one JSON value of any kind, for headers, answers and bodies that are not arguments.
///
/// # Errors
///
/// The first error, with its place.
pub fn parse_any(body: &[u8], limits: &Limits) -> Result<Value, ParseError> {
    ::arguments::parse_any(body, limits).map_err(ParseError::from)
}

impl From<Refused> for ParseError {
    fn from(refused: Refused) -> Self {
        Self {
            code: refused.code.into(),
            path: refused.path,
            message: refused.message,
        }
    }
}

impl From<ParseCode> for Code {
    fn from(code: ParseCode) -> Self {
        match code {
            ParseCode::MalformedJson => Self::MalformedJson,
            ParseCode::TruncatedArguments => Self::TruncatedArguments,
            ParseCode::InvalidUnicode => Self::InvalidUnicode,
            ParseCode::NulNotAllowed => Self::NulNotAllowed,
            ParseCode::DuplicateKey => Self::DuplicateKey,
            ParseCode::DepthExceeded => Self::DepthExceeded,
            ParseCode::TooManyNodes => Self::TooManyNodes,
            ParseCode::KeyTooLong => Self::KeyTooLong,
            ParseCode::StringTooLong => Self::StringTooLong,
            ParseCode::PayloadTooLarge => Self::PayloadTooLarge,
            ParseCode::NumberOutOfRange => Self::NumberOutOfRange,
            ParseCode::NumberTooLong => Self::NumberTooLong,
            ParseCode::InvalidArguments => Self::InvalidArguments,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_the_same_word_on_the_wire() {
        for code in ParseCode::ALL {
            assert_eq!(Code::from(*code).as_str(), code.as_str());
        }
    }
}
