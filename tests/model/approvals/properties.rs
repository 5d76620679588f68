//! What is promised, and what has to come up.

use fleet::call::{Effect, EffectKnown, State};
use stateright::Property;

use super::world::{ApprovalModel, ApprovalStep, ApprovalWorld, Person, Row};

pub(super) const ONCE: &str = "a once call runs at most once";
pub(super) const WITH_YES: &str = "what ran has the yes of as many as are needed, to these arguments, and none of them submitted it";
pub(super) const NEVER: &str =
    "what expired, was cancelled or denied has not happened, and never will";
const WAY_ON: &str = "a wait can always end";

pub(super) fn all(model: &ApprovalModel) -> Vec<Property<ApprovalModel>> {
    let mut all = vec![
        Property::always(ONCE, |model: &ApprovalModel, world: &ApprovalWorld| {
            model.effect != Effect::Once || world.ran <= 1
        }),
        Property::always(WITH_YES, |model: &ApprovalModel, world: &ApprovalWorld| {
            // Where one is enough, who submitted it may be the one.
            let may: &[Person] = match model.needed {
                1 => &[Person::Ann, Person::Bob, Person::Eve],
                _ => &[Person::Ann, Person::Bob],
            };
            let agreed = may.iter().filter(|person| world.agreed(**person));
            world.ran == 0 || agreed.count() >= model.needed
        }),
        Property::always(NEVER, |model: &ApprovalModel, world: &ApprovalWorld| {
            let denied = matches!(
                world.row,
                Row::Over(
                    State::Expired | State::Cancelled | State::Failed,
                    EffectKnown::NotApplied
                )
            );
            !(model.effect.may_doubt() && denied && world.ran > 0)
        }),
        Property::always(WAY_ON, |model: &ApprovalModel, world: &ApprovalWorld| {
            let waits = |world: &ApprovalWorld| matches!(world.row, Row::Waiting { .. });
            !waits(world)
                || model
                    .after(world, ApprovalStep::TimeOver)
                    .is_some_and(|after| !waits(&after))
        }),
        Property::sometimes("it runs", |_, world: &ApprovalWorld| world.ran == 1),
        Property::sometimes("it is denied", |_, world: &ApprovalWorld| {
            matches!(world.row, Row::Over(State::Failed, _))
        }),
        Property::sometimes("it expires", |_, world: &ApprovalWorld| {
            matches!(world.row, Row::Over(State::Expired, _))
        }),
        Property::sometimes(
            "a yes is lost, and what it ran",
            |_, world: &ApprovalWorld| {
                world.has_lost_writes && world.ran == 1 && !matches!(world.row, Row::Over(..))
            },
        ),
    ];
    if model.effect == Effect::Idempotent {
        all.push(Property::sometimes(
            "it runs again with its key after lost writes",
            |_, world: &ApprovalWorld| world.ran == 2,
        ));
    }
    if model.effect.may_doubt() {
        all.push(Property::sometimes(
            "it is in doubt after lost writes",
            |_, world: &ApprovalWorld| world.row == Row::InDoubt,
        ));
    }
    all
}
