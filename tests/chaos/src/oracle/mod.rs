//! What must be so at the end, and what must have happened at least sometimes.
//!
//! ```text
//! facts      what is known when a run is over: plain data
//! load       where it comes from: the files, the views, the sessions of Postgres
//! clock      Postgres's time of day, although it was moved
//! case       the facts, found by what they are about
//! rules      what must be so: a pure function for each promise
//! tightness  that nothing is in doubt without a cause, and that most calls succeed: else a run proves nothing
//! sometimes  what must have happened over a set of runs
//! verdict    what came of it, for people
//! ```

pub mod case;
mod clock;
pub mod facts;
pub mod load;
pub mod rules;
pub mod sometimes;
pub mod tightness;
pub mod verdict;

#[cfg(test)]
mod sample;

pub use clock::ClockMove;
pub use facts::{Exit, Facts, How, Injected, Process, Struck};
pub use load::{Ends, load};
pub use verdict::{Breach, Verdict};

use case::Case;

/// Judges a run. It asks no server: the same facts have the same verdict.
pub fn judge(facts: &Facts) -> Verdict {
    let case = Case::of(facts);
    let mut breaches: Vec<Breach> = rules::ALL
        .iter()
        .flat_map(|(_, rule)| rule(&case))
        .collect();
    breaches.extend(tightness::judge(&case));
    breaches.sort();
    Verdict {
        breaches,
        figures: tightness::figures(&case),
        sometimes: sometimes::count(&case),
    }
}
