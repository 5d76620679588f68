//! What is promised, and what has to come up.

use fleet::call::{EffectKnown, State};
use stateright::Property;

use super::world::{Client, HandedRow, Said, WaitsModel, WaitsStep, WaitsWorld};

pub(super) const NEVER: &str =
    "what expired, was cancelled or failed as not applied has not happened, and never will";
pub(super) const KEPT: &str = "a result that comes to an open call is the call's";
const TRUE: &str = "what succeeded has happened";
const WAY_ON: &str = "a wait can always end";

pub(super) fn all(model: &WaitsModel) -> Vec<Property<WaitsModel>> {
    let mut all = vec![
        Property::always(NEVER, |model: &WaitsModel, world: &WaitsWorld| {
            let denied = matches!(
                world.row,
                HandedRow::Over(_, EffectKnown::NotApplied | EffectKnown::None)
            );
            !(model.effect.may_doubt() && denied && world.happened)
        }),
        Property::always(KEPT, |_, world: &WaitsWorld| !world.thrown_away),
        Property::always(TRUE, |_, world: &WaitsWorld| {
            world.happened || !matches!(world.row, HandedRow::Over(State::Succeeded, _))
        }),
        Property::always(WAY_ON, |model: &WaitsModel, world: &WaitsWorld| {
            world.row != HandedRow::Awaiting
                || model
                    .after(world, WaitsStep::Silence)
                    .is_some_and(|after| after.row != HandedRow::Awaiting)
        }),
        Property::sometimes(
            "its client is gone before it has it",
            |_, world: &WaitsWorld| {
                world.client == Client::Gone && world.row == HandedRow::Awaiting && !world.happened
            },
        ),
        Property::sometimes(
            "its client did it and is gone before it said so",
            |_, world: &WaitsWorld| {
                world.client == Client::Gone
                    && world.happened
                    && world.row == HandedRow::Awaiting
                    && world.said == Said::default()
            },
        ),
        Property::sometimes(
            "its client says that nothing was done",
            |_, world: &WaitsWorld| {
                let no = HandedRow::Over(State::Failed, EffectKnown::NotApplied);
                let of_read = HandedRow::Over(State::Failed, EffectKnown::None);
                world.row == no || world.row == of_read
            },
        ),
        Property::sometimes("its result succeeds", |_, world: &WaitsWorld| {
            matches!(world.row, HandedRow::Over(State::Succeeded, _))
        }),
        Property::sometimes(
            "it waits again after lost writes, or is in doubt",
            |_, world: &WaitsWorld| {
                world.has_lost_writes
                    && matches!(
                        world.row,
                        HandedRow::Awaiting
                            | HandedRow::InDoubt {
                                is_quarantined: true
                            }
                    )
            },
        ),
    ];
    if model.effect.may_doubt() {
        all.extend([
            Property::sometimes("a late result settles a doubt", |_, world: &WaitsWorld| {
                world.was_in_doubt && matches!(world.row, HandedRow::Over(State::Succeeded, _))
            }),
            Property::sometimes("nobody will ever know", |_, world: &WaitsWorld| {
                world.row == HandedRow::Over(State::Failed, EffectKnown::Unknown)
            }),
        ]);
    } else {
        all.push(Property::sometimes(
            "it expires",
            |_, world: &WaitsWorld| matches!(world.row, HandedRow::Over(State::Expired, _)),
        ));
    }
    all
}
