//! What is promised, and what has to come up.

use fleet::breaker::{BreakerState, PermitVerdict};
use stateright::Property;

use super::world::{BreakerModel, Phase, TERMS, World};

pub(super) const PROBES: &str = "no generation sends more probes than it may";
pub(super) const OLD: &str = "an attempt of an older generation moves nothing";
pub(super) const WAY_ON: &str = "when the next deadline has come, a call may try the target";

pub(super) fn all() -> Vec<Property<BreakerModel>> {
    vec![
        Property::always(PROBES, |_, world: &World| {
            i32::from(world.probes_run) <= TERMS.probes
        }),
        Property::always(OLD, |_, world: &World| !world.moved_by_old),
        Property::always(WAY_ON, |model: &BreakerModel, world: &World| {
            let verdict = model.later(world.breaker).permit(0, 1, &TERMS).verdict;
            verdict != PermitVerdict::Refused
        }),
        Property::sometimes("it opens", |_, world: &World| {
            world.breaker.state == BreakerState::Open
        }),
        Property::sometimes(
            "it is open for longer after a probe that failed",
            |_, world: &World| world.breaker.open_ms == TERMS.open_max_ms,
        ),
        Property::sometimes(
            "it is half-open and nobody has a permit that is given out",
            |_, world: &World| {
                let held = world.processes.iter().filter_map(|process| process.tried);
                let held = held
                    .filter(|tried| tried.is_probe && tried.generation == world.breaker.generation);
                world.breaker.state == BreakerState::HalfOpen
                    && world.breaker.probes_out == TERMS.probes
                    && held.count() == 0
                    && world.breaker.probes_ok == 0
            },
        ),
        Property::sometimes(
            "an attempt of an older generation is not reported yet",
            |_, world: &World| {
                let mut tried = world.processes.iter().filter_map(|process| process.tried);
                tried.any(|tried| {
                    tried.generation != world.breaker.generation
                        && matches!(tried.phase, Phase::Ended(_))
                })
            },
        ),
        Property::sometimes(
            "a probe has succeeded and another one is needed",
            |_, world: &World| world.breaker.probes_ok == 1,
        ),
        Property::sometimes(
            "the target does not work while it is closed",
            |_, world: &World| !world.target_works && world.breaker.state == BreakerState::Closed,
        ),
    ]
}
