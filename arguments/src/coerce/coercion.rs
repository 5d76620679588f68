//! The input of a mending, its result, and its changes.

use serde::Serialize;
use serde_json::Value;

use super::rule::{Level, Rule};

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Coercion {
    /// JSON pointer to the value as it is now; for a removed property, to where it was. At most 512 bytes.
    pub path: String,
    /// The rule that was applied.
    pub rule: Rule,
}

/// Arguments that fit their schema.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// What the tool gets.
    pub args: Value,
    /// The changes, in the order of their paths; empty where there are none.
    pub coercions: Vec<Coercion>,
}

/// The tool of the arguments, and how much of them may be changed.
#[derive(Debug, Clone, Copy)]
pub struct Coercing<'a> {
    /// How much.
    pub level: Level,
    /// The tool's name: some models wrap arguments in it.
    pub tool: &'a str,
}
