//! Arguments that stand in a wrapper such as `{"arguments": {…}}`, or in the envelope of a call in a model API's format,
//! `{"type": "tool_use", "id": "t1", "name": "<this tool>", "input": {…}}`.
//!
//! Either fits every schema that is open to names it does not know, so whether it is there is looked at before anything is
//! validated: it is taken off or refused, and never run.

use std::{borrow::Cow, iter};

use serde_json::Value;

use super::{edit::Draft, rule::Rule};
use crate::{
    limits::Limits,
    parse::parse_any,
    schema::{Schema, places},
    violations::Violations,
};

/// Keys in which some models wrap the arguments.
pub const WRAPPERS: [&str; 7] = [
    "arguments",
    "args",
    "parameters",
    "params",
    "input",
    "tool_input",
    "kwargs",
];
/// Beside a wrapper: which tool is called. Some APIs put the whole call into the last.
const NAMES: [&str; 4] = [NAME, "tool", "tool_name", FUNCTION];
const NAME: &str = "name";
const FUNCTION: &str = "function";
/// What holds a name and the arguments of a call in some formats: of OpenAI's chat, and of Gemini in JSON and in Python.
const CALLS: [&str; 3] = [FUNCTION, "functionCall", "function_call"];
/// Beside a wrapper: which call it is.
const IDS: [&str; 4] = ["id", "call_id", "tool_call_id", "tool_use_id"];
/// Beside a wrapper: that it is a call.
const TYPE: &str = "type";
const TYPES_OF_CALLS: [&str; 4] = ["function", "tool_use", "tool_call", "function_call"];
/// What the published format of this `type` has beside that, and what each may be: OpenAI's chat (in pieces, too) and responses,
/// and Anthropic's messages. Without the type they are words like any others.
const DETAILS: [(&str, &[Detail]); 3] = [
    ("function", &[("index", Value::is_u64)]),
    (
        "function_call",
        &[
            ("status", is_complete),
            ("namespace", Value::is_string),
            ("caller", Value::is_object),
            ("created_by", Value::is_string),
        ],
    ),
    (
        "tool_use",
        &[
            ("caller", Value::is_object),
            ("toolset_name", Value::is_string),
            ("cache_control", Value::is_object),
        ],
    ),
];
/// What Gemini has beside a `functionCall`, which has no type.
const DETAILS_OF_A_PART: [Detail; 3] = [
    ("thought", Value::is_boolean),
    ("thoughtSignature", Value::is_string),
    ("thought_signature", Value::is_string),
];
/// Wrappers inside one another.
const LEVELS_MAX: usize = 2;

/// A property that was sent.
type Entry<'a> = (&'a str, &'a Value);
/// What a format has beside the arguments, and what it may be; null where there is none.
type Detail = (&'static str, fn(&Value) -> bool);

/// Arguments of a call that is not complete may be the first half of them.
fn is_complete(status: &Value) -> bool {
    status == "completed"
}

/// What all that was sent stands in.
struct Envelope<'a> {
    /// The property that holds the arguments.
    holder: Entry<'a>,
    beside: Vec<Entry<'a>>,
}

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
    let is_left = entries(&draft.args).any(|(key, _)| is_wrapper(schema, &draft.args, key, tool))
        || is_wrapped(schema, &draft.args, tool);
    (!is_left).then_some(draft)
}

/// What is wrong with what was sent, the wrapper that stays among it.
pub(super) fn refusal(schema: &Schema, args: &Value, tool: &str) -> Violations {
    let left = || {
        let mut wrappers = entries(args).filter(|(key, _)| is_wrapper(schema, args, key, tool));
        wrappers.find(|(_, value)| opened(value).is_some())
    };
    let violations = schema.validate(args);
    let holder = around(schema, args, tool).map(|envelope| envelope.holder);
    match holder.or_else(left) {
        Some((key, value)) => violations.with_wrapper(key, value),
        None => violations,
    }
}

/// The envelope around all that was sent: a wrapper, alone or beside the name of a tool, or one that holds an object beside
/// anything that an envelope has.
fn around<'a>(schema: &Schema, args: &'a Value, tool: &str) -> Option<Envelope<'a>> {
    let is_word = |key: &str| is_one_of(&WRAPPERS, key) || key == tool;
    // Nearly every call has a name of the tool's own, and ends here.
    let details = details(args);
    let is_detail = |key: &str| details.iter().any(|(name, _)| is_one_of(&[*name], key));
    if !entries(args).all(|(key, _)| is_word(key) || is_companion(key) || is_detail(key)) {
        return None;
    }
    let mut holders = entries(args).filter(|(key, _)| is_word(key) || is_one_of(&CALLS, key));
    let holder = holders.find(|(_, value)| opened(value).is_some());
    let alone = || {
        let mut words = entries(args).filter(|(key, _)| *key != NAME);
        let only = words.next().filter(|(key, _)| is_word(key));
        only.filter(|_| words.next().is_none())
    };
    let holder = holder.or_else(alone)?;
    if is_any_declared(schema, args, tool) {
        return None;
    }
    let beside = entries(args).filter(|(key, _)| *key != holder.0).collect();
    Some(Envelope { holder, beside })
}

