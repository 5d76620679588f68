//! The configurations that are looked at in full.

use fleet::call::Effect;

use super::{
    model::HeldModel,
    rules::HeldConfig,
    state::HeldLine::{Newer, Queue, Tool},
};
use crate::hold;

#[test]
fn pointers_of_a_queue_hold() {
    hold(HeldModel::new(HeldConfig {
        repeats: true,
        ..HeldConfig::of_queue("held: a queue, pointers repeat", Effect::Read)
    }));
}

#[test]
#[ignore = "large"]
fn calls_of_a_queue_hold_with_two_dispatchers() {
    hold(HeldModel::new(HeldConfig {
        dispatchers: 2,
        ..HeldConfig::of_queue("held: a queue, two dispatchers", Effect::Idempotent)
    }));
}

#[test]
#[ignore = "not walked to its end yet"]
fn three_calls_of_a_queue_hold() {
    hold(HeldModel::new(HeldConfig {
        lines: [Some(Queue); 3],
        ..HeldConfig::of_queue("held: a queue, three calls", Effect::Read)
    }));
}

#[test]
fn calls_of_a_tenant_at_its_bound_hold() {
    hold(HeldModel::new(HeldConfig::of_slots(
        "held: a tenant at its bound",
        Effect::Once,
    )));
}

#[test]
fn calls_of_a_tool_with_one_place_hold() {
    hold(HeldModel::new(HeldConfig {
        silence: true,
        ..HeldConfig::of_tool("held: one place, silent claims", Effect::Once)
    }));
}

#[test]
#[ignore = "large"]
fn pointers_of_a_tool_hold() {
    hold(HeldModel::new(HeldConfig {
        repeats: true,
        ..HeldConfig::of_tool("held: one place, pointers repeat", Effect::Read)
    }));
}

#[test]
#[ignore = "not walked to its end yet"]
fn calls_of_a_tool_hold_with_two_dispatchers() {
    hold(HeldModel::new(HeldConfig {
        dispatchers: 2,
        ..HeldConfig::of_tool("held: one place, two dispatchers", Effect::Idempotent)
    }));
}

#[test]
#[ignore = "large"]
fn calls_of_a_tool_hold_after_lost_writes() {
    hold(HeldModel::new(QUARANTINE));
}

#[test]
#[ignore = "large"]
fn idempotent_calls_of_a_tool_hold_after_lost_writes() {
    hold(HeldModel::new(HeldConfig {
        name: "held: the same, idempotent",
        effect: Effect::Idempotent,
        ..QUARANTINE
    }));
}

const QUARANTINE: HeldConfig = HeldConfig {
    cancel: true,
    quarantine: true,
    ..HeldConfig::of_tool("held: one place, quarantine", Effect::Once)
};

#[test]
#[ignore = "not walked to its end yet"]
fn calls_of_a_tool_hold_when_its_limit_shrinks() {
    hold(HeldModel::new(HeldConfig {
        limit: 2,
        shrinks: true,
        ..HeldConfig::of_tool("held: two places, then one", Effect::Read)
    }));
}

#[test]
#[ignore = "not walked to its end yet"]
fn lines_of_a_newer_release_stop_nothing() {
    hold(HeldModel::new(HeldConfig {
        lines: [Some(Tool), Some(Queue), Some(Newer)],
        ..HeldConfig::of_tool("held: three lines, one unknown", Effect::Once)
    }));
}
