//! How long the oldest of those that wait has been waiting, for a line that is served in order.
//!
//! Nothing is kept of each: when one has been served, all that came before it have been, so its own beginning is the
//! earliest that any of the waits can have begun. That may be earlier than the truth by what is served together.

use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

/// A line of those that wait.
#[derive(Debug)]
pub(super) struct Waits {
    opened: Instant,
    /// How many.
    count: AtomicUsize,
    /// No wait began before this, in milliseconds from `opened`.
    since_ms: AtomicU64,
}

/// One that waits, until it is dropped.
#[derive(Debug)]
pub(super) struct OpenWait<'a> {
    waits: &'a Waits,
    since_ms: u64,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            opened: Instant::now(),
            count: AtomicUsize::new(0),
            since_ms: AtomicU64::new(0),
        }
    }
}

impl Waits {
    /// One more waits from now on.
    pub(super) fn begin(&self) -> OpenWait<'_> {
        let since_ms = self.now_ms();
        // Before it is counted: it must never be taken for old.
        if self.count.load(Ordering::Acquire) == 0 {
            self.since_ms.fetch_max(since_ms, Ordering::AcqRel);
        }
        self.count.fetch_add(1, Ordering::AcqRel);
        OpenWait {
            waits: self,
            since_ms,
        }
    }

    /// How long the one that waits longest has waited; nothing where none waits.
    pub(super) fn longest(&self) -> Duration {
        if self.count.load(Ordering::Acquire) == 0 {
            return Duration::ZERO;
        }
        let since_ms = self.since_ms.load(Ordering::Acquire);
        Duration::from_millis(self.now_ms().saturating_sub(since_ms))
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Drop for OpenWait<'_> {
    fn drop(&mut self) {
        self.waits
            .since_ms
            .fetch_max(self.since_ms, Ordering::AcqRel);
        self.waits.count.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened_before(milliseconds: u64) -> Waits {
        let opened = Instant::now().checked_sub(Duration::from_millis(milliseconds));
        Waits {
            opened: opened.expect("the machine has run for a while"),
            ..Waits::default()
        }
    }

    #[test]
    fn an_idle_line_is_never_late_however_long_it_was_idle() {
        let waits = opened_before(60_000);
        assert_eq!(waits.longest(), Duration::ZERO);
        let first = waits.begin();
        assert!(waits.longest() < Duration::from_secs(1));
        drop(first);
        assert_eq!(waits.longest(), Duration::ZERO);
    }

    #[test]
    fn the_one_that_waits_longest_counts_and_is_forgotten_once_it_is_served() {
        let waits = opened_before(60_000);
        let old = OpenWait {
            since_ms: 10_000,
            waits: &waits,
        };
        waits.count.fetch_add(1, Ordering::AcqRel);
        waits.since_ms.store(10_000, Ordering::Release);
        let young = waits.begin();
        assert!(waits.longest() >= Duration::from_secs(49));
        drop(old);
        // Those that came after it may have come right after it.
        assert!(waits.longest() >= Duration::from_secs(49));
        let younger = waits.begin();
        drop(young);
        assert!(waits.longest() < Duration::from_secs(1));
        drop(younger);
    }
}
