//! The schema that is converted, and the text about a place in it.

use serde_json::{Map, Value};

use crate::manifest::Manifest;

/// The schema that a model is shown, and its tool.
pub(super) struct Strict<'a> {
    pub(super) root: &'a Value,
    pub(super) tool: &'a Manifest,
}

/// The keywords of a schema, converted so far.
pub(super) type Keywords = Map<String, Value>;

pub(super) fn at(place: &str, what: &str) -> String {
    let place = if place.is_empty() {
        "the schema"
    } else {
        place
    };
    format!("{place} {what}")
}
