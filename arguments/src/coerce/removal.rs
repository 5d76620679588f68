//! `null`, or an empty text, for a property that was not to be given.

use jsonschema::JsonType;
use serde_json::Value;

use super::{
    edit::{Draft, Edit},
    rule::Rule,
};
use crate::{kind, pointer, schema::places};

/// The edit that leaves out the value at `place`, if it can mean nothing else.
///
/// The property must be declared, and nowhere may it be null, or a text that is not listed. Whether it is optional, the
/// validator says.
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
    // Where null is allowed, an empty text may be meant for it.
    let may_be = |schema: &&Value| {
        places::may_be(root, schema, JsonType::Null, None)
            || places::may_be(root, schema, kind::kind_of(value), Some(value))
    };
    let is_wanted = declared.get(&*name)?.iter().any(may_be);
    (!is_wanted).then(|| Edit {
        place: place.to_owned(),
        value: None,
        rule,
    })
}
