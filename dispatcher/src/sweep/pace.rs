//! How often to repeat work that takes longer the more dead rows the ledger has.
//!
//! Vacuum frees no row that some transaction on the server may still see. While one holds a snapshot, every claim and every
//! ending leaves a dead row, and a statement that reads open calls in the order of their ids reads those too: a look that took
//! 2 ms takes seconds, and a vacuum that takes seconds frees nothing. So each of them gets a share of the time, whatever it
//! costs.

use std::time::Duration;

use tokio::time::Instant;

/// One tenth.
const SHARE: u32 = 10;
/// The longest pause. Soon after the snapshot is gone, the usual pace is back.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How long after its beginning work that took `took` may begin again.
pub(super) fn again_after(took: Duration) -> Duration {
    took.saturating_mul(SHARE).min(PAUSE_MAX.max(took))
}

/// Whether a vacuum freed too little: at least half of the dead rows are still there.
pub(super) const fn is_futile(dead_before: i64, dead_after: i64) -> bool {
    dead_after > dead_before / 2
}

/// When work may be done again; at first, at once.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Pace {
    next: Option<Instant>,
}

impl Pace {
    pub(super) fn is_due(self, now: Instant) -> bool {
        self.next.is_none_or(|next| next <= now)
    }

    /// The work began then and took so long.
    pub(super) fn took(&mut self, began: Instant, took: Duration) {
        self.next = Some(began + again_after(took));
    }

    /// There is a reason to do it now.
    pub(super) fn hurry(&mut self) {
        self.next = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_comes_seldom_and_never_later_than_half_a_minute() {
        for (took_ms, again_ms) in [
            (0, 0),
            (3, 30),
            (500, 5_000),
            (10_000, 30_000),
            (60_000, 60_000),
        ] {
            let again = again_after(Duration::from_millis(took_ms));
            assert_eq!(again, Duration::from_millis(again_ms), "{took_ms} ms");
        }
    }

    #[test]
    fn it_is_due_at_first_after_its_pause_and_when_there_is_a_reason() {
        let began = Instant::now();
        let mut pace = Pace::default();
        assert!(pace.is_due(began));
        pace.took(began, Duration::from_millis(200));
        assert!(!pace.is_due(began + Duration::from_millis(1_999)));
        assert!(pace.is_due(began + Duration::from_secs(2)));
        pace.hurry();
        assert!(pace.is_due(began));
    }

    #[test]
    fn a_vacuum_that_leaves_most_dead_rows_was_for_nothing() {
        assert!(is_futile(10_000, 10_400));
        assert!(is_futile(10_000, 5_001));
        assert!(!is_futile(10_000, 900));
        assert!(!is_futile(10, 5));
    }
}
