//! What is wrong with a schema.

/// One thing that is wrong with a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaProblem {
    /// JSON pointer into the schema; empty for the whole.
    pub path: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl SchemaProblem {
    pub(super) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }
}
