//! Moments on a clock that all processes of this machine share.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Milliseconds of the machine's monotonic clock.
pub type Moment = i64;

/// Now.
///
/// # Panics
///
/// The machine has no clock.
pub fn moment() -> Moment {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the machine has a clock");
    now.tv_sec() * 1_000 + now.tv_nsec() / 1_000_000
}

/// A duration in whole milliseconds.
pub fn as_ms(duration: Duration) -> Moment {
    Moment::try_from(duration.as_millis()).unwrap_or(Moment::MAX)
}
