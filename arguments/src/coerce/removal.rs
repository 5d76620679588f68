//! Removes `null`, or an empty text, from a property that was not to be given.

use jsonschema::JsonType;
use serde_json::Value;

use super::{
    edit::{Draft, Edit},
    rule::Rule,
    single,
};
use crate::{
    kind, pointer,
    schema::{defaults::default, keywords, places},
};

/// The edit that removes the value at `place`, if it can mean nothing else.
///
/// The property must be declared. It must nowhere be allowed to be null, or a text that is not listed. And the tool must not
/// have a value of its own for nothing that differs from what it gets without the property. The validator says whether the
/// property is optional.
pub(super) fn of(root: &Value, draft: &Draft, place: &str) -> Option<Edit> {
    let value = draft.args.pointer(place)?;
    let rule = match value {
        Value::Null => Rule::NullRemoved,
        Value::String(text) if text.is_empty() => Rule::EmptyRemoved,
        _a_value => return None,
    };
    let (parent, name) = pointer::split(place)?;
    pointer::is_property(&draft.args, place).then_some(())?;
    let declared = places::declared(&places::schemas_at(root, &draft.args, parent));
    // Where null is allowed, an empty text may mean it.
    let may_be = |schema: &&Value| {
        places::may_be(root, schema, JsonType::Null, None)
            || places::may_be(root, schema, kind::kind_of(value), Some(value))
    };
    let said = declared.get(&*name)?;
    let is_wanted = said.iter().any(may_be) || has_own_nothing(root, said);
    (!is_wanted).then(|| Edit {
        place: place.to_owned(),
        value: None,
        rule,
    })
}

/// Whether one of the allowed words means nothing, or `false` does, and the default for a missing property differs.
fn has_own_nothing(root: &Value, said: &[&Value]) -> bool {
    let is_nothing = |value: &Value| value.as_str().is_some_and(single::is_for_nothing);
    let is_true = |value: &Value| {
        let is_word = |word: &str| word.eq_ignore_ascii_case("true");
        value == &Value::Bool(true) || value.as_str().is_some_and(is_word)
    };
    let all = places::in_place(root, said.to_vec());
    // A default in a branch of a union is not filled in, but the tool may know it.
    let mut defaults = all.iter().filter_map(|schema| schema.get("default"));
    let mut words = all
        .iter()
        .filter_map(|schema| keywords::values(schema))
        .flatten();
    defaults.any(is_true) || (!default(root, said).is_some_and(is_nothing) && words.any(is_nothing))
}
