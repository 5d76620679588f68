//! **Where may a process stop?** A name for every gap between two steps.
//!
//! The code reports at each of them that it got there. In a production build that is nothing at all: no code, no variable.
//! Built with the feature `testing`, a process that was armed with `TOOLFLEET_CHECKPOINT` ends at the named gap as if its
//! machine had lost power. `tests/tests/scenarios/crash_points.rs` does that for each of [`Checkpoint::ALL`], so a new variant
//! is tested without a line more; the table in `ARCHITECTURE.md` says for each what is durable and what continues.

mod point;

#[cfg(feature = "testing")]
mod armed;

#[cfg(feature = "testing")]
pub use self::armed::{VARIABLE, reached, under_way};
pub use self::point::{Checkpoint, Role};

/// Reports that this process got here.
#[cfg(not(feature = "testing"))]
pub const fn reached(_point: Checkpoint) {}

/// Sends a statement, and reports that it is under way.
#[cfg(not(feature = "testing"))]
pub const fn under_way<F: Future>(_point: Option<Checkpoint>, sending: F) -> F {
    sending
}
