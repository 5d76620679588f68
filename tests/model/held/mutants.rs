//! One rule left out: the checker must notice.

use fleet::call::Effect;

use super::{
    model::HeldModel,
    properties::{
        FULL, GIVEN_BACK, HELD, KEPT, ONE_EACH, PERMITS, PLACES, POINTER, RELEASED, WAITS,
    },
    rules::{HeldConfig, HeldMutant, HeldMutant::*},
    state::HeldLine::{Newer, Queue, Tool},
};
use crate::{graph, mutants};

const QUEUE: HeldConfig = HeldConfig::of_queue("mutant", Effect::Once);
const SLOTS: HeldConfig = HeldConfig::of_slots("mutant", Effect::Once);
const TOOL: HeldConfig = HeldConfig::of_tool("mutant", Effect::Once);
const REPEATS: HeldConfig = HeldConfig {
    repeats: true,
    ..HeldConfig::of_tool("mutant", Effect::Read)
};
const RIVALS: HeldConfig = HeldConfig {
    dispatchers: 2,
    ..TOOL
};

fn are_caught<const N: usize>(cases: [(HeldMutant, HeldConfig, &'static str); N]) {
    for (rule, config, breaks) in cases {
        let model = || HeldModel::new(config.without(rule));
        mutants::is_caught(&format!("{rule:?}"), model, breaks);
    }
}

#[test]
fn rules_of_permits_are_needed() {
    are_caught([
        (PermitLeaked, QUEUE, PERMITS),
        (PermitLeakedUnaudited, QUEUE, RELEASED),
        (PermitGivenBackTwice, QUEUE, PERMITS),
        (QueueStaysClosed, QUEUE, GIVEN_BACK),
        (TenantWaitsForEver, SLOTS, GIVEN_BACK),
        (ShareNeverCounted, SLOTS, RELEASED),
    ]);
}

/// A permit that leaks is given back by the next audit: nothing is stuck, and in the end nothing is missing.
#[test]
fn a_leak_is_healed() {
    let graph = graph::walk(&HeldModel::new(QUEUE.without(PermitLeaked)));
    assert!(graph.to_stuck.is_none() && graph.to_unsettled.is_none());
}

#[test]
fn rules_of_lines_are_needed() {
    let unknown = HeldConfig {
        lines: [Some(Tool), Some(Queue), Some(Newer)],
        ..TOOL
    };
    are_caught([
        (LineForgotten, TOOL, RELEASED),
        (LineForgotten, QUEUE, RELEASED),
        (UnknownLineStopsReleases, unknown, RELEASED),
        (ReleaseKeepsNumber, RIVALS, POINTER),
        (PutBackUnheld, RIVALS, POINTER),
        (HeldClaimed, REPEATS, HELD),
        (
            DoubtStaysHeld,
            HeldConfig {
                quarantine: true,
                ..TOOL
            },
            WAITS,
        ),
    ]);
}

#[test]
fn rules_of_places_are_needed() {
    let shrinks = HeldConfig {
        limit: 2,
        shrinks: true,
        ..TOOL
    };
    are_caught([
        (PlaceByOldSnapshot, RIVALS, KEPT),
        (PlaceByOldSnapshot, RIVALS, PLACES),
        (
            PlaceFreedTwice,
            HeldConfig {
                effect: Effect::Idempotent,
                ..RIVALS
            },
            ONE_EACH,
        ),
        (PlaceOfDoubtFree, RIVALS, KEPT),
        (LargerLimitForgotten, shrinks, FULL),
    ]);
}
