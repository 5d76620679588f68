//! The faults that wait for a message of their kind, and those that have struck.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::moment::{Moment, moment};

/// Far more than a run of an hour has; what strikes after that is done and not remembered.
const STRUCK_MAX: usize = 1_000_000;

/// The faults of one wire.
#[derive(Debug)]
pub(super) struct Armed<K, F> {
    state: Mutex<State<K, F>>,
}

#[derive(Debug)]
struct State<K, F> {
    passed: HashMap<K, u64>,
    armed: HashMap<(K, u64), F>,
    struck: Vec<(K, u64, F, Moment)>,
    healed: bool,
}

/// One of a kind, on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Passing<K, F> {
    /// Its kind.
    pub(super) kind: K,
    /// The how-manieth of its kind, from 1.
    pub(super) nth: u64,
    /// What is to happen to it.
    pub(super) fault: Option<F>,
    /// What is to happen to the one after it.
    pub(super) next: Option<F>,
}

impl<K: Copy + Eq + Hash, F: Copy> Armed<K, F> {
    /// Nothing is armed, nothing has passed.
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                passed: HashMap::new(),
                armed: HashMap::new(),
                struck: Vec::new(),
                healed: false,
            }),
        }
    }

    /// This fault is to strike this one.
    pub(super) fn arm(&self, kind: K, nth: u64, fault: F) {
        self.state().armed.insert((kind, nth), fault);
    }

    /// Counts one that passes, and says what is to happen to it.
    pub(super) fn pass(&self, kind: K) -> Passing<K, F> {
        let mut state = self.state();
        let passed = state.passed.entry(kind).or_default();
        *passed += 1;
        let nth = *passed;
        let fault = state.armed.remove(&(kind, nth));
        let next = state.armed.get(&(kind, nth + 1)).copied();
        let healed = state.healed;
        drop(state);
        Passing {
            kind,
            nth,
            fault: fault.filter(|_| !healed),
            next: next.filter(|_| !healed),
        }
    }

    /// How many have passed.
    pub(super) fn passed(&self, kind: K) -> u64 {
        self.state().passed.get(&kind).copied().unwrap_or_default()
    }

    /// It was done.
    pub(super) fn strike(&self, kind: K, nth: u64, fault: F) {
        let mut state = self.state();
        if state.struck.len() < STRUCK_MAX {
            state.struck.push((kind, nth, fault, moment()));
        }
    }

    /// What was done.
    pub(super) fn struck(&self) -> Vec<(K, u64, F)> {
        let state = self.state();
        let struck = state.struck.iter();
        struck
            .map(|(kind, nth, fault, _)| (*kind, *nth, *fault))
            .collect()
    }

    /// What was done, and when.
    pub(super) fn struck_at(&self) -> Vec<(K, F, Moment)> {
        let state = self.state();
        let struck = state.struck.iter();
        struck
            .map(|(kind, _, fault, at)| (*kind, *fault, *at))
            .collect()
    }

    /// Nothing armed strikes any more.
    pub(super) fn heal(&self) {
        self.state().healed = true;
    }

    fn state(&self) -> MutexGuard<'_, State<K, F>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_the_one_that_it_was_armed_for() {
        let armed = Armed::new();
        armed.arm("a", 2, "cut");
        armed.arm("b", 1, "drop");
        let first = armed.pass("a");
        assert_eq!((first.fault, first.next), (None, Some("cut")));
        assert_eq!(armed.pass("b").fault, Some("drop"));
        let second = armed.pass("a");
        assert_eq!((second.nth, second.fault), (2, Some("cut")));
        assert_eq!(armed.pass("a").fault, None);
        assert_eq!((armed.passed("a"), armed.passed("c")), (3, 0));
    }

    #[test]
    fn a_healed_wire_counts_on_and_strikes_nothing() {
        let armed = Armed::new();
        armed.arm("a", 1, "cut");
        armed.heal();
        assert_eq!(armed.pass("a").fault, None);
        assert_eq!(armed.passed("a"), 1);
    }
}
