//! A breaker and three workers: stale snapshots, workers that die with a permit, rounds that lapse.
//!
//! The ledger's part is `fleet::breaker::Breaker` itself, which a test of the ledger compares with the SQL. Time has no numbers
//! here: it passes until the next deadline. Of generations only two differ: the present one, and those before.
//!
//! Read `world` (what there is, and what can happen) and `properties` (what is promised).

mod properties;
mod world;

use std::{collections::BTreeSet, time::Instant};

use stateright::{Checker as _, Expectation, HasDiscoveries, Model as _};

use self::{
    properties::{OLD, PROBES, WAY_ON},
    world::{BreakerModel, BreakerMutant},
};

#[test]
fn a_breaker_holds_with_three_workers() {
    let began = Instant::now();
    let checker = BreakerModel { without: None }.checker().spawn_bfs().join();
    let mut found = checker.discoveries();
    for property in checker.model().properties() {
        let found = found.remove(property.name);
        match property.expectation {
            Expectation::Sometimes => assert!(found.is_some(), "never comes up: {}", property.name),
            _promise => assert!(
                found.is_none(),
                "{}: {:?}",
                property.name,
                found.unwrap().into_actions()
            ),
        }
    }
    println!(
        "breaker, three workers: {} worlds, {} steps, {:?}",
        checker.unique_state_count(),
        checker.state_count(),
        began.elapsed()
    );
}

#[test]
fn rules_of_breakers_are_needed() {
    for (rule, breaks) in [
        (BreakerMutant::AllHalfOpen, PROBES),
        (BreakerMutant::GenerationIgnored, OLD),
        (BreakerMutant::PermitNeverLapses, WAY_ON),
    ] {
        let model = BreakerModel {
            without: Some(rule),
        };
        let noticed = HasDiscoveries::AnyOf(BTreeSet::from([breaks]));
        let checker = model.checker().finish_when(noticed).spawn_bfs().join();
        let way = checker.discovery(breaks);
        let way = way.unwrap_or_else(|| panic!("nobody notices {rule:?}"));
        println!("{rule:?} breaks {breaks:?}: {:?}", way.into_actions());
    }
}
