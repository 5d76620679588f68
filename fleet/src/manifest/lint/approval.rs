//! Which calls wait for somebody's yes.

use super::{linted::Linted, warnings::Warnings};
use crate::{call::Effect, manifest::required::dead_end};

/// Warns of a read all of whose calls wait, and of conditions that cannot be judged.
pub(super) fn lint(subject: &Linted<'_>, warnings: &mut Warnings) {
    if subject.always_waits && subject.effect == Some(Effect::Read) {
        warnings.add(
            "/approval",
            "every call waits for a person, and a read changes nothing; say with when which calls matter, or leave approval out",
        );
    }
    for (n, pointer) in subject.condition_pointers.iter().enumerate() {
        let Some(there) = dead_end(subject.input_schema, pointer) else {
            continue;
        };
        let instead = match there.as_slice() {
            [] => "nothing can stand in that place".to_owned(),
            names => format!("in its place may stand {}", names.join(", ")),
        };
        warnings.add(
            format!("/approval/when/{n}/pointer"),
            format!(
                "input_schema lets no call have {pointer}, and what cannot be judged waits, so every call does; {instead}"
            ),
        );
    }
}
