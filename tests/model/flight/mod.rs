//! Calls with one question: who fetches the answer, who follows, and who takes over.
//!
//! Three calls, two workers and the sweep. A look at the gate is three steps, for its statements read what is committed at their
//! time; between them all else may happen. What a kept row says is in `verdict`, which the ledger's tests compare with the SQL; moves
//! of calls are `fleet::state`'s, and what follows the loss of a worker `fleet::retry`'s.
//!
//! Read `state`, `rules`, `verdict`, `ledger`, `model`, `properties`.

mod canonical;
mod ledger;
mod model;
mod properties;
mod rules;
mod state;
mod verdict;

use self::{
    model::FlightModel,
    properties::{ENDS, FRESH, INHERITED, NO_PART, ONE_RUN, QUESTION},
    rules::{Asks, FlightConfig, FlightMutant, FlightMutant::*},
};
use crate::{hold, mutants};

#[test]
fn equal_calls_hold() {
    hold(FlightModel::new(FlightConfig {
        cancel: true,
        large: true,
        ..FlightConfig::of("flight: three equal calls, cancel")
    }));
}

#[test]
fn equal_calls_hold_after_purges_and_while_the_history_drops_calls() {
    hold(FlightModel::new(FlightConfig {
        drops: true,
        keeps: true,
        purge: true,
        not_now: false,
        ..FlightConfig::of("flight: purge, history drops calls")
    }));
}

#[test]
fn equal_calls_hold_after_lost_writes() {
    hold(FlightModel::new(FlightConfig {
        failover: true,
        not_now: false,
        ..FlightConfig::of("flight: lossy failover")
    }));
}

#[test]
#[ignore = "large"]
fn equal_calls_that_are_asked_again_hold_after_purges_and_lost_writes() {
    hold(FlightModel::new(FlightConfig {
        drops: true,
        purge: true,
        ..FlightConfig::of("flight: purge, drops, asked again")
    }));
    hold(FlightModel::new(FlightConfig {
        failover: true,
        ..FlightConfig::of("flight: failover, asked again")
    }));
}

#[test]
fn calls_of_another_tenant_or_that_take_no_part_hold() {
    for (name, third) in [
        ("flight: one is of another tenant", Asks::OtherTenant),
        ("flight: one is no-store", Asks::NoStore),
        ("flight: one is a probe", Asks::Probe),
    ] {
        hold(FlightModel::new(FlightConfig::with(name, third)));
    }
}

fn are_caught<const N: usize>(cases: [(FlightMutant, FlightConfig, &'static str); N]) {
    for (rule, config, breaks) in cases {
        let model = || FlightModel::new(config.without(rule));
        mutants::is_caught(&format!("{rule:?}"), model, breaks);
    }
}

#[test]
fn rules_of_flights_are_needed() {
    let equal = FlightConfig::of("mutant");
    let drops = FlightConfig {
        drops: true,
        ..equal
    };
    let purge = FlightConfig {
        purge: true,
        ..equal
    };
    are_caught([
        (FollowerChecksBeforeLock, equal, ONE_RUN),
        (RestNotRepointed, equal, ONE_RUN),
        (LeaderDeathUnseen, equal, ENDS),
        (PurgeUnseen, purge, ENDS),
        (FollowsItself, equal, ENDS),
        (FailureInherited, equal, INHERITED),
        (OldAnswerCounts, equal, FRESH),
        (OldAnswerCounts, drops, FRESH),
    ]);
}

#[test]
fn rules_of_who_shares_are_needed() {
    let with = |third| FlightConfig::with("mutant", third);
    are_caught([
        (ProbeSeesCache, with(Asks::Probe), NO_PART),
        (NoStoreShares, with(Asks::NoStore), NO_PART),
        (KeyWithoutTenant, with(Asks::OtherTenant), QUESTION),
    ]);
}
