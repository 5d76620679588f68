//! Why a body was refused.

use crate::{message::Message, words::words};

words! {
    /// What is wrong with a body that was refused. The words do not change between versions.
    ParseCode {
        /// The body is not JSON.
        MalformedJson = "malformed_json",
        /// The body ends in the middle of a value.
        TruncatedArguments = "truncated_arguments",
        /// The body is not UTF-8, or holds half of a surrogate pair.
        InvalidUnicode = "invalid_unicode",
        /// A string holds the character U+0000.
        NulNotAllowed = "nul_not_allowed",
        /// An object names a key twice.
        DuplicateKey = "duplicate_key",
        /// Arrays and objects are nested too deep.
        DepthExceeded = "depth_exceeded",
        /// The body holds too many values, or an object too many keys.
        TooManyNodes = "too_many_nodes",
        /// An object key is too long.
        KeyTooLong = "key_too_long",
        /// A string is too long.
        StringTooLong = "string_too_long",
        /// The body is too large.
        PayloadTooLarge = "payload_too_large",
        /// A number is outside the range that is kept exactly.
        NumberOutOfRange = "number_out_of_range",
        /// A number has too many characters.
        NumberTooLong = "number_too_long",
        /// The body is JSON but not an object, or uses a reserved key.
        InvalidArguments = "invalid_arguments",
    }
}

/// Why a body was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    /// The stable code.
    pub code: ParseCode,
    /// JSON pointer to the value that is wrong; empty for the whole body. At most 512 bytes.
    pub path: String,
    /// One sentence: what is wrong and what to send instead. It quotes at most one character of the body.
    pub message: Message,
}

impl ParseError {
    pub(super) const fn of_the_whole(code: ParseCode, message: Message) -> Self {
        Self {
            code,
            path: String::new(),
            message,
        }
    }
}
