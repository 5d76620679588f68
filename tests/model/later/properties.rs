//! What is promised, and what has to come up.

use fleet::call::{Effect, EffectKnown, State};
use stateright::Property;

use super::world::{LaterModel, LaterRow, LaterStep, LaterWorld, Remote};

pub(super) const NEVER: &str =
    "what expired, was cancelled or failed as not applied has not happened, and never will";
pub(super) const KEPT: &str = "a result that comes to an open call is the call's";
pub(super) const ONCE: &str = "a once call is asked for once";
const TRUE: &str = "what succeeded has happened";
const WAY_ON: &str = "a wait can always end";

pub(super) fn all(model: &LaterModel) -> Vec<Property<LaterModel>> {
    let mut all = vec![
        Property::always(NEVER, |model: &LaterModel, world: &LaterWorld| {
            let denied = matches!(
                world.row,
                LaterRow::Over(_, EffectKnown::NotApplied | EffectKnown::None)
            );
            !(model.effect.may_doubt() && denied && world.happened > 0)
        }),
        Property::always(KEPT, |_, world: &LaterWorld| !world.thrown_away),
        Property::always(ONCE, |model: &LaterModel, world: &LaterWorld| {
            let asked = world
                .remotes
                .iter()
                .filter(|remote| **remote != Remote::Unasked);
            model.effect != Effect::Once || asked.count() <= 1 && world.happened <= 1
        }),
        Property::always(TRUE, |model: &LaterModel, world: &LaterWorld| {
            model.effect == Effect::Read
                || world.happened > 0
                || !matches!(world.row, LaterRow::Over(State::Succeeded, _))
        }),
        Property::always(WAY_ON, |model: &LaterModel, world: &LaterWorld| {
            !matches!(world.row, LaterRow::Waiting { .. })
                || model.after(world, LaterStep::Silence).is_some()
        }),
        Property::sometimes("its answer succeeds", |_, world: &LaterWorld| {
            matches!(world.row, LaterRow::Over(State::Succeeded, _)) && !world.was_overtaken
        }),
        Property::sometimes(
            "an answer overtakes the word later",
            |_, world: &LaterWorld| {
                world.was_overtaken && matches!(world.row, LaterRow::Over(State::Succeeded, _))
            },
        ),
        Property::sometimes(
            "it waits, and its remote is gone",
            |_, world: &LaterWorld| matches!(world.row, LaterRow::Waiting { attempt, .. } if world.remotes[attempt] == Remote::Gone),
        ),
        Property::sometimes("writes are lost", |_, world: &LaterWorld| {
            world.has_lost_writes
        }),
    ];
    if model.effect.may_doubt() {
        all.push(Property::sometimes(
            "a late answer settles a doubt",
            |_, world: &LaterWorld| {
                world.was_in_doubt && matches!(world.row, LaterRow::Over(State::Succeeded, _))
            },
        ));
    } else {
        all.push(Property::sometimes(
            "it expires",
            |_, world: &LaterWorld| matches!(world.row, LaterRow::Over(State::Expired, _)),
        ));
    }
    if model.effect == Effect::Idempotent {
        all.push(Property::sometimes(
            "the answer to an earlier attempt is the call's",
            |_, world: &LaterWorld| {
                matches!(world.row, LaterRow::Over(State::Succeeded, _))
                    && world.remotes[0] == Remote::Did
                    && world.remotes[1] == Remote::Has
            },
        ));
    }
    all
}
