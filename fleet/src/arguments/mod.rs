//! Is this input valid? What comes in is parsed under limits, then held against the tool's schema.
//!
//! `parse` turns bytes into a value under `limits` or says why not, before anything large is built;
//! `shape` and `cost` refuse schemas that would be unsafe or slow to check against; `schema` compiles the others and
//! checks; `violations`, worded by `wording`, `property`, `naming` and `nearest`, is what a model reads when its arguments do not fit;
//! `walk`, `keywords` and `defaults` look at a schema for whoever wrote it.

mod coerce;
mod cost;
mod defaults;
pub(crate) mod keywords;
mod limits;
mod naming;
mod nearest;
mod parse;
mod property;
mod schema;
mod shape;
mod violations;
mod walk;
mod wording;

use std::borrow::Cow;

pub(crate) use self::coerce::WRAPPERS;
pub use self::{
    coerce::{Coercing, Coercion, Fitted, Level, Rule},
    limits::Limits,
    parse::{ParseError, parse, parse_any},
    schema::{Schema, SchemaProblem},
    violations::{Violation, Violations},
};
pub(crate) use self::{
    defaults::unfit_defaults,
    nearest::nearest,
    walk::{Inner, inner},
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
