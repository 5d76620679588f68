//! The breaker that a new call would wait for, as a fact of its admission.

use fleet::{
    breaker::{self, BreakerId, Passage},
    ids::Label,
    manifest::{Manifest, WhenOpen},
    modes::{Brake, InterceptMode},
};
use tokio::time::Instant;

use crate::door::Door;

/// The breaker that is shut for a new call of a tool whose calls wait for it. The gate decides about calls that end instead, and
/// about the first one of a breaker that has no row. Its settings are those of the newest version, and its target is that of the
/// call's. Where the tool has no breaker this costs a look at its manifest.
pub(super) fn breaker_of(
    door: &Door,
    tenant: &Label,
    newest: &Manifest,
    tool: &Manifest,
) -> Option<BreakerId> {
    let spec = newest.breaker.as_ref()?;
    if newest.when_open() != WhenOpen::Wait {
        return None;
    }
    let (controls, now) = (door.registry.controls(), Instant::now());
    let breakers = door.registry.breakers();
    let known = breakers.of(&tool.name, &tool.executor.target())?;
    let forced = controls.forced_breaker(&tool.name);
    let is_shut = matches!(
        breaker::passage(forced, Some(known), spec.probes, now),
        Passage::Shut(_)
    );
    let mode = || {
        controls
            .modes()
            .of_brake(Brake::Breaker, &tool.name, Some(tenant), now)
    };
    (is_shut && mode() == InterceptMode::Enforce).then_some(known.id)
}
