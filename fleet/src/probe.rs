//! **What does a probe's answer prove?** Pure: from a call in doubt to the arguments of its probe, from the answer to a finding.
//!
//! The expressions are the tool author's; the values in them come from models and remotes. A value that is missing, of another
//! kind, or too long to compute makes the finding inconclusive: a probe may leave a doubt open, and never decides one by
//! accident.

use std::time::Duration;

use minijinja::{Environment, ErrorKind, UndefinedBehavior, Value as Term, value::ValueKind};
use serde_json::{Map, Value};

use crate::{
    delay,
    ids::CallId,
    manifest::{
        probe::ProbeSpec,
        retry::{RetryPolicy, RetryStrategy},
    },
};

/// The call that is looked into.
#[derive(Debug, Clone)]
pub struct Subject {
    /// The call; its id is also the key that its tool was given.
    pub call_id: CallId,
    /// Its tool.
    pub tool: String,
    /// The version it was accepted with.
    pub tool_version: i32,
    /// The caller's tenant.
    pub tenant: String,
    /// Its arguments.
    pub args: Value,
}

/// The answer of the probe's tool.
#[derive(Debug, Clone)]
pub enum Said {
    /// It answered.
    Result(Value),
    /// It answered no: the error of its envelope.
    No(Value),
}

/// What the answer proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeFinding {
    /// The effect took place.
    Applied,
    /// It did not take place, at the moment when the probe asked.
    NotApplied,
    /// The answer contradicts the call.
    Conflict,
    /// Nothing, for this reason.
    Inconclusive(String),
}

/// Probes of one call at most: with the pauses between them, more than eight hours.
pub const PROBES_MAX: u32 = 100;

/// The pause after this many inconclusive probes.
pub fn pause(call: CallId, probes: u32) -> Duration {
    let policy = RetryPolicy {
        strategy: RetryStrategy::Exponential,
        base: Duration::from_secs(1),
        factor: 2.0,
        cap: Duration::from_secs(300),
        ..RetryPolicy::default()
    };
    delay::after_attempt(&policy, call, probes.clamp(1, PROBES_MAX))
}

/// The arguments that a template comes to for a call: of its probe, of its preview, or of the tool that is asked in its place.
///
/// # Errors
///
/// A sentence: a template cannot be read, or uses a value that the call does not have.
pub fn filled(template: &Value, subject: &Subject) -> Result<Value, String> {
    let environment = environment();
    let terms = terms(subject, Term::from(()), Term::from(()));
    fill(&environment, template, &terms)
}

/// What an answer proves.
pub fn judge(spec: &ProbeSpec, subject: &Subject, said: &Said) -> ProbeFinding {
    let environment = environment();
    let holds = |expression: &str, result: Term, error: Term| -> Result<bool, String> {
        let expression = environment.compile_expression(expression).map_err(why)?;
        let value = expression
            .eval(terms(subject, result, error))
            .map_err(why)?;
        // Not "anything that is not empty": a text "false" proves nothing.
        match value.kind() {
            ValueKind::Bool => Ok(value.is_true()),
            other => Err(format!(
                "the expression came to a {other}, not to true or false"
            )),
        }
    };
    let judged = || -> Result<ProbeFinding, String> {
        match said {
            Said::Result(result) => {
                let holds = |expression: &str| holds(expression, term(result), Term::from(()));
                if let Some(conflict) = &spec.conflict_when
                    && holds(conflict)?
                {
                    return Ok(ProbeFinding::Conflict);
                }
                if holds(&spec.applied_when)? {
                    return Ok(ProbeFinding::Applied);
                }
                match &spec.not_applied_when {
                    None => Ok(ProbeFinding::NotApplied),
                    Some(expression) if holds(expression)? => Ok(ProbeFinding::NotApplied),
                    Some(_) => Err("neither applied_when nor not_applied_when holds".to_owned()),
                }
            }
            Said::No(error) => match &spec.not_applied_when {
                Some(expression) if holds(expression, Term::from(()), term(error))? => {
                    Ok(ProbeFinding::NotApplied)
                }
                Some(_) | None => Err("the probe's tool said no".to_owned()),
            },
        }
    };
    judged().unwrap_or_else(ProbeFinding::Inconclusive)
}

/// Every template and expression that cannot be read: JSON pointer below the probe, and the reason.
pub fn unreadable(spec: &ProbeSpec) -> Vec<(String, String)> {
    let environment = environment();
    let mut found = unreadable_arguments(&spec.args);
    let expressions = [
        ("applied_when", Some(&spec.applied_when)),
        ("not_applied_when", spec.not_applied_when.as_ref()),
        ("conflict_when", spec.conflict_when.as_ref()),
    ];
    for (field, expression) in expressions {
        if let Some(Err(error)) = expression.map(|text| environment.compile_expression(text)) {
            found.push((format!("/{field}"), why(error)));
        }
    }
    found
}

