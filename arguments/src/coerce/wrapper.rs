//! Arguments that stand in a wrapper such as `{"arguments": {…}}`, or in the envelope of a call in a model API's format,
//! `{"type": "tool_use", "id": "t1", "name": "<this tool>", "input": {…}}`.
//!
//! Either fits every schema that is open to unknown names, and an envelope has names that a tool may declare, such as `id`. So
//! this is checked before validation: an envelope is taken off or refused, and never run.

use std::{borrow::Cow, iter};

use serde_json::Value;

use super::{
    edit::Draft,
    formats::{
        CALLS, DETAILS_OF_ANY, Entry, LISTS, NAME, NAMES, TYPE, WRAPPERS, details, entries,
        is_companion, is_name, is_of_any_call, is_of_format, is_one_of, is_word, names,
    },
    rule::Rule,
};
use crate::{
    kind,
    limits::Limits,
    parse::parse_any,
    schema::{Schema, keywords, places},
    violations::Violations,
};

/// The most nested wrappers.
const LEVELS_MAX: usize = 2;
/// How deep a call that names this tool is searched for.
const CALLS_MAX: usize = 3;

/// The envelope around everything that was sent.
struct Envelope<'a> {
    /// The property with the arguments.
    holder: Entry<'a>,
    beside: Vec<Entry<'a>>,
}

/// Whether everything that was sent stands in a wrapper.
pub(super) fn is_wrapped(schema: &Schema, args: &Value, tool: &str) -> bool {
    around(schema, args, tool).is_some()
}

/// The arguments without their wrappers, or as they are where there are none; `None` if a wrapper may not be taken off.
pub(super) fn taken_off(schema: &Schema, args: &Value, tool: &str) -> Option<Draft> {
    let mut inside = Cow::Borrowed(args);
    let mut changes = Vec::new();
    while changes.len() < LEVELS_MAX
        && let Some(inner) = inner(schema, &inside, tool)
    {
        inside = Cow::Owned(inner);
        changes.push((String::new(), Rule::Unwrap));
    }
    // If more is wrong without it, the word was no wrapper. If every name is unknown, there is another wrapper.
    let is_better = || {
        schema.validate(&inside).total() <= refusal(schema, args, tool).total()
            && !is_unknown(schema, &inside)
    };
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

/// What is wrong with the arguments as sent, a wrapper that stays included.
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

/// The envelope around everything that was sent.
fn around<'a>(schema: &Schema, args: &'a Value, tool: &str) -> Option<Envelope<'a>> {
    let named = call_in(args, tool, CALLS_MAX).filter(|holder| !is_own(schema, args, *holder));
    let holder = named.or_else(|| unnamed(schema, args, tool))?;
    let beside = entries(args).filter(|(key, _)| *key != holder.0).collect();
    Some(Envelope { holder, beside })
}

/// The property with the arguments of a call. The call names this tool, beside the arguments or around them; or its `type` says
/// that it is a call, and it names any tool. Other properties do not change that.
fn call_in<'a>(args: &'a Value, tool: &str, levels: usize) -> Option<Entry<'a>> {
    let levels = levels.checked_sub(1)?;
    // Nearly every call has only names of the tool's own, and ends here.
    let mut holders = entries(args)
        .filter(|(key, _)| is_word(key, tool) || is_one_of(&CALLS, key) || is_one_of(&LISTS, key))
        .peekable();
    holders.peek()?;
    let is_typed = entries(args).any(|entry| entry.0 == TYPE && is_of_any_call(entry));
    let names_any = |(key, value): Entry<'_>| is_one_of(&NAMES, key) && value.is_string();
    let is_named = entries(args).any(|entry| names(entry, tool) || (is_typed && names_any(entry)));
    let is_call = |value: &Value| {
        (is_typed && value.get(NAME).is_some()) || call_in(value, tool, levels).is_some()
    };
    holders.find(|(key, value)| match value {
        Value::Array(calls) => is_one_of(&LISTS, key) && calls.iter().any(is_call),
        value => opened(value).is_some_and(|inside| is_named || is_call(&inside)),
    })
}

/// Whether the tool declares the property that could have the arguments. It does not count if its value has the same name again.
fn is_own(schema: &Schema, args: &Value, (key, value): Entry<'_>) -> bool {
    let root = schema.source();
    let schemas = places::schemas_at(root, args, "");
    let may_be = |schema: &&Value| places::may_be(root, schema, kind::kind_of(value), Some(value));
    let is_declared =
        (places::declared(&schemas).get(key)).is_some_and(|said| said.iter().any(may_be));
    let is_there_again = || opened(value).is_some_and(|inside| inside.get(key).is_some());
    (is_declared && !is_there_again()) || (places::is_map(&schemas) && schema.is_valid(args))
}

