//! A tool's schema, compiled once, and what does not fit it.
//!
//! JSON Schema 2020-12. No reference leaves the document, patterns run in linear time, formats are asserted,
//! and numbers are compared as the decimals they are.
//!
//! `bounds` has every limit of a schema. Before it is compiled, `shape` checks it, with the `graph` of which schema applies
//! which and with the `cost` of the worst input. `keywords`, `walk` and `places` read a schema as it is written: what it says,
//! what is inside it, and what it says about one value. `defaults` finds where defaults may be filled in, and `unfit` those
//! that their own schema refuses.

pub(crate) mod bounds;
mod cost;
pub(crate) mod defaults;
mod graph;
pub mod keywords;
pub(crate) mod places;
mod problem;
mod shape;
mod unfit;
mod walk;

use std::fmt;

use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::{Value, json};

use self::bounds::{
    COLLECTED_MAX, LARGE_PATTERNS_MAX, PATTERN_COMPILED_MAX, PATTERN_COMPILED_SMALL,
};
pub(crate) use self::defaults::{DefaultNode, Defaults};
pub use self::{
    problem::SchemaProblem,
    unfit::unfit_defaults,
    walk::{Inner, inner},
};
use crate::{
    shorten::shorten,
    violations::{Violations, describe},
};

/// A compiled schema. Cheap to check against, costly to compile: keep it.
pub struct Schema {
    source: Value,
    validator: Validator,
    /// How many evaluations one path through an input may cost.
    evaluations: u64,
    /// What patterns may cost for one byte of text, in evaluations.
    for_each_byte: u64,
    defaults: Defaults,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl Schema {
    /// Compiles a schema.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, in a stable order.
    pub fn compile(schema: &Value) -> Result<Self, Vec<SchemaProblem>> {
        let shape = shape::check(schema)?;
        let meta = jsonschema::draft202012::meta::validator();
        let unfit = Violations::collect(meta.iter_errors(schema), None);
        if !unfit.is_empty() {
            return Err(unfit
                .items()
                .iter()
                .map(|v| SchemaProblem::new(v.path.clone(), v.sentence().english()))
                .collect());
        }
        let validator =
            build(schema, PATTERN_COMPILED_MAX).map_err(|error| vec![build_problem(&error)])?;
        let is_large = |pattern: &&String| {
            let alone = json!({ "pattern": pattern });
            build(&alone, PATTERN_COMPILED_SMALL).is_err()
        };
        let large = shape.patterns.iter().filter(is_large).count();
        if large > LARGE_PATTERNS_MAX {
            let message = format!(
                "{large} patterns repeat much; at most {LARGE_PATTERNS_MAX} such are allowed: {REPEAT_LESS}"
            );
            return Err(vec![SchemaProblem::new("", message)]);
        }
        Ok(Self {
            source: schema.clone(),
            validator,
            evaluations: shape.evaluations,
            for_each_byte: 8 * large as u64 + shape.patterns.len() as u64 / 4,
            defaults: Defaults::of(schema).map_err(|problem| vec![problem])?,
        })
    }

    /// Compiles the schema of a tool's arguments, which must describe an object.
    ///
    /// # Errors
    ///
    /// As [`Schema::compile`].
    pub fn compile_input(schema: &Value) -> Result<Self, Vec<SchemaProblem>> {
        if schema.get("type").and_then(Value::as_str) != Some("object") {
            let message =
                "arguments are always an object; write `type: object` at the top of the schema";
            return Err(vec![SchemaProblem::new("/type", message)]);
        }
        Self::compile(schema)
    }

    /// The schema as it was written.
    pub const fn source(&self) -> &Value {
        &self.source
    }

    /// Whether a value fits; cheaper than [`Schema::validate`].
    pub fn is_valid(&self, value: &Value) -> bool {
        self.validator.is_valid(value)
    }

    /// Everything that does not fit, ready to be shown to a model; empty when the value fits.
    ///
    /// For a very large value only the first violation is reported, so that saying no stays cheap.
    pub fn validate(&self, value: &Value) -> Violations {
        if self.is_valid(value) {
            return Violations::default();
        }
        if self.work(value) > COLLECTED_MAX {
            return Violations::collect(
                self.validator.validate(value).err().into_iter(),
                Some(&self.source),
            );
        }
        Violations::collect(self.validator.iter_errors(value), Some(&self.source))
    }

    /// Everything that does not fit, as the validator says it.
    pub(crate) fn errors<'i>(
        &'i self,
        value: &'i Value,
    ) -> impl Iterator<Item = ValidationError<'i>> {
        self.validator.iter_errors(value)
    }

    /// At most how many evaluations it takes to check a value; a million of them take less than a second.
    pub fn work(&self, value: &Value) -> u64 {
        let for_text = match self.for_each_byte {
            0 => 0,
            each => each.saturating_mul(text_bytes(value)),
        };
        let for_values = self.evaluations.saturating_mul(count(value));
        for_values.saturating_add(for_text)
    }

    pub(crate) const fn defaults(&self) -> &Defaults {
        &self.defaults
    }
}

/// How many values there are, containers counted.
pub fn count(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 1 + items.iter().map(count).sum::<u64>(),
        Value::Object(entries) => 1 + entries.values().map(count).sum::<u64>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

/// Bytes of all strings and keys.
fn text_bytes(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Array(items) => items.iter().map(text_bytes).sum(),
        Value::Object(entries) => entries
            .iter()
            .map(|(key, value)| key.len() as u64 + text_bytes(value))
            .sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

fn build(schema: &Value, pattern_bytes_max: usize) -> Result<Validator, ValidationError<'static>> {
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .offline()
        .should_validate_formats(true)
        .with_pattern_options(PatternOptions::regex().size_limit(pattern_bytes_max))
        .build(schema)
}

/// What to write instead of a pattern that is too large.
const REPEAT_LESS: &str =
    "say lengths with minLength and maxLength, and repeat [a-z0-9] rather than . or \\w";

fn build_problem(error: &ValidationError<'_>) -> SchemaProblem {
    use jsonschema::error::ValidationErrorKind as Kind;
    let message = match error.kind() {
        Kind::Format { format } if format == "regex" => format!(
            "{} is not a pattern that runs in linear time, or too large a one; leave out look-around and back-references, \
             {REPEAT_LESS}",
            describe(error.instance())
        ),
        _other => error.to_string(),
    };
    SchemaProblem::new(error.instance_path().as_str(), shorten(&message, 300))
}

#[cfg(test)]
mod tests;