/// Every template of arguments that cannot be read: JSON pointer above the arguments, and the reason.
pub fn unreadable_arguments(args: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    if !args.is_object() {
        found.push((
            "/args".to_owned(),
            "the arguments of a tool are an object".to_owned(),
        ));
    }
    unreadable_texts(&environment(), args, "/args", &mut found);
    found
}

fn unreadable_texts(
    environment: &Environment<'_>,
    value: &Value,
    path: &str,
    found: &mut Vec<(String, String)>,
) {
    match value {
        Value::String(text) => {
            let read = match expression_of(text) {
                Some(expression) => environment.compile_expression(expression).map(drop),
                None => environment.template_from_str(text).map(drop),
            };
            if let Err(error) = read {
                found.push((path.to_owned(), why(error)));
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                unreadable_texts(environment, item, &format!("{path}/{index}"), found);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                let path = format!("{path}/{}", crate::arguments::pointer_segment(name));
                unreadable_texts(environment, member, &path, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(50_000));
    environment.set_recursion_limit(50);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    // Fuel counts instructions. These filters make large values in a single one, and remotes send their input.
    for filter in ["replace", "indent", "format", "batch", "slice", "pprint"] {
        environment.remove_filter(filter);
    }
    environment
}

fn terms(subject: &Subject, result: Term, error: Term) -> Term {
    let call = [
        ("call_id", Term::from(subject.call_id.to_string())),
        ("tool", Term::from(subject.tool.clone())),
        ("tool_version", Term::from(subject.tool_version)),
        ("tenant", Term::from(subject.tenant.clone())),
    ];
    let call: Term = call.into_iter().collect::<Members>().into();
    let all = [
        ("call", call),
        ("args", term(&subject.args)),
        ("key", Term::from(subject.call_id.to_string())),
        ("result", result),
        ("error", error),
    ];
    all.into_iter().collect::<Members>().into()
}

/// The expression of a text that is exactly `{{ expression }}`.
fn expression_of(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    (!inner.contains("{{") && !inner.contains("}}")).then_some(inner)
}

fn fill(environment: &Environment<'_>, value: &Value, terms: &Term) -> Result<Value, String> {
    match value {
        Value::String(text) => match expression_of(text) {
            Some(expression) => {
                let expression = environment.compile_expression(expression).map_err(why)?;
                value_of(&expression.eval(terms.clone()).map_err(why)?)
            }
            None => environment
                .render_str(text, terms.clone())
                .map(Value::String)
                .map_err(why),
        },
        Value::Array(items) => items
            .iter()
            .map(|item| fill(environment, item, terms))
            .collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| Ok((name.clone(), fill(environment, member, terms)?)))
            .collect::<Result<Map<_, _>, String>>()
            .map(Value::Object),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(value.clone()),
    }
}

/// An engine's error without its text, which may quote values that must not be shown.
fn why(error: minijinja::Error) -> String {
    match error.kind() {
        ErrorKind::SyntaxError => error
            .detail()
            .map_or_else(|| "it cannot be read".to_owned(), str::to_owned),
        ErrorKind::UndefinedError => "it looks at something that is not there".to_owned(),
        ErrorKind::OutOfFuel => "it takes too long to compute".to_owned(),
        kind => kind.to_string(),
    }
}

type Members = std::collections::BTreeMap<&'static str, Term>;

/// A JSON value for the engine. Integers keep every digit up to 128 bits; a longer number is passed as text.
fn term(value: &Value) -> Term {
    match value {
        Value::Null => Term::from(()),
        Value::Bool(bool) => Term::from(*bool),
        Value::Number(number) => {
            let decimal = || number.as_f64().filter(|float| float.is_finite());
            let is_integer = number
                .as_str()
                .bytes()
                .all(|b| b == b'-' || b.is_ascii_digit());
            match number.as_i128() {
                Some(integer) => Term::from(integer),
                None if is_integer => Term::from(number.to_string()),
                None => decimal().map_or_else(|| Term::from(number.to_string()), Term::from),
            }
        }
        Value::String(text) => Term::from(text.as_str()),
        Value::Array(items) => items.iter().map(term).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| (name.clone(), term(member)))
            .collect::<std::collections::BTreeMap<String, Term>>()
            .into(),
    }
}

fn value_of(term: &Term) -> Result<Value, String> {
    if term.is_undefined() {
        return Err("it looks at something that is not there".to_owned());
    }
    serde_json::to_value(term).map_err(|_no_json| "it came to something that is no JSON".to_owned())
}

#[cfg(test)]
mod tests;
