//! JSON pointers (RFC 6901) as text: places in arguments and in schemas.

use std::borrow::Cow;

use serde_json::Value;

/// One segment of a JSON pointer, escaped by RFC 6901.
pub fn pointer_segment(name: &str) -> Cow<'_, str> {
    if name.contains(['~', '/']) {
        Cow::Owned(name.replace('~', "~0").replace('/', "~1"))
    } else {
        Cow::Borrowed(name)
    }
}

/// Whether `place` is `outer` or inside it.
pub(crate) fn is_within(place: &str, outer: &str) -> bool {
    place
        .strip_prefix(outer)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether one of two places is inside the other.
pub(crate) fn is_related(a: &str, b: &str) -> bool {
    is_within(a, b) || is_within(b, a)
}

/// The containing place, and the name in it; `None` for the whole.
pub(crate) fn split(place: &str) -> Option<(&str, Cow<'_, str>)> {
    let (parent, segment) = place.rsplit_once('/')?;
    Some((parent, unescape(segment)))
}

/// The names and indices on the way to a place.
pub(crate) fn segments(place: &str) -> impl Iterator<Item = Cow<'_, str>> {
    place.split('/').skip(1).map(unescape)
}

/// The place of a property of the object at `parent`.
pub(crate) fn below(parent: &str, name: &str) -> String {
    format!("{parent}/{}", pointer_segment(name))
}

/// Whether the value at `place` is a property, and not an item.
pub(crate) fn is_property(args: &Value, place: &str) -> bool {
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
