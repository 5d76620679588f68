//! The crate `arguments` as the fleet uses it: refusals of its parser get a [`Code`] of the wire.

use ::arguments::ParseCode;
pub use ::arguments::{
    Coercing, Coercion, Fitted, Inner, Level, Limits, ParseError, Rule, Schema, SchemaProblem,
    Violation, Violations, count, has_reserved_key, inner, parse, parse_any,
};
pub(crate) use ::arguments::{
    WRAPPERS, keywords, nearest, pointer_segment, shorten, unfit_defaults,
};

use crate::wire::code::Code;

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
