//! The promises that hold at the end, and the events that must happen at least sometimes.
//!
//! ```text
//! facts      the facts of a run that is over: plain data
//! load       reads them from the files, the views and the sessions of Postgres
//! clock      Postgres's time of day, although a fault moved it
//! case       the facts and their indexes
//! rules      the promises: a pure function for each
//! tightness  no call is in doubt without a cause, and most calls succeed: otherwise a run proves nothing
//! sometimes  the events that a set of runs must contain
//! verdict    the result, for people
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
pub use load::{Ends, held, load};
pub use tightness::RECOVERY_MAX;
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
