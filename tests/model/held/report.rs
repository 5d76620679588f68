//! A world in a line.

use std::fmt::Write as _;

use super::{
    model::HeldModel,
    state::{Dispatcher, HeldRow, HeldState, HeldStep, Message, NOTHING, Request},
};
use crate::state::Registered;

pub(crate) fn digest(model: &HeldModel, world: &HeldState) -> String {
    let mut parts = Vec::new();
    for (at, row) in world.rows.iter().enumerate() {
        if let request @ (Request::Admitted { .. } | Request::Committed { .. }) = world.requests[at]
        {
            parts.push(format!("request {at} {request:?}"));
        }
        parts.extend(row.map(|row| format!("call {at} {}", words(&row))));
        let of = world.pointers[at];
        if of.current != Message::Absent || of.earlier {
            let earlier = if of.earlier { ", an earlier one" } else { "" };
            parts.push(format!("pointer {:?}{earlier}", of.current));
        }
        if world.effects[at] > 0 {
            parts.push(format!("effects {}", world.effects[at]));
        }
    }
    for (at, place) in world.places.iter().enumerate() {
        if *place != NOTHING {
            parts.push(format!("place {at} of attempt {place}"));
        }
    }
    for (at, dispatcher) in world.dispatchers[..model.config.dispatchers]
        .iter()
        .enumerate()
    {
        if *dispatcher != Dispatcher::NEW {
            parts.push(format!("dispatcher {at} {dispatcher:?}"));
        }
    }
    for (at, worker) in world.workers[..model.config.workers].iter().enumerate() {
        let dead = if worker.registered == Registered::Dead {
            " declared dead"
        } else {
            ""
        };
        if worker.step != HeldStep::Idle || !dead.is_empty() {
            parts.push(format!("worker {at} {:?}{dead}", worker.step));
        }
    }
    parts.join("; ")
}

fn words(row: &HeldRow) -> String {
    let mut words = row.state.to_string();
    if let Some(attempt) = row.attempt {
        write!(words, ", attempt {attempt}").expect("a text takes all");
    }
    let marks = [
        (row.held, "held"),
        (row.waits, "its pause is not over"),
        (row.effect_unknown, "effect unknown"),
        (row.cancel_requested, "cancel requested"),
        (row.time_is_over, "time is over"),
    ];
    for (_, mark) in marks.iter().filter(|(holds, _)| *holds) {
        write!(words, ", {mark}").expect("a text takes all");
    }
    words
}
