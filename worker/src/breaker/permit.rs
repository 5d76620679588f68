//! The permit to try a target: it goes with a call from the gate to the end of its attempt.
//!
//! An attempt counts for the generation of its permit. A permit that the ledger gave out is given back unless the attempt says
//! something about the target, however it ends.

use std::{sync::Arc, time::Duration};

use fleet::{
    breaker::{BreakerTerms, Counted, TargetHealth},
    outcome::Outcome,
    wire::code::Code,
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

/// Why an attempt had less time than its tool gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CutShort {
    /// It had all of it.
    No,
    /// Its call had less time left than the tool's timeout: the caller's wish, which says nothing about the target.
    ByDeadline,
    /// It was told to end.
    Stopped,
}

/// Whether an attempt without an answer says something about the target: not if it might have come a moment later.
fn says_something(outcome: &Outcome, cut: CutShort) -> bool {
    match (cut, outcome) {
        (CutShort::No, _) | (_, Outcome::Applied { .. } | Outcome::DefiniteFailure(_)) => true,
        (CutShort::Stopped, Outcome::NotStarted(_) | Outcome::Unknown(_)) => false,
        (CutShort::ByDeadline, Outcome::NotStarted(failure) | Outcome::Unknown(failure)) => {
            failure.code != Code::Timeout
        }
    }
}

impl BreakerPermit {
    /// Counts what an attempt came to that took so long.
    pub(crate) fn answered(self, outcome: &Outcome, took: Duration, cut: CutShort) {
        if let Some(evidence) = TargetHealth::of(outcome).filter(|_| says_something(outcome, cut)) {
            self.counts_as(evidence, took);
        }
    }

    /// Counts an answer that took so long.
    pub(crate) fn replied(self, took: Duration) {
        self.counts_as(TargetHealth::Answered, took);
    }

    fn counts_as(mut self, evidence: TargetHealth, took: Duration) {
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