/// What stands in the envelope, if it is certain that it is that of a call of this tool.
fn inner(schema: &Schema, args: &Value, tool: &str) -> Option<Value> {
    let Envelope { holder, beside } = around(schema, args, tool)?;
    let (key, value) = holder;
    let inside = opened(value)?;
    let names_tool = |(key, value): &Entry<'_>| NAMES.contains(key) && *value == tool;
    let is_named = match key {
        key if CALLS.contains(&key) => {
            is_wrapped(schema, &inside, tool) && entries(&inside).any(|e| names_tool(&e))
        }
        key if WRAPPERS.contains(&key) || key == tool => {
            beside.is_empty() || beside.iter().any(names_tool)
        }
        _in_another_case => false,
    };
    let details = details(args);
    let agrees = |entry: &Entry<'_>| {
        names_tool(entry) || is_of_any_call(*entry) || is_of_format(details, *entry)
    };
    (is_named && beside.iter().all(agrees)).then_some(inside)
}

/// Whether a property says nothing of a call but that it is one, or which.
fn is_of_any_call((key, value): Entry<'_>) -> bool {
    match key {
        TYPE => value
            .as_str()
            .is_some_and(|word| TYPES_OF_CALLS.contains(&word)),
        key => IDS.contains(&key) && (value.is_string() || value.is_number()),
    }
}

/// What may stand beside the arguments in the format that these say they have.
fn details(args: &Value) -> &'static [Detail] {
    let is_part = |key: &str| is_one_of(&CALLS[1..], key);
    if entries(args).any(|(key, _)| is_part(key)) {
        return &DETAILS_OF_A_PART;
    }
    let mut kinds = entries(args).filter(|(key, _)| is_one_of(&[TYPE], key));
    let kind = kinds.next().and_then(|(_, kind)| kind.as_str());
    let format = DETAILS.iter().find(|(of, _)| Some(*of) == kind);
    format.map_or(&[], |(_, details)| details)
}

/// Whether a property is what the format has there.
fn is_of_format(details: &[Detail], (key, value): Entry<'_>) -> bool {
    let mut details = details.iter();
    details.any(|(name, may_be)| *name == key && (value.is_null() || may_be(value)))
}

/// An object, or the object of which a value is the text.
fn opened(value: &Value) -> Option<Value> {
    let inner = match value {
        Value::String(text) => parse_any(text.as_bytes(), &Limits::DEFAULT).ok()?,
        other => other.clone(),
    };
    inner.is_object().then_some(inner)
}

fn entries(args: &Value) -> impl Iterator<Item = Entry<'_>> {
    let entries = args.as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.as_str(), value))
}

/// In any case: what is not written as it should be is no reason to run it.
fn is_one_of(words: &[&str], key: &str) -> bool {
    words.iter().any(|word| word.eq_ignore_ascii_case(key))
}

fn is_companion(key: &str) -> bool {
    is_one_of(&NAMES, key)
        || is_one_of(&IDS, key)
        || is_one_of(&CALLS, key)
        || is_one_of(&[TYPE], key)
}

fn is_wrapper(schema: &Schema, args: &Value, key: &str, tool: &str) -> bool {
    (WRAPPERS.contains(&key) || key == tool) && !says(schema, args, iter::once(key))
}

/// Whether the tool knows one of the properties. A `name` that is this tool's is that of the call, and what its format has
/// beside such a name is the format's.
fn is_any_declared(schema: &Schema, args: &Value, tool: &str) -> bool {
    let is_name = |(key, value): &Entry<'_>| *key == NAME && *value == tool;
    let details = match entries(args).any(|entry| is_name(&entry)) {
        true => details(args),
        false => &[],
    };
    let others = entries(args).filter(|entry| !is_name(entry) && !is_of_format(details, *entry));
    says(schema, args, others.map(|(key, _)| key))
}

/// Whether the schema says what one of the properties is: by its name, or by what it says of any name, and it is that.
fn says<'k>(schema: &Schema, args: &Value, mut keys: impl Iterator<Item = &'k str>) -> bool {
    let schemas = places::schemas_at(schema.source(), args, "");
    let declared = places::declared(&schemas);
    keys.any(|key| declared.contains_key(key))
        || (places::is_map(&schemas) && schema.is_valid(args))
}
