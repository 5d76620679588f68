//! Is this input valid? What comes in is parsed under limits, then held against the tool's schema.
//!
//! `parse` turns bytes into a value under `limits` or says why not, before anything large is built;
//! `shape` and `cost` refuse schemas that would be unsafe or slow to check against; `schema` compiles the others and
//! checks; `violations`, worded by `wording` and `nearest`, is what a model reads when its arguments do not fit.

mod cost;
mod limits;
mod nearest;
mod parse;
mod schema;
mod shape;
mod violations;
mod wording;

use std::borrow::Cow;

pub use self::{
    limits::Limits,
    parse::{ParseError, parse, parse_any},
    schema::{Schema, SchemaProblem},
    violations::{Violation, Violations},
};

/// One segment of a JSON pointer, escaped as RFC 6901 wants it.
pub(crate) fn pointer_segment(name: &str) -> Cow<'_, str> {
    if name.contains(['~', '/']) {
        Cow::Owned(name.replace('~', "~0").replace('/', "~1"))
    } else {
        Cow::Borrowed(name)
    }
}

/// At most `bytes_max` bytes of a text, cut at a character boundary and marked with an ellipsis where cut.
pub(crate) fn shorten(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(bytes_max.saturating_sub('…'.len_utf8()));
    Cow::Owned(format!("{}…", &text[..end]))
}
