//! Properties that look like an idempotency key: a model that tries again makes up another value.

use super::{linted::Linted, names::folded, warnings::Warnings};
use crate::{arguments::pointer_segment, manifest::input::properties};

/// Names of keys and of tool-call ids, without case and separators. Ids of things, such as `request_id`, are no keys.
const KEYS: [&str; 12] = [
    "clientrequestid",
    "clienttoken",
    "dedupekey",
    "deduplicationid",
    "deduplicationkey",
    "dedupkey",
    "idempotencekey",
    "idempotencykey",
    "idempotencytoken",
    "toolcallid",
    "toolcallkey",
    "tooluseid",
];

/// Warns of a write whose caller fills in the value that should tell a repetition from a new call.
pub(super) fn lint(subject: &Linted<'_>, warnings: &mut Warnings) {
    if !subject.writes() {
        return;
    }
    for (name, _) in properties(subject.input_schema) {
        if Some(name.as_str()) == subject.key_argument || !KEYS.contains(&folded(name).as_str()) {
            continue;
        }
        warnings.add(
            format!("/input_schema/properties/{}", pointer_segment(name)),
            format!(
                "a model makes up another {name:?} for each try, and vendors change the ids of tool calls, so it tells no \
                 repetition from a new call; let the fleet fill it in with idempotency: {{argument: {name}}}, or take it out \
                 and have the program that calls send a key"
            ),
        );
    }
}
