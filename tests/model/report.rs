//! What the tests print: how large each configuration is, and counterexamples that can be read.

use std::{
    fmt::{Debug, Write as _},
    time::Duration,
};

use crate::{
    graph::Walked,
    protocol::Protocol,
    state::{Ended, Registered, Row, Step, System},
};

/// One line of the table of configurations.
pub(crate) struct Size {
    pub(crate) states: usize,
    pub(crate) transitions: usize,
    pub(crate) depth: usize,
    pub(crate) took: Duration,
}

impl Size {
    pub(crate) fn print(&self, name: &str, result: &str) {
        let Self {
            states,
            transitions,
            depth,
            took,
        } = self;
        println!(
            "model | {name:<34} | {states:>9} states | {transitions:>9} transitions | depth {depth:>2} | {:>5.1} s | {result}",
            took.as_secs_f64()
        );
    }
}

/// Why a configuration does not hold, step by step.
pub(crate) fn tell<M: Walked>(model: &M, promise: &str, way: &[M::Action]) -> String {
    let mut told = format!("{}: broken: {promise}\n", model.name());
    let mut world = model.start();
    for (number, action) in way.iter().enumerate() {
        let Some(next) = model.step(&world, *action) else {
            break;
        };
        world = next;
        let action = format!("{action:?}");
        let number = number + 1;
        writeln!(told, "{number:>3}. {action:<28} {}", model.digest(&world))
            .expect("a text takes all");
    }
    told
}

/// The way in one line.
pub(crate) fn line(way: &[impl Debug]) -> String {
    let steps: Vec<String> = way.iter().map(|action| format!("{action:?}")).collect();
    steps.join(", ")
}

pub(crate) fn digest(protocol: &Protocol, world: &System) -> String {
    let mut parts = Vec::new();
    for at in 0..world.ledger.open.len() {
        let places = [
            ("", &world.ledger.open[at]),
            ("history: ", &world.ledger.history[at]),
        ];
        for (place, row) in places {
            parts.extend(
                row.as_ref()
                    .map(|row| format!("call {at} {place}{}", row_in_words(row))),
            );
        }
        if world.effects(at) > 0 {
            parts.push(format!("effects {}", world.effects(at)));
        }
    }
    for index in 0..protocol.config.workers {
        let worker = &world.workers[index];
        let mut words = match worker.step {
            Step::Idle => String::new(),
            step => format!("{step:?}"),
        };
        if world.ledger.registered[index] == Registered::Dead {
            words.push_str(" declared dead");
        }
        for (what, job) in [
            ("gave up", worker.given_up),
            ("left a tool with", worker.orphan),
        ] {
            if let Some(job) = job {
                write!(words, " {what} attempt {}", job.attempt).expect("a text takes all");
            }
        }
        if let Some(late) = worker.late {
            write!(words, " late claim {}", late.job.attempt).expect("a text takes all");
        }
        if !words.is_empty() {
            parts.push(format!("worker {index}: {}", words.trim_start()));
        }
    }
    parts.join("; ")
}

fn row_in_words(row: &Row) -> String {
    let mut words = row.state.to_string();
    if let Some(attempt) = row.attempt {
        write!(words, ", attempt {attempt}").expect("a text takes all");
    }
    let marks = [
        (row.effect_unknown, "effect unknown"),
        (row.cancel_requested, "cancel requested"),
        (row.quarantined, "quarantined"),
        (row.suspects != 0, "not fenced"),
    ];
    for (_, mark) in marks.iter().filter(|(holds, _)| *holds) {
        write!(words, ", {mark}").expect("a text takes all");
    }
    if row.ended != Ended::NotYet {
        write!(words, ", {} by {:?}", row.known, row.ended).expect("a text takes all");
    }
    words
}
