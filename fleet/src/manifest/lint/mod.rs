//! What might be meant otherwise: how a manifest can be clearer to a model. Nothing here refuses one.
//!
//! `docs/lint.md` lists the rules.

mod keys;
mod names;
mod schema;
mod values;

use serde_json::Value;

use super::{ExecutorSpec, KeyPolicy, Manifest, ManifestProblem};
use crate::call::Effect;

/// Warnings about one manifest.
const WARNINGS_MAX: usize = 50;
/// Characters of a tool's description that every vendor takes.
const DESCRIPTION_MAX: usize = 1_024;
/// Names that say nothing about what a tool does.
const VAGUE: [&str; 28] = [
    "action", "api", "call", "do", "exec", "execute", "function", "get", "handle", "helper",
    "invoke", "job", "main", "make", "perform", "process", "query", "request", "run", "set",
    "start", "task", "test", "tool", "use", "util", "utils", "work",
];

/// What might be meant otherwise; an operator can apply the manifest all the same. At most 50 and how many more there are.
pub fn lint(manifest: &Manifest) -> Vec<ManifestProblem> {
    let mut warnings = Warnings::default();
    about_the_tool(manifest, &mut warnings);
    schema::lint(manifest, &mut warnings);
    warnings.bounded()
}

/// Warnings in the order in which they were found.
#[derive(Default)]
struct Warnings {
    found: Vec<ManifestProblem>,
    left_out: usize,
}

impl Warnings {
    fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        if self.found.len() < WARNINGS_MAX {
            self.found.push(ManifestProblem::new(path, message));
        } else {
            self.left_out += 1;
        }
    }

    fn bounded(mut self) -> Vec<ManifestProblem> {
        if self.left_out > 0 {
            let message = format!("and {} more; change these first", self.left_out);
            self.found.push(ManifestProblem::new("", message));
        }
        self.found
    }
}

fn about_the_tool(manifest: &Manifest, warnings: &mut Warnings) {
    let name = manifest.name.as_str();
    if VAGUE.contains(&name) {
        warnings.add(
            "/name",
            format!(
                "a model chooses by the name too, and {name:?} fits everything; say what is done to what, such as \
                 get_weather"
            ),
        );
    }
    let described = &manifest.description;
    if names::weight(described) < 20 || names::is_name_again(described, name) {
        warnings.add(
            "/description",
            "a model chooses by the description; say in a sentence what the tool does and when",
        );
    }
    let length = described.chars().count();
    if length > DESCRIPTION_MAX {
        warnings.add(
            "/description",
            format!(
                "the description has {length} characters, and OpenAI takes {DESCRIPTION_MAX}; move what is about one \
                 argument to its property"
            ),
        );
    }
    let probe = manifest.probe.as_ref();
    if probe.is_some_and(|probe| probe.not_applied_when.is_none()) {
        warnings.add(
            "/probe",
            "every answer for which applied_when is false counts as a no; say with not_applied_when what proves it",
        );
    }
    if manifest.effect == Effect::Read && manifest.key_policy() == KeyPolicy::FromArguments {
        warnings.add(
            "/key",
            "whoever asks with the same arguments gets the first answer until the key lapses, however old it is; \
             leave key out unless the answer never changes",
        );
    }
    keys::lint(manifest, warnings);
    if let ExecutorSpec::Sql(spec) = &manifest.executor
        && manifest.effect != Effect::Read
        && spec.rows.is_none()
    {
        warnings.add(
            "/executor/sql/rows",
            "a write that finds no row to change succeeds all the same; say how many rows it must change or return, such \
             as rows: {min: 1, max: 1}, and anything else is rolled back",
        );
    }
    let has_default = || has_keyword(&manifest.input_schema, "default");
    if manifest.effect != Effect::Read
        && manifest.key_policy() == KeyPolicy::FromArguments
        && has_default()
    {
        warnings.add(
            "/key",
            "the key is made of the arguments with their defaults: once a later version has another default, a repeated \
             request is a new call; require these arguments, or let callers send a key",
        );
    }
}

/// Whether a key of this name stands anywhere in a value.
fn has_keyword(value: &Value, keyword: &str) -> bool {
    match value {
        Value::Object(entries) => {
            entries.contains_key(keyword)
                || entries.values().any(|value| has_keyword(value, keyword))
        }
        Value::Array(items) => items.iter().any(|item| has_keyword(item, keyword)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Whether a schema says this of itself.
fn says(schema: &Value, keyword: &str) -> bool {
    schema.get(keyword).is_some()
}

#[cfg(test)]
mod tests;
