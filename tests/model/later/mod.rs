//! A call whose tool says that it answers later: answers that overtake that word, come late, twice or never, to the first attempt or the
//! second; workers that die before they have recorded it; cancellations, and a failover that loses writes.
//!
//! What follows from each of them is decided by `fleet::ending`, and by `toolfleet.park`, `cancel` and `quarantine` as tests of the ledger
//! compare them with it. Time has no numbers: it is over whenever the sweep says so.
//!
//! Read `world` (what there is, and what can happen) and `properties` (what is promised).

mod properties;
mod world;

use std::{collections::BTreeSet, time::Instant};

use fleet::call::Effect;
use stateright::{Checker as _, Expectation, HasDiscoveries, Model as _};

use self::{
    properties::{KEPT, NEVER, ONCE},
    world::{LaterModel, LaterMutant},
};

#[test]
fn a_call_whose_tool_answers_later_is_told_of_as_it_is() {
    for effect in [Effect::Read, Effect::Idempotent, Effect::Once] {
        let began = Instant::now();
        let model = LaterModel {
            effect,
            without: None,
        };
        let checker = model.checker().spawn_bfs().join();
        let mut found = checker.discoveries();
        for property in checker.model().properties() {
            let (name, found) = (property.name, found.remove(property.name));
            match property.expectation {
                Expectation::Sometimes => assert!(found.is_some(), "{effect}, never: {name}"),
                _promise => assert!(
                    found.is_none(),
                    "{effect}, {name}: {:?}",
                    found.unwrap().into_actions()
                ),
            }
        }
        println!(
            "a {effect} that is answered later: {} worlds, {} steps, {:?}",
            checker.unique_state_count(),
            checker.state_count(),
            began.elapsed()
        );
    }
}

#[test]
fn rules_of_calls_whose_tools_answer_later_are_needed() {
    for (effect, rule, breaks) in [
        (Effect::Once, LaterMutant::SilenceIsTriedAgain, ONCE),
        (Effect::Once, LaterMutant::HandedOutIsExpired, NEVER),
        (Effect::Once, LaterMutant::HandedOutIsCancelled, NEVER),
        (Effect::Once, LaterMutant::OvertakingAnswerThrownAway, KEPT),
        (Effect::Once, LaterMutant::LateAnswerThrownAway, KEPT),
        (Effect::Once, LaterMutant::WaitsAgainAfterLostWrites, NEVER),
        (Effect::Idempotent, LaterMutant::EarlierNoCounts, NEVER),
    ] {
        let model = LaterModel {
            effect,
            without: Some(rule),
        };
        let noticed = HasDiscoveries::AnyOf(BTreeSet::from([breaks]));
        let checker = model.checker().finish_when(noticed).spawn_bfs().join();
        let way = checker.discovery(breaks);
        let way = way.unwrap_or_else(|| panic!("nobody notices {rule:?}"));
        println!("{rule:?} breaks {breaks:?}: {:?}", way.into_actions());
    }
}
