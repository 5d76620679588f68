//! When calls of a tool stop being sent to a target that fails, and how it is found out that the target works again.

use std::{fmt, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::{duration, problem::Problems};
use crate::call::words;

/// A circuit breaker: after too many failures within a time nothing is sent for a while, then a few calls probe the target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerSpec {
    /// Attempts of this time count, 1 s to 10 m.
    #[serde(with = "duration")]
    pub window: Duration,
    /// With fewer attempts nothing is decided, 1 to 100,000.
    pub calls: u32,
    /// The share of failures at which it opens.
    pub failures: Percent,
    /// Attempts that take too long, if they count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow: Option<SlowSpec>,
    /// How long it is open at first, at least 100 ms and at most `open_max`.
    #[serde(with = "duration")]
    pub open: Duration,
    /// How long it is open at most; the time doubles with each probe that fails. At most an hour.
    #[serde(with = "duration")]
    pub open_max: Duration,
    /// How many calls probe the target after that, and must all succeed, 1 to 10.
    pub probes: u32,
}

impl BreakerSpec {
    const WINDOW_MIN: Duration = Duration::from_secs(1);
    /// The longest window: workers remember a count for each second of it.
    pub const WINDOW_MAX: Duration = Duration::from_secs(600);
    const OPEN_MIN: Duration = Duration::from_millis(100);
    const OPEN_MAX: Duration = Duration::from_secs(3600);
}

impl Default for BreakerSpec {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(10),
            calls: 20,
            failures: Percent(50),
            slow: None,
            open: Duration::from_secs(5),
            open_max: Duration::from_secs(60),
            probes: 1,
        }
    }
}

/// Which attempts are too slow, and how many of them are too many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowSpec {
    /// An attempt that takes longer is slow; less than the timeout.
    #[serde(with = "duration")]
    pub after: Duration,
    /// The share of slow attempts at which it opens.
    #[serde(default = "SlowSpec::default_share")]
    pub share: Percent,
}

impl SlowSpec {
    const fn default_share() -> Percent {
        Percent(50)
    }
}

words! {
    /// What becomes of queued calls while the breaker is open. A call whose effect is unknown waits, whatever it says.
    WhenOpen {
        /// They end with `circuit_open`.
        Fail = "fail",
        /// They wait until the target is tried again.
        Wait = "wait",
    }
}

/// A share in whole percent, 1 to 100; written `50%`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(u8);

impl Percent {
    /// This share; `None`: outside 1 to 100.
    pub const fn new(percent: u8) -> Option<Self> {
        if percent >= 1 && percent <= 100 {
            Some(Self(percent))
        } else {
            None
        }
    }

    /// Whole percent.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let percent = text
            .strip_suffix('%')
            .and_then(|digits| digits.parse().ok());
        percent
            .and_then(Self::new)
            .ok_or_else(|| D::Error::custom("a share is 1% to 100%"))
    }
}

/// Whether the times of a breaker fit together and to the timeout of an attempt, and whether `when_open` has a breaker.
pub(super) fn check(
    breaker: Option<&BreakerSpec>,
    when_open: Option<WhenOpen>,
    timeout: Duration,
    problems: &mut Problems,
) {
    let Some(breaker) = breaker else {
        if when_open.is_some() {
            problems.add(
                "/when_open",
                "there is no breaker that could be open; write breaker: {} beside it, or leave it out",
            );
        }
        return;
    };
    if !(BreakerSpec::WINDOW_MIN..=BreakerSpec::WINDOW_MAX).contains(&breaker.window) {
        problems.add("/breaker/window", "write at least 1s and at most 10m");
    }
    if breaker.open < BreakerSpec::OPEN_MIN {
        problems.add("/breaker/open", "write at least 100ms");
    }
    if breaker.open > breaker.open_max {
        problems.add(
            "/breaker/open",
            "the first time is longer than the longest; write open <= open_max",
        );
    }
    if breaker.open_max > BreakerSpec::OPEN_MAX {
        problems.add(
            "/breaker/open_max",
            "a target that works again is found out too late; write at most 1h",
        );
    }
    if let Some(slow) = &breaker.slow
        && (slow.after.is_zero() || slow.after >= timeout)
    {
        problems.add(
            "/breaker/slow/after",
            "no attempt takes longer than the timeout, and every one longer than 0; write less than the timeout",
        );
    }
}
