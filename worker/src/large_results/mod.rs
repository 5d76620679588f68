//! Large results: of which answers callers get a part.

pub(crate) mod counts;
pub(crate) mod pass;
