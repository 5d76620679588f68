//! A smaller plan that fails as well.
//!
//! Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002): leave out a part of
//! the entries; if what is left still fails, go on from there; if nothing can be left out, try smaller parts. A real fleet
//! does not fail every time, so a plan that passed may fail the next time: what is left is small, not smallest.

use crate::plan::{Entry, Plan};

/// What to try next, and what came of it.
#[derive(Debug)]
pub struct Shrinking {
    smallest: Plan,
    parts: usize,
    next: usize,
    tried: Option<Vec<Entry>>,
}

impl Shrinking {
    /// From a plan that fails.
    pub const fn new(plan: Plan) -> Self {
        Self {
            smallest: plan,
            parts: 2,
            next: 0,
            tried: None,
        }
    }

    /// The smallest plan so far that fails.
    pub const fn smallest(&self) -> &Plan {
        &self.smallest
    }

    /// A smaller plan to try; `None` when nothing can be left out any more.
    pub fn propose(&mut self) -> Option<Plan> {
        let entries = &self.smallest.entries;
        if entries.is_empty() {
            return None;
        }
        self.parts = self.parts.min(entries.len());
        if self.next >= self.parts {
            if self.parts == entries.len() {
                return None;
            }
            self.parts = (self.parts * 2).min(entries.len());
            self.next = 0;
        }
        // The same length for all parts but the last ones: none is empty.
        let (from, to) = (
            entries.len() * self.next / self.parts,
            entries.len() * (self.next + 1) / self.parts,
        );
        let left: Vec<Entry> = entries[..from]
            .iter()
            .chain(&entries[to..])
            .copied()
            .collect();
        self.tried = Some(left.clone());
        Some(Plan {
            entries: left,
            ..self.smallest.clone()
        })
    }

    /// Whether the plan that was proposed last fails as well.
    pub fn learn(&mut self, fails: bool) {
        let Some(tried) = self.tried.take() else {
            return;
        };
        if fails {
            self.smallest.entries = tried;
            self.parts = self.parts.saturating_sub(1).max(2);
            self.next = 0;
        } else {
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Kind, What};

    fn shrink(plan: Plan, fails: impl Fn(&Plan) -> bool) -> (Plan, usize) {
        let mut shrinking = Shrinking::new(plan);
        let mut tries = 0;
        while let Some(proposed) = shrinking.propose() {
            tries += 1;
            shrinking.learn(fails(&proposed));
        }
        (shrinking.smallest().clone(), tries)
    }

    #[test]
    fn what_is_left_is_what_it_takes() {
        let plan = (0..).map(|seed| Plan::draw(seed, 60, Kind::Safety));
        let is_guilty = |entry: &Entry| matches!(entry.what, What::Kill(_) | What::LockTable(_));
        let guilty = |plan: &Plan| plan.entries.iter().filter(|entry| is_guilty(entry)).count();
        let plan = plan.into_iter().find(|plan| guilty(plan) == 2).unwrap();
        let (smallest, tries) = shrink(plan.clone(), |plan| guilty(plan) == 2);
        assert_eq!(smallest.entries.len(), 2);
        assert!(tries < plan.entries.len() * 4, "{tries} tries");
        assert_eq!(smallest.seed, plan.seed);
    }

    #[test]
    fn a_plan_that_fails_without_any_fault_is_left_empty() {
        let (smallest, _) = shrink(Plan::draw(3, 60, Kind::Safety), |_| true);
        assert!(smallest.entries.is_empty());
    }

    #[test]
    fn a_plan_that_never_fails_again_stays() {
        let plan = Plan::draw(3, 60, Kind::Safety);
        let (smallest, _) = shrink(plan.clone(), |_| false);
        assert_eq!(smallest, plan);
    }
}
