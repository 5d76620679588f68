//! `null`, or an empty text, for a property that was not to be given.

use jsonschema::JsonType;
use serde_json::Value;

use super::{
    Rule,
    edit::{Draft, Edit},
    places, pointer,
};

/// The edit that leaves out the value at `place`, if it can mean nothing else.
///
/// The property must be declared, and nowhere may it be null, or a text. Whether it is optional, the validator says.
pub(super) fn of(root: &Value, draft: &Draft, place: &str) -> Option<Edit> {
    let (rule, kinds) = match draft.args.pointer(place)? {
        Value::Null => (Rule::NullRemoved, &[JsonType::Null][..]),
        // Where null is allowed, an empty text may be meant for it.
        Value::String(text) if text.is_empty() => {
            (Rule::EmptyRemoved, &[JsonType::String, JsonType::Null][..])
        }
        _a_value => return None,
    };
    let (parent, name) = pointer::split(place)?;
    pointer::is_property(&draft.args, place).then_some(())?;
    let declared = places::declared(&places::schemas_at(root, &draft.args, parent));
    let may_be = |schema: &&Value| {
        let mut kinds = kinds.iter();
        kinds.any(|kind| places::may_be(root, schema, *kind, None))
    };
    let is_wanted = declared.get(&*name)?.iter().any(may_be);
    (!is_wanted).then(|| Edit {
        place: place.to_owned(),
        value: None,
        rule,
    })
}
