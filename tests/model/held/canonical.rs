//! Worlds that differ only in what nothing can ever notice are made one.
//!
//! Nothing can notice the name of an attempt that is over, and which of several calls of one line, of several workers or
//! dispatchers has which number. So the numbers in a way to an accident are given anew in each line.

use std::hash::{Hash as _, Hasher};

use fleet::call::State;

use super::{
    rules::HeldConfig,
    state::{CALLS, HeldState, HeldStep, HeldWorker, NOTHING, PROCESSES, Pointers, Request},
};
use crate::state::{Attempt, Registered, slot};

impl HeldState {
    /// Forgets what is of no consequence any more.
    pub(crate) fn forget(&mut self) {
        for at in 0..self.rows.len() {
            let Some(row) = &mut self.rows[at] else {
                continue;
            };
            // Who ran it is asked only while it runs.
            if row.state != State::Running {
                row.worker = None;
            }
            // Messages of what has ended are acknowledged by all who get them.
            if row.state.is_terminal() {
                self.pointers[at] = Pointers {
                    ever: true,
                    ..Pointers::NONE
                };
            }
        }
        for worker in 0..self.workers.len() {
            self.simplify_worker(worker);
        }
        self.forget_ended_attempts();
    }

    fn simplify_worker(&mut self, worker: usize) {
        let HeldWorker { step, registered } = self.workers[worker];
        let ended =
            |call: u8| self.rows[usize::from(call)].is_some_and(|row| row.state.is_terminal());
        let vain = match step {
            HeldStep::NotOurs(taken) | HeldStep::Disposing(taken, _) => ended(taken.call),
            HeldStep::Ended(run, _) => self.of(run.attempt).is_none() && run.place.is_none(),
            _ => false,
        };
        if vain {
            self.workers[worker].step = HeldStep::Idle;
        }
        // A process that has gone, and of which nothing is left, is as good as the one that replaces it.
        let gone = self.workers[worker].step == HeldStep::Gone;
        let idle = self.workers[worker].step == HeldStep::Idle && registered == Registered::Dead;
        if (gone || idle) && !self.runs_for(worker) {
            self.workers[worker] = HeldWorker::IDLE;
        }
    }

    /// A place that names an attempt which is over is as good as one that names none, unless a claim has seen the name.
    fn forget_ended_attempts(&mut self) {
        let live = self.live();
        let workers = self.workers;
        let seen = |attempt: Attempt| {
            workers.iter().any(|worker| match worker.step {
                HeldStep::Judged(_, _, judgement) => judgement.free.contains(&Some(attempt)),
                _ => false,
            })
        };
        for (place, live) in self.places.iter_mut().zip(live) {
            if !live && !seen(*place) {
                *place = NOTHING;
            }
        }
        for at in 0..self.rows.len() {
            let Some(row) = self.rows[at] else { continue };
            let reported = |attempt| workers.iter().any(|w| w.step.attempt() == Some(attempt));
            if !row.is_live() && !row.attempt.is_some_and(reported) {
                self.rows[at] = Some(super::state::HeldRow {
                    attempt: None,
                    limit: 0,
                    ..row
                });
            }
        }
    }

    /// Names attempts in the order in which one comes across them.
    fn rename(&mut self) {
        let (mut new, mut given) = ([NOTHING; 24], NOTHING);
        let mut name = |old: &mut Attempt| {
            if *old == NOTHING {
                return;
            }
            let known = &mut new[usize::from(*old)];
            if *known == NOTHING {
                given += 1;
                *known = given;
            }
            *old = *known;
        };
        for row in self.rows.iter_mut().flatten() {
            row.attempt.iter_mut().for_each(&mut name);
        }
        self.places.iter_mut().for_each(&mut name);
        for worker in &mut self.workers {
            match &mut worker.step {
                HeldStep::Asking(_, attempt) | HeldStep::Silent(_, attempt) => name(attempt),
                HeldStep::Judged(_, attempt, judgement) => {
                    name(attempt);
                    judgement.free.iter_mut().flatten().for_each(&mut name);
                }
                HeldStep::Running(run) | HeldStep::Ended(run, _) => name(&mut run.attempt),
                HeldStep::Gone
                | HeldStep::Idle
                | HeldStep::NotOurs(_)
                | HeldStep::Disposing(..) => {}
            }
        }
    }
}

/// Calls, workers and dispatchers with other numbers: at each place the number of the one that comes there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    calls: [usize; CALLS],
    workers: [usize; PROCESSES],
    dispatchers: [usize; PROCESSES],
}

const OF_CALLS: [[usize; CALLS]; 6] = [
    [0, 1, 2],
    [1, 0, 2],
    [0, 2, 1],
    [2, 1, 0],
    [1, 2, 0],
    [2, 0, 1],
];
const OF_PROCESSES: [[usize; PROCESSES]; 2] = [[0, 1], [1, 0]];

impl Exchange {
    /// Every exchange of what is alike.
    pub(crate) fn all(config: &HeldConfig) -> Vec<Self> {
        let alike = |calls: &[usize; CALLS]| calls.map(|call| config.lines[call]) == config.lines;
        let processes = |count: usize| &OF_PROCESSES[..count];
        let mut all = Vec::new();
        for calls in OF_CALLS.into_iter().filter(alike) {
            for workers in processes(config.workers) {
                for dispatchers in processes(config.dispatchers) {
                    all.push(Self {
                        calls,
                        workers: *workers,
                        dispatchers: *dispatchers,
                    });
                }
            }
        }
        all
    }

    /// Of all worlds that are alike, always the same one.
    pub(crate) fn first(alike: &[Self], world: &HeldState) -> HeldState {
        let named = alike.iter().map(|exchange| {
            let mut other = exchange.of(world);
            other.rename();
            other
        });
        let order = |world: &HeldState| {
            let mut quick = Quick(0);
            world.hash(&mut quick);
            quick.0
        };
        named.min_by_key(order).unwrap_or(*world)
    }

    /// The world with the other numbers.
    fn of(&self, s: &HeldState) -> HeldState {
        let number = |places: &[usize], old: u8| {
            let new = places.iter().position(|place| *place == usize::from(old));
            new.map_or(old, slot)
        };
        let mut other = HeldState {
            rows: self.calls.map(|call| s.rows[call]),
            requests: self.calls.map(|call| s.requests[call]),
            pointers: self.calls.map(|call| s.pointers[call]),
            effects: self.calls.map(|call| s.effects[call]),
            dispatchers: self.dispatchers.map(|dispatcher| s.dispatchers[dispatcher]),
            workers: self.workers.map(|worker| s.workers[worker]),
            ..*s
        };
        for row in other.rows.iter_mut().flatten() {
            row.worker = row.worker.map(|worker| number(&self.workers, worker));
        }
        for request in &mut other.requests {
            if let Request::Admitted { dispatcher, .. } | Request::Committed { dispatcher, .. } =
                request
            {
                *dispatcher = number(&self.dispatchers, *dispatcher);
            }
        }
        for worker in &mut other.workers {
            if let Some(taken) = worker.step.taken_mut() {
                taken.call = number(&self.calls, taken.call);
            }
            if let HeldStep::Running(run) | HeldStep::Ended(run, _) = &mut worker.step {
                run.call = number(&self.calls, run.call);
            }
        }
        other
    }
}

/// A hash that only has to order worlds: most of the time of this model goes into it.
struct Quick(u64);

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u8(*byte));
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    fn write_i8(&mut self, byte: i8) {
        self.write_u64(byte.cast_unsigned().into());
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number.cast_unsigned() as u64);
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = self.0.rotate_left(5) ^ number;
        self.0 = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
