//! A call that needs somebody's yes: people who decide at once, twice, about other arguments or too late, cancellations, and a failover
//! that loses a yes and what followed it.
//!
//! Who may decide is as `toolfleet.decide` has it, which tests of the ledger hold to the same rules; what a call ends as is decided by
//! `fleet::ending`. Time has no numbers: it is over whenever the sweep says so.
//!
//! Read `world` (what there is, and what can happen) and `properties` (what is promised).

mod properties;
mod world;

use std::{collections::BTreeSet, time::Instant};

use fleet::call::Effect;
use stateright::{Checker as _, Expectation, HasDiscoveries, Model as _};

use self::{
    properties::{NEVER, ONCE, WITH_YES},
    world::{ApprovalModel, ApprovalMutant},
};

#[test]
fn nothing_runs_without_its_yes_and_no_yes_runs_it_twice() {
    for effect in [Effect::Read, Effect::Idempotent, Effect::Once] {
        for needed in [1, 2] {
            let began = Instant::now();
            let model = ApprovalModel {
                effect,
                needed,
                without: None,
            };
            let checker = model.checker().spawn_bfs().join();
            let mut found = checker.discoveries();
            for property in checker.model().properties() {
                let (name, found) = (property.name, found.remove(property.name));
                match property.expectation {
                    Expectation::Sometimes => {
                        assert!(found.is_some(), "{effect}, {needed}, never: {name}");
                    }
                    _promise => assert!(
                        found.is_none(),
                        "{effect}, {needed}, {name}: {:?}",
                        found.unwrap().into_actions()
                    ),
                }
            }
            println!(
                "{needed} to approve a {effect}: {} worlds, {} steps, {:?}",
                checker.unique_state_count(),
                checker.state_count(),
                began.elapsed()
            );
        }
    }
}

#[test]
fn rules_of_approvals_are_needed() {
    for (rule, effect, breaks) in [
        (ApprovalMutant::RunsAgainAfterLostWrites, Effect::Once, ONCE),
        (
            ApprovalMutant::HoldsForOtherArguments,
            Effect::Once,
            WITH_YES,
        ),
        (ApprovalMutant::OnePersonIsTwo, Effect::Once, WITH_YES),
        (ApprovalMutant::SubmitterDecides, Effect::Once, WITH_YES),
        (ApprovalMutant::NoCountsAsYes, Effect::Once, WITH_YES),
        (
            ApprovalMutant::UnknownIsForgotten,
            Effect::Idempotent,
            NEVER,
        ),
    ] {
        let model = ApprovalModel {
            effect,
            needed: 2,
            without: Some(rule),
        };
        let noticed = HasDiscoveries::AnyOf(BTreeSet::from([breaks]));
        let checker = model.checker().finish_when(noticed).spawn_bfs().join();
        let way = checker.discovery(breaks);
        let way = way.unwrap_or_else(|| panic!("nobody notices {rule:?}"));
        println!("{rule:?} breaks {breaks:?}: {:?}", way.into_actions());
    }
}
