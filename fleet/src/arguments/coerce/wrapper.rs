//! Arguments that stand in a wrapper such as `{"arguments": {…}}`.
//!
//! A wrapper fits every schema that is open to names it does not know, so whether it is there is looked at before
//! anything is validated: it is taken off or refused, and never run.

use std::borrow::Cow;

use serde_json::Value;

use super::{Limits, Rule, edit::Draft, places};
use crate::arguments::{Schema, Violations, parse_any};

/// Keys in which some models wrap the arguments.
pub(crate) const WRAPPERS: [&str; 7] = [
    "arguments",
    "args",
    "parameters",
    "params",
    "input",
    "tool_input",
    "kwargs",
];
/// Beside a wrapper: which tool is called.
const NAME: &str = "name";
/// Wrappers inside one another.
const LEVELS_MAX: usize = 2;

/// Whether all that was sent stands in a wrapper.
pub(super) fn is_wrapped(schema: &Schema, args: &Value, tool: &str) -> bool {
    around(schema, args, tool).is_some()
}

/// The arguments without their wrappers, as they are where there are none; `None` if a wrapper has to stay.
pub(super) fn taken_off(schema: &Schema, args: &Value, tool: &str) -> Option<Draft> {
    let mut inside = Cow::Borrowed(args);
    let mut changes = Vec::new();
    while changes.len() < LEVELS_MAX
        && let Some(inner) = inner(schema, &inside, tool)
    {
        inside = Cow::Owned(inner);
        changes.push((String::new(), Rule::Unwrap));
    }
    // More that is wrong says that the word was no wrapper.
    let is_better = || schema.validate(&inside).total() <= refusal(schema, args, tool).total();
    let draft = match changes.is_empty() {
        true => Draft::of(args.clone()),
        false => is_better().then(|| Draft {
            args: inside.into_owned(),
            changes,
        })?,
    };
    let is_left = entries(&draft.args).any(|(key, _)| is_wrapper(schema, &draft.args, key, tool));
    (!is_left).then_some(draft)
}

/// What is wrong with what was sent, the wrapper that stays among it.
pub(super) fn refusal(schema: &Schema, args: &Value, tool: &str) -> Violations {
    let is_whole = |value: &Value| opened(value).is_some();
    let left = || {
        let mut wrappers = entries(args).filter(|(key, _)| is_wrapper(schema, args, key, tool));
        wrappers.find(|(_, value)| is_whole(value))
    };
    let violations = schema.validate(args);
    let sole = around(schema, args, tool);
    match sole.or_else(left) {
        Some((key, value)) => violations.with_wrapper(key, value),
        None => violations,
    }
}

/// The wrapper that holds all that was sent: the only key, or beside the name of the tool that is called.
fn around<'a>(schema: &Schema, args: &'a Value, tool: &str) -> Option<(&'a str, &'a Value)> {
    let mut all = entries(args);
    let (key, value) = match (all.next()?, all.next(), all.next()) {
        (only, None, _) => only,
        ((NAME, name), Some(wrapper), None) | (wrapper, Some((NAME, name)), None) => {
            let is_called = name == tool || (name.is_string() && !is_declared(schema, args, NAME));
            is_called.then_some(wrapper)?
        }
        _several => return None,
    };
    is_wrapper(schema, args, key, tool).then_some((key, value))
}

/// What stands in the wrapper around all that was sent; not if another tool is called.
fn inner(schema: &Schema, args: &Value, tool: &str) -> Option<Value> {
    let (_, value) = around(schema, args, tool)?;
    let is_another =
        |name: &Value| name != tool && args.as_object().is_some_and(|all| all.len() > 1);
    match args.get(NAME) {
        Some(name) if is_another(name) => None,
        _ => opened(value),
    }
}

/// An object, or the object of which a value is the text.
fn opened(value: &Value) -> Option<Value> {
    let inner = match value {
        Value::String(text) => parse_any(text.as_bytes(), &Limits::DEFAULT).ok()?,
        other => other.clone(),
    };
    inner.is_object().then_some(inner)
}

fn entries(args: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let entries = args.as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.as_str(), value))
}

fn is_wrapper(schema: &Schema, args: &Value, key: &str, tool: &str) -> bool {
    (WRAPPERS.contains(&key) || key == tool) && !is_declared(schema, args, key)
}

/// Whether the schema says what the property is: by its name, or by what it says of any name, and it is that.
fn is_declared(schema: &Schema, args: &Value, key: &str) -> bool {
    let schemas = places::schemas_at(schema.source(), args, "");
    places::declared(&schemas).contains_key(key)
        || (places::is_map(&schemas) && schema.is_valid(args))
}
