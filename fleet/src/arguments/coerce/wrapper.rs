//! Arguments that stand in a wrapper such as `{"arguments": {…}}`.

use std::borrow::Cow;

use serde_json::Value;

use super::{Limits, Rule, edit::Draft, places};
use crate::arguments::{Schema, parse_any};

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
/// Wrappers inside one another.
const LEVELS_MAX: usize = 2;

/// What stands inside, if less of it is wrong than of the whole.
pub(super) fn unwrapped(schema: &Schema, args: &Value, tool: &str) -> Option<Draft> {
    let mut inside = Cow::Borrowed(args);
    let mut changes = Vec::new();
    while changes.len() < LEVELS_MAX && !schema.is_valid(&inside) {
        let Some(inner) = inner(schema, &inside, tool) else {
            break;
        };
        inside = Cow::Owned(inner);
        changes.push((String::new(), Rule::Unwrap));
    }
    let is_better =
        !changes.is_empty() && schema.validate(&inside).total() < schema.validate(args).total();
    is_better.then(|| Draft {
        args: inside.into_owned(),
        changes,
    })
}

/// Whether a wrapper is there still: what stands in it was meant, and is not where it should be.
pub(super) fn is_left(schema: &Schema, args: &Value, tool: &str) -> bool {
    let mut keys = args
        .as_object()
        .into_iter()
        .flat_map(|entries| entries.keys());
    keys.any(|key| is_wrapper(schema, args, key, tool))
}

fn inner(schema: &Schema, args: &Value, tool: &str) -> Option<Value> {
    let entries = args.as_object().filter(|entries| entries.len() == 1)?;
    let (key, value) = entries.iter().next()?;
    if !is_wrapper(schema, args, key, tool) {
        return None;
    }
    let inner = match value {
        Value::String(text) => parse_any(text.as_bytes(), &Limits::DEFAULT).ok()?,
        other => other.clone(),
    };
    inner.is_object().then_some(inner)
}

fn is_wrapper(schema: &Schema, args: &Value, key: &str, tool: &str) -> bool {
    let is_declared = || {
        let schemas = places::schemas_at(schema.source(), args, "");
        places::declared(&schemas).contains_key(key)
    };
    (WRAPPERS.contains(&key) || key == tool) && !is_declared()
}
