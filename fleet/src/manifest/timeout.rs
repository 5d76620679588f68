//! How long an attempt may take: as it is written, or as the fleet learns it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{duration, duration::format_duration, problem::Problems};
use crate::call::{Effect, words};

/// How long an attempt may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Timeout {
    /// So long.
    Fixed(#[serde(with = "duration")] Duration),
    /// As long as the fleet has learned.
    Learned(LearnedTimeout),
}

words! {
    /// What a learned timeout is made of: a percentile of the run times of a day.
    LearnedFrom {
        /// Twice the time that 95 of 100 attempts take at most.
        P95x2 = "p95x2",
        /// Three times what 99 of 100 take at most.
        P99x3 = "p99x3",
    }
}

/// The bounds within which the fleet learns a timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearnedTimeout {
    /// What it is made of.
    pub learned: LearnedFrom,
    /// The shortest timeout.
    #[serde(default = "LearnedTimeout::default_floor", with = "duration")]
    pub floor: Duration,
    /// The longest timeout.
    #[serde(default = "LearnedTimeout::default_ceiling", with = "duration")]
    pub ceiling: Duration,
    /// The timeout while too little is known.
    #[serde(default = "LearnedTimeout::default_initial", with = "duration")]
    pub initial: Duration,
}

impl LearnedTimeout {
    const fn default_floor() -> Duration {
        Duration::from_secs(1)
    }

    const fn default_ceiling() -> Duration {
        Duration::from_secs(30)
    }

    const fn default_initial() -> Duration {
        Duration::from_secs(5)
    }

    /// This timeout within the bounds.
    pub fn within(&self, timeout: Duration) -> Duration {
        // Not `clamp`: it panics where a manifest of another release has them the wrong way round.
        timeout.min(self.ceiling).max(self.floor)
    }
}

impl Timeout {
    /// The longest time that an attempt may be given.
    pub const fn longest(&self) -> Duration {
        match self {
            Self::Fixed(timeout) => *timeout,
            Self::Learned(bounds) => bounds.ceiling,
        }
    }

    /// The shortest time that an attempt may be given.
    pub const fn shortest(&self) -> Duration {
        match self {
            Self::Fixed(timeout) => *timeout,
            Self::Learned(bounds) => bounds.floor,
        }
    }

    /// The bounds, where it is learned.
    pub const fn learned(&self) -> Option<&LearnedTimeout> {
        match self {
            Self::Fixed(_) => None,
            Self::Learned(bounds) => Some(bounds),
        }
    }

    /// Whether it fits the effect of the tool and the deadline of its calls.
    pub(super) fn check(&self, effect: Effect, deadline: Duration, problems: &mut Problems) {
        let field = match self {
            Self::Fixed(_) => "/timeout",
            Self::Learned(bounds) => {
                bounds.check(effect, problems);
                "/timeout/ceiling"
            }
        };
        if self.shortest().is_zero() {
            let path = self.learned().map_or("/timeout", |_| "/timeout/floor");
            problems.add(path, "an attempt needs some time; write 1ms or more");
        }
        if self.longest() > deadline {
            let deadline = format_duration(deadline);
            problems.add(
                field,
                format!("an attempt cannot take longer than the call; the deadline is {deadline}: write at most that, or a later deadline"),
            );
        }
    }
}

impl LearnedTimeout {
    fn check(&self, effect: Effect, problems: &mut Problems) {
        if effect == Effect::Once {
            problems.add(
                "/timeout/learned",
                "a once call that is cut off is in doubt, so its timeout must not be a guess; write a fixed one, such as 30s",
            );
        }
        if self.floor > self.ceiling {
            problems.add(
                "/timeout/floor",
                "the shortest timeout is longer than the longest; write floor <= ceiling",
            );
        } else if self.within(self.initial) != self.initial {
            let (floor, ceiling) = (format_duration(self.floor), format_duration(self.ceiling));
            problems.add(
                "/timeout/initial",
                format!(
                    "it is the timeout until one is learned; write {floor} to {ceiling}, or other bounds"
                ),
            );
        }
    }
}
