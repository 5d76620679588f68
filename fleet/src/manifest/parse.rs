//! Reads one manifest file and says everything that is wrong with it at once.
//!
//! Three gates, each reporting all it finds: the text must be YAML, the value must fit `schemas/manifest.json`,
//! and its fields must fit together (`check`).

use std::sync::LazyLock;

use serde_json::Value;

use super::{Manifest, check, document};
use crate::{
    arguments::{Schema, Violation},
    ids::ToolName,
};

/// Bytes of one manifest.
const BYTES_MAX: usize = 256 * 1024;

/// The schema of a manifest, a promise to operators.
static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let schema = serde_json::from_str(include_str!("../../../schemas/manifest.json"))
        .expect("our schema is JSON");
    Schema::compile(&schema).expect("our schema compiles")
});

/// One thing that is wrong with a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestProblem {
    /// JSON pointer to the field; empty for the whole file.
    pub path: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl ManifestProblem {
    /// The tool of this file is in that one, too: which of them is meant would depend on their names.
    pub fn duplicate(tool: &ToolName, other: &str) -> Self {
        let remedy = "keep one of the two files, or give one of the tools another name";
        Self::new(
            "/name",
            format!("the tool {tool} is in {other} too: {remedy}"),
        )
    }

    pub(super) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }
}

/// Reads one manifest, YAML or JSON.
///
/// # Errors
///
/// Every problem found, in a stable order.
pub fn parse(text: &str) -> Result<Manifest, Vec<ManifestProblem>> {
    if text.len() > BYTES_MAX {
        let message = format!(
            "the file has {} bytes; at most {BYTES_MAX} are allowed",
            text.len()
        );
        return Err(vec![ManifestProblem::new("", message)]);
    }
    let value = document::read(text).map_err(|message| vec![ManifestProblem::new("", message)])?;
    let unfit = SCHEMA.validate(&value);
    if !unfit.is_empty() {
        let mut problems: Vec<_> = unfit
            .items()
            .iter()
            .map(|violation| explain(violation, &value))
            .collect();
        if unfit.left_out() > 0 {
            let message = format!(
                "{} more problems are not shown; fix these first",
                unfit.left_out()
            );
            problems.push(ManifestProblem::new("", message));
        }
        return Err(problems);
    }
    let manifest: Manifest = serde_json::from_value(value)
        .map_err(|error| vec![ManifestProblem::new("", error.to_string())])?;
    let problems = check::check(&manifest);
    if problems.is_empty() {
        Ok(manifest)
    } else {
        Err(problems)
    }
}

/// What is known about a violation beyond what the schema says.
fn explain(violation: &Violation, value: &Value) -> ManifestProblem {
    let found = value.pointer(&violation.path).and_then(Value::as_str);
    let message = match (violation.path.as_str(), found) {
        ("/name", Some(_)) => "a tool's name has 1 to 64 characters of a-z, 0-9 and _".to_owned(),
        ("/queue", Some(_)) => {
            "a queue's name has 1 to 64 characters of a-z, 0-9, _ and -".to_owned()
        }
        ("/concurrency", _) => {
            "a tool runs 1 to 1000 at a time over the whole fleet; leave concurrency out where nothing limits it"
                .to_owned()
        }
        ("/executor/sql/rows" | "/executor/sql/rows/min" | "/executor/sql/rows/max", _) => {
            "rows says how many rows the statement must return or change: write {min: 1, max: 1}, each from 0 to 10000, or \
             leave one out"
                .to_owned()
        }
        ("/losses", _) => {
            "a call may lose its worker 0 to 100 times before it is set aside; leave losses out for 5".to_owned()
        }
        ("/output_limit", Some(_)) => "write a size such as 64KiB or 1MiB".to_owned(),
        (_, Some(_)) if violation.expected.english().contains("(ms|s|m|h)") => {
            "write a duration such as 500ms, 30s, 5m or 24h".to_owned()
        }
        _other => violation.sentence().english().to_owned(),
    };
    ManifestProblem::new(violation.path.clone(), message)
}

#[cfg(test)]
mod tests;
