//! How long the oldest waiter of a line has waited, for a line that is served in order.
//!
//! Nothing is kept for each waiter. When one has been served, all that came before it have been too, so its beginning is a
//! bound for the beginning of every other wait. It may be too early by the waiters that are served together.

use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

/// The waiters of a line.
#[derive(Debug)]
pub(super) struct Waits {
    opened: Instant,
    /// Their number.
    count: AtomicUsize,
    /// No wait began before this, in milliseconds from `opened`.
    since_ms: AtomicU64,
}

/// A waiter, until it is dropped.
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
    /// Adds a waiter.
    pub(super) fn begin(&self) -> OpenWait<'_> {
        let since_ms = self.now_ms();
        // Before it is counted: it must never be taken for an old one.
        if self.count.load(Ordering::Acquire) == 0 {
            self.since_ms.fetch_max(since_ms, Ordering::AcqRel);
        }
        self.count.fetch_add(1, Ordering::AcqRel);
        OpenWait {
            waits: self,
            since_ms,
        }
    }

    /// How long the oldest waiter has waited; zero where there is none.
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
        // Waiters behind it may have come right after it.
        assert!(waits.longest() >= Duration::from_secs(49));
        let younger = waits.begin();
        drop(young);
        assert!(waits.longest() < Duration::from_secs(1));
        drop(younger);
    }
}
