//! JSON pointers as text: places in the arguments.

use std::borrow::Cow;

use serde_json::Value;

use crate::arguments::pointer_segment;

/// Whether `place` is `outer` or inside it.
pub(super) fn is_within(place: &str, outer: &str) -> bool {
    place
        .strip_prefix(outer)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether one of two places is inside the other.
pub(super) fn is_related(a: &str, b: &str) -> bool {
    is_within(a, b) || is_within(b, a)
}

/// The place around this one and the name in it; `None` for the whole.
pub(super) fn split(place: &str) -> Option<(&str, Cow<'_, str>)> {
    let (parent, segment) = place.rsplit_once('/')?;
    Some((parent, unescape(segment)))
}

/// The names and indices on the way to a place.
pub(super) fn segments(place: &str) -> impl Iterator<Item = Cow<'_, str>> {
    place.split('/').skip(1).map(unescape)
}

/// The place of a property of the object at `parent`.
pub(super) fn below(parent: &str, name: &str) -> String {
    format!("{parent}/{}", pointer_segment(name))
}

/// Whether the value at `place` is a property, and not an item.
pub(super) fn is_property(args: &Value, place: &str) -> bool {
    let parent = split(place).and_then(|(parent, _)| args.pointer(parent));
    parent.is_some_and(Value::is_object)
}

fn unescape(segment: &str) -> Cow<'_, str> {
    if segment.contains('~') {
        Cow::Owned(segment.replace("~1", "/").replace("~0", "~"))
    } else {
        Cow::Borrowed(segment)
    }
}
