//! The permit to try a target: it goes with a call from the gate to the end of its attempt.
//!
//! An attempt counts for the generation of its permit. A permit that the ledger gave out is given back unless the attempt says
//! something about the target, however it ends.

use std::{sync::Arc, time::Duration};

use fleet::{
    breaker::{BreakerTerms, Counted, TargetHealth},
    outcome::Outcome,
};

use super::counts::{BreakerCounts, Circuit};

/// What a call that may try its target takes along.
pub(crate) struct BreakerPermit {
    pub(super) counts: Arc<BreakerCounts>,
    pub(super) circuit: Circuit,
    pub(super) generation: i64,
    /// Whether the ledger gave out a permit for it.
    pub(super) is_probe: bool,
    pub(super) terms: BreakerTerms,
    pub(super) window: Duration,
    pub(super) slow_after: Option<Duration>,
}

impl BreakerPermit {
    /// Counts what an attempt came to that took so long. `was_stopped`: it was told to end, so that only an answer counts.
    pub(crate) fn answered(mut self, outcome: &Outcome, took: Duration, was_stopped: bool) {
        let unanswered = matches!(outcome, Outcome::NotStarted(_) | Outcome::Unknown(_));
        let says = TargetHealth::of(outcome).filter(|_| !(was_stopped && unanswered));
        let Some(evidence) = says else {
            return;
        };
        let slow = self.slow_after.is_some_and(|after| took > after);
        let one = Counted {
            calls: 1,
            failures: i64::from(evidence == TargetHealth::Failed),
            slow: i64::from(slow),
        };
        let (counts, circuit) = (&self.counts, &self.circuit);
        counts.count(circuit, self.generation, self.window, one, &self.terms);
        if self.is_probe {
            counts.hurry();
        }
        self.is_probe = false;
    }
}

impl Drop for BreakerPermit {
    fn drop(&mut self) {
        if self.is_probe {
            self.counts.give_back(self.circuit.clone(), self.generation);
        }
    }
}
