//! **How long may the next attempt take?** The timeout of a tool that leaves it to the fleet, by what its attempts took.
//!
//! Pure. A sample counts only if its attempt might have taken as long as the timeout is now: of one that was cut off earlier
//! nobody knows how long it would have taken, and a timeout that learned from its own cuts would shrink to nothing.
//!
//! | what is known | the next timeout |
//! |---|---|
//! | fewer than [`SAMPLES_MIN`] samples | as it is |
//! | more than one in a hundred took longer | half as long again, whatever the percentiles say |
//! | else | the multiple of the percentile, and never less than the 99th; at most half as long again, at least five sixths |
//!
//! A timeout that would be less than a tenth shorter stays, so that a percentile that trembles makes no news.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    call::words,
    manifest::{LearnedFrom, LearnedTimeout},
};

/// The fewest samples from which something is learned.
pub const SAMPLES_MIN: u64 = 200;

words! {
    /// Why a timeout was changed.
    LearnedWhy {
        /// More than one in a hundred took longer than it.
        CutOff = "cut_off",
        /// The percentile is higher.
        Slower = "slower",
        /// The percentile is lower.
        Faster = "faster",
    }
}

/// First attempts that took equally long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunTimes {
    /// The timeout that they were to have, in milliseconds, as [`rounded`] gives it.
    pub limit_ms: u64,
    /// How long they took, in milliseconds, as [`rounded`] gives it; for those that were cut off, their timeout.
    pub took_ms: u64,
    /// Whether they were cut off: they would have taken longer.
    pub cut_off: bool,
    /// How many there are.
    pub count: u64,
}

/// What the samples say of a timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lesson {
    /// Attempts that might have taken as long as the timeout is now.
    pub samples: u64,
    /// Those of them that took longer, or would have.
    pub longer: u64,
    /// What 95 and 99 of 100 took at most, in milliseconds; 0 without samples.
    pub p95_ms: u64,
    /// The same of 99.
    pub p99_ms: u64,
    /// The next timeout and why, where it is another one.
    pub next: Option<(Duration, LearnedWhy)>,
}

/// A run time in milliseconds to two digits, upwards: 1 to 100 as they are, then 110, 120 to 1000, 1100. So a day of run times is
/// at most some hundreds of different ones.
pub fn rounded(took: Duration) -> u64 {
    let millis = took.as_nanos().div_ceil(1_000_000);
    let millis = u64::try_from(millis).unwrap_or(u64::MAX / 2).max(1);
    let mut unit = 1;
    while millis.div_ceil(unit) > 100 {
        unit *= 10;
    }
    millis.div_ceil(unit) * unit
}

/// What these run times say of a timeout within these bounds.
pub fn lesson(
    bounds: &LearnedTimeout,
    now: Duration,
    times: impl IntoIterator<Item = RunTimes>,
) -> Lesson {
    let now_ms = rounded(now);
    let (mut by_ms, mut samples, mut longer) = (BTreeMap::<u64, u64>::new(), 0, 0);
    for times in times {
        if times.limit_ms < now_ms {
            continue;
        }
        samples += times.count;
        *by_ms.entry(times.took_ms).or_default() += times.count;
        if times.cut_off || times.took_ms > now_ms {
            longer += times.count;
        }
    }
    let percentile = |of_100: u64| {
        let rank = (samples * of_100).div_ceil(100);
        let mut seen = 0;
        let mut times = by_ms.iter();
        let reached = times.find(|(_, count)| {
            seen += **count;
            seen >= rank
        });
        reached.map_or(0, |(took_ms, _)| *took_ms)
    };
    let (p95_ms, p99_ms) = (percentile(95), percentile(99));
    let next = (samples >= SAMPLES_MIN).then_some(()).and_then(|()| {
        if longer * 100 > samples {
            return Some((now * 3 / 2, LearnedWhy::CutOff));
        }
        let multiple = match bounds.learned {
            LearnedFrom::P95x2 => p95_ms * 2,
            LearnedFrom::P99x3 => p99_ms * 3,
        };
        let wanted = bounds.within(Duration::from_millis(multiple.max(p99_ms)));
        if wanted > now {
            Some((wanted.min(now * 3 / 2), LearnedWhy::Slower))
        } else if wanted > now * 9 / 10 {
            None
        } else {
            Some((wanted.max(now * 5 / 6), LearnedWhy::Faster))
        }
    });
    let next = next.map(|(timeout, why)| {
        let timeout = bounds.within(Duration::from_millis(rounded(timeout)));
        (timeout, why)
    });
    Lesson {
        samples,
        longer,
        p95_ms,
        p99_ms,
        next: next.filter(|(timeout, _)| *timeout != now),
    }
}

#[cfg(test)]
mod tests;