/// The property with the arguments where no name says that this is a call: a wrapper, alone or beside the name of a tool; or
/// one with an object, beside members that an envelope has.
fn unnamed<'a>(schema: &Schema, args: &'a Value, tool: &str) -> Option<Entry<'a>> {
    let details = details(args);
    let is_detail = |key: &str| details.iter().any(|(name, _)| is_one_of(&[*name], key));
    if !entries(args).all(|(key, _)| is_word(key, tool) || is_companion(key) || is_detail(key)) {
        return None;
    }
    let mut holders = entries(args).filter(|(key, _)| is_word(key, tool) || is_one_of(&CALLS, key));
    let holder = holders.find(|(_, value)| opened(value).is_some());
    let alone = || {
        let mut words = entries(args).filter(|(key, _)| *key != NAME);
        let only = words.next().filter(|(key, _)| is_word(key, tool));
        only.filter(|_| words.next().is_none())
    };
    let holder = holder.or_else(alone)?;
    (!is_any_declared(schema, args, tool)).then_some(holder)
}

/// The content of the envelope, if it is certainly that of a call of this tool.
fn inner(schema: &Schema, args: &Value, tool: &str) -> Option<Value> {
    let Envelope { holder, beside } = around(schema, args, tool)?;
    let (key, value) = holder;
    let inside = opened(value)?;
    let names_tool = |entry: &Entry<'_>| is_name(entry.0) && names(*entry, tool);
    let is_call = || is_wrapped(schema, &inside, tool) && call_in(&inside, tool, 1).is_some();
    let is_named = match key {
        key if CALLS.contains(&key) => is_call(),
        key if WRAPPERS.contains(&key) || key == tool => {
            beside.is_empty() || beside.iter().any(names_tool) || is_call()
        }
        _in_another_case_or_several => false,
    };
    let details = details(args);
    let agrees = |entry: &Entry<'_>| {
        names_tool(entry)
            || is_of_any_call(*entry)
            || is_of_format(details, *entry)
            || is_of_format(&DETAILS_OF_ANY, *entry)
    };
    let may_go = is_named
        && beside.iter().all(agrees)
        && !is_any_meant(schema, args, &beside, &inside, tool);
    may_go.then(|| inside.into_owned())
}

/// Whether a property beside the arguments may be one of them: the tool declares it, and the arguments do not contain it. It is
/// not one of them if a `type` says that it belongs to the call and the tool does not list this very value.
fn is_any_meant(
    schema: &Schema,
    args: &Value,
    beside: &[Entry<'_>],
    inside: &Value,
    tool: &str,
) -> bool {
    let root = schema.source();
    let declared = places::declared(&places::schemas_at(root, args, ""));
    let mut types = beside.iter().filter(|(key, _)| *key == TYPE);
    let is_typed = types.any(|entry| is_of_any_call(*entry));
    let deeper = call_in(inside, tool, 1).and_then(|(_, value)| opened(value));
    let is_there_again = |key: &str| {
        inside
            .get(key)
            .or_else(|| deeper.as_ref()?.get(key))
            .is_some()
    };
    let lists = |said: &[&Value], value: &Value| {
        let all = places::in_place(root, said.to_vec());
        let words = all.iter().filter_map(|schema| keywords::values(schema));
        words.flatten().any(|word| word == value)
    };
    beside.iter().any(|(key, value)| {
        let said = declared
            .get(key)
            .filter(|_| *key != NAME && !is_there_again(key));
        said.is_some_and(|said| !is_typed || lists(said, value))
    })
}

/// An object, or the object in a text.
fn opened(value: &Value) -> Option<Cow<'_, Value>> {
    let inner = match value {
        Value::String(text) => Cow::Owned(parse_any(text.as_bytes(), &Limits::DEFAULT).ok()?),
        other => Cow::Borrowed(other),
    };
    inner.is_object().then_some(inner)
}

fn is_wrapper(schema: &Schema, args: &Value, key: &str, tool: &str) -> bool {
    (WRAPPERS.contains(&key) || key == tool) && !says(schema, args, iter::once(key))
}

/// Whether the tool declares one of the properties. A `name` with this tool's name belongs to the call, and so do the members
/// that its format has beside such a name.
fn is_any_declared(schema: &Schema, args: &Value, tool: &str) -> bool {
    let is_name = |(key, value): &Entry<'_>| *key == NAME && *value == tool;
    let details = match entries(args).any(|entry| is_name(&entry)) {
        true => details(args),
        false => &[],
    };
    let others = entries(args).filter(|entry| !is_name(entry) && !is_of_format(details, *entry));
    says(schema, args, others.map(|(key, _)| key))
}

/// Whether the schema describes one of the properties, by its name or by a rule for any name, and the value fits.
fn says<'k>(schema: &Schema, args: &Value, mut keys: impl Iterator<Item = &'k str>) -> bool {
    let schemas = places::schemas_at(schema.source(), args, "");
    let declared = places::declared(&schemas);
    keys.any(|key| declared.contains_key(key))
        || (places::is_map(&schemas) && schema.is_valid(args))
}

/// Whether the tool declares properties, and the arguments have only others.
fn is_unknown(schema: &Schema, args: &Value) -> bool {
    let schemas = places::schemas_at(schema.source(), args, "");
    let declared = places::declared(&schemas);
    let mut keys = entries(args).map(|(key, _)| key).peekable();
    let is_any = !declared.is_empty() && keys.peek().is_some() && !places::is_map(&schemas);
    is_any && !keys.any(|key| declared.contains_key(key))
}
