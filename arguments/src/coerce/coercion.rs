//! What was asked for, what came out, and what was changed on the way.

use serde::Serialize;
use serde_json::Value;

use super::rule::{Level, Rule};

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Coercion {
    /// JSON pointer to the value as it is now; to where it stood, if it was left out. At most 512 bytes.
    pub path: String,
    /// What was done.
    pub rule: Rule,
}

/// Arguments that fit their schema.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// What the tool gets.
    pub args: Value,
    /// What was changed in what was sent, in the order of the paths; empty where nothing was.
    pub coercions: Vec<Coercion>,
}

/// Which tool the arguments are for, and how much of them may be changed.
#[derive(Debug, Clone, Copy)]
pub struct Coercing<'a> {
    /// How much.
    pub level: Level,
    /// The tool's name: some models wrap arguments in it.
    pub tool: &'a str,
}
