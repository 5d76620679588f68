//! What might be meant otherwise: how a manifest can be clearer to a model. Nothing here refuses one.
//!
//! What is refused for another reason is looked at as far as it can be read, so that an author sees everything at once.
//! `docs/lint.md` lists the rules.

mod keys;
mod names;
mod schema;
mod values;

use std::mem;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{ExecutorSpec, KeyPolicy, Manifest, ManifestProblem, document};
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
    Subject::of(manifest).lint()
}

/// The same of the text of a manifest that has problems, as far as it can be read. Nothing of a text that is no manifest
/// at all.
pub fn lint_text(text: &str) -> Vec<ManifestProblem> {
    let Ok(value) = document::read(text) else {
        return Vec::new();
    };
    let word = |name: &str| value.get(name).and_then(Value::as_str);
    let probe = value.get("probe").and_then(Value::as_object);
    let subject = Subject {
        name: word("name").unwrap_or_default(),
        description: word("description"),
        effect: field(&value, "effect"),
        key: field(&value, "key"),
        is_half_probed: probe.is_some_and(|probe| !probe.contains_key("not_applied_when")),
        key_argument: value
            .pointer("/idempotency/argument")
            .and_then(Value::as_str),
        takes_any_rows: value
            .pointer("/executor/sql")
            .is_some_and(|sql| sql.get("rows").is_none()),
        input_schema: value.get("input_schema").unwrap_or(&Value::Null),
    };
    subject.lint()
}

fn field<T: DeserializeOwned>(value: &Value, name: &str) -> Option<T> {
    let field = value.get(name)?.clone();
    // What it should have been is one of the problems.
    serde_json::from_value(field).ok()
}

/// What is looked at; `None` where it is not known.
struct Subject<'a> {
    name: &'a str,
    description: Option<&'a str>,
    effect: Option<Effect>,
    key: Option<KeyPolicy>,
    /// Whether it has a probe that does not say what proves a no.
    is_half_probed: bool,
    /// The argument that the fleet fills with the key.
    key_argument: Option<&'a str>,
    /// Whether it is a statement that does not say how many rows it expects.
    takes_any_rows: bool,
    input_schema: &'a Value,
}

impl<'a> Subject<'a> {
    fn of(manifest: &'a Manifest) -> Self {
        let probe = manifest.probe.as_ref();
        let idempotency = manifest.idempotency.as_ref();
        let takes_any_rows =
            matches!(&manifest.executor, ExecutorSpec::Sql(spec) if spec.rows.is_none());
        Self {
            name: manifest.name.as_str(),
            description: Some(&manifest.description),
            effect: Some(manifest.effect),
            key: Some(manifest.key_policy()),
            is_half_probed: probe.is_some_and(|probe| probe.not_applied_when.is_none()),
            key_argument: idempotency.and_then(|how| how.argument.as_deref()),
            takes_any_rows,
            input_schema: &manifest.input_schema,
        }
    }

    fn lint(&self) -> Vec<ManifestProblem> {
        let mut warnings = Warnings::default();
        about_the_tool(self, &mut warnings);
        schema::lint(self, &mut warnings);
        warnings.bounded()
    }

    fn writes(&self) -> bool {
        self.effect.is_some_and(|effect| effect != Effect::Read)
    }
}

/// Warnings in the order in which they were found.
#[derive(Default)]
struct Warnings {
    found: Vec<ManifestProblem>,
    left_out: usize,
    /// Places of required texts that may be empty: many are of one mind, and would bury the rest one by one.
    may_be_empty: Vec<String>,
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
        if let [first, others @ ..] = &mem::take(&mut self.may_be_empty)[..] {
            let others = match others.len() {
                0 => String::new(),
                1 => format!(", and so is {}", others[0]),
                more => format!(", and so are {} and {} more", others[0], more - 1),
            };
            self.add(
                first,
                format!("the property is required but may be empty{others}; add minLength: 1 where it has to say something"),
            );
        }
        if self.left_out > 0 {
            let message = format!("and {} more; change these first", self.left_out);
            self.found.push(ManifestProblem::new("", message));
        }
        self.found
    }
}

fn about_the_tool(subject: &Subject<'_>, warnings: &mut Warnings) {
    let name = subject.name;
    if VAGUE.contains(&name) {
        warnings.add(
            "/name",
            format!(
                "a model chooses by the name too, and {name:?} fits everything; say what is done to what, such as \
                 get_weather"
            ),
        );
    }
    let described = subject.description;
    let says_little = |text: &str| names::weight(text) < 20 || names::is_name_again(text, name);
    if described.is_some_and(says_little) {
        warnings.add(
            "/description",
            "a model chooses by the description; say in a sentence what the tool does and when",
        );
    }
    let length = described.map_or(0, |text| text.chars().count());
    if length > DESCRIPTION_MAX {
        warnings.add(
            "/description",
            format!(
                "the description has {length} characters, and OpenAI takes {DESCRIPTION_MAX}; move what is about one \
                 argument to its property"
            ),
        );
    }
    if subject.is_half_probed {
        warnings.add(
            "/probe",
            "every answer for which applied_when is false counts as a no; say with not_applied_when what proves it",
        );
    }
    let is_derived = subject.key == Some(KeyPolicy::FromArguments);
    if is_derived && subject.effect == Some(Effect::Read) {
        warnings.add(
            "/key",
            "whoever asks with the same arguments gets the first answer until the key lapses, however old it is; \
             leave key out unless the answer never changes",
        );
    }
    keys::lint(subject, warnings);
    if subject.takes_any_rows && subject.writes() {
        warnings.add(
            "/executor/sql/rows",
            "a write that finds no row to change succeeds all the same; say how many rows it must change or return, such \
             as rows: {min: 1, max: 1}, and anything else is rolled back",
        );
    }
    if is_derived && subject.writes() && has_keyword(subject.input_schema, "default") {
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
