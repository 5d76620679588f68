//! A call that the program of its caller runs: answers that come late, twice or never, clients that die, cancellations, people who
//! settle, and a failover that loses writes.
//!
//! What follows from each of them is decided by `fleet::ending`, and by `toolfleet.cancel` and `quarantine` as a test of the ledger
//! compares them with it. Time has no numbers: it is over whenever the sweep says so.
//!
//! Read `world` (what there is, and what can happen) and `properties` (what is promised).

mod properties;
mod world;

use std::{collections::BTreeSet, time::Instant};

use fleet::call::Effect;
use stateright::{Checker as _, Expectation, HasDiscoveries, Model as _};

use self::{
    properties::{KEPT, NEVER},
    world::{WaitsModel, WaitsMutant},
};

#[test]
fn a_call_in_its_clients_hands_is_told_of_as_it_is() {
    for effect in [Effect::Read, Effect::Idempotent, Effect::Once] {
        let began = Instant::now();
        let model = WaitsModel {
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
            "a client's {effect}: {} worlds, {} steps, {:?}",
            checker.unique_state_count(),
            checker.state_count(),
            began.elapsed()
        );
    }
}

#[test]
fn rules_of_calls_in_clients_hands_are_needed() {
    for (rule, breaks) in [
        (WaitsMutant::HandedOutIsExpired, NEVER),
        (WaitsMutant::HandedOutIsCancelled, NEVER),
        (WaitsMutant::ErrorIsNotDone, NEVER),
        (WaitsMutant::LateOutputThrownAway, KEPT),
    ] {
        let model = WaitsModel {
            effect: Effect::Once,
            without: Some(rule),
        };
        let noticed = HasDiscoveries::AnyOf(BTreeSet::from([breaks]));
        let checker = model.checker().finish_when(noticed).spawn_bfs().join();
        let way = checker.discovery(breaks);
        let way = way.unwrap_or_else(|| panic!("nobody notices {rule:?}"));
        println!("{rule:?} breaks {breaks:?}: {:?}", way.into_actions());
    }
}
