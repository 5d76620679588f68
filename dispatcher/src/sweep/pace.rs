//! How often to repeat work that takes longer the more dead rows the ledger has.
//!
//! Vacuum frees no row that some transaction on the server may still see. While one holds a snapshot, every claim and every
//! ending leaves a dead row. A look at all open calls reads those, too, and takes seconds instead of milliseconds: it gets a
//! share of the time, and looks at certain calls come between. A vacuum that freed nothing frees nothing until the oldest
//! snapshot is another one.

use std::time::Duration;

use tokio::time::Instant;

/// Of twenty seconds, one.
const SHARE: u32 = 20;
/// The longest pause between two looks.
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// How long a snapshot is held before autovacuum rests: a few of its passes for nothing cost little. A replica that reports its
/// queries moves the horizon every ten seconds.
const HELD_MIN: Duration = Duration::from_secs(30);
/// The longest pause of a vacuum for which there is a reason: soon after a snapshot is gone, all is as before.
const REST_MAX: Duration = Duration::from_secs(10);

/// How long after its beginning work that took `took` may begin again.
pub(super) fn again_after(took: Duration) -> Duration {
    took.saturating_mul(SHARE).min(PAUSE_MAX.max(took))
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

/// Whether a vacuum was for nothing: at least half of the dead rows are still there.
pub(super) const fn is_futile(dead_before: i64, dead_after: i64) -> bool {
    dead_after > dead_before / 2
}

/// The rest of a table after a vacuum that was for nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rest {
    until: Instant,
    /// The oldest transaction that any snapshot could see at work when it began.
    horizon: Option<u32>,
}

impl Rest {
    /// The vacuum began then and took so long.
    pub(super) fn after(began: Instant, took: Duration, horizon: Option<u32>) -> Self {
        let pause = took.saturating_mul(SHARE).min(REST_MAX);
        Self {
            until: began + pause,
            horizon,
        }
    }

    /// Whether another vacuum may free more; without any snapshot, it may.
    pub(super) fn is_over(self, now: Instant, horizon: Option<u32>) -> bool {
        self.until <= now && (horizon.is_none() || horizon != self.horizon)
    }
}

/// Whether the oldest snapshot stays the same, seen by looks from time to time.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Hold {
    /// The last horizon, and when it was first seen.
    last: Option<(Option<u32>, Instant)>,
}

impl Hold {
    /// Whether one is held; `None`: not known yet. A horizon never goes back, so one that is seen twice was there all the time.
    pub(super) fn seen(&mut self, horizon: Option<u32>, now: Instant) -> Option<bool> {
        match self.last {
            Some((last, since)) if last == horizon => {
                let held = horizon.is_some();
                (!held || since + HELD_MIN <= now).then_some(held)
            }
            last => {
                self.last = Some((horizon, now));
                // What was before a program's first look is not known.
                last.map(|_| false)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_comes_seldom_and_not_later_than_five_minutes() {
        for (took_ms, again_ms) in [
            (0, 0),
            (3, 60),
            (500, 10_000),
            (10_000, 200_000),
            (60_000, 300_000),
            (400_000, 400_000),
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
        pace.took(began, Duration::from_millis(100));
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

    #[test]
    fn a_snapshot_is_held_when_it_has_stayed_the_same_for_half_a_minute() {
        let (mut hold, now) = (Hold::default(), Instant::now());
        let mut seen = |horizon, at| hold.seen(horizon, now + Duration::from_secs(at));
        assert_eq!(
            seen(Some(7), 0),
            None,
            "it may be old, or the first look of a program"
        );
        assert_eq!(seen(Some(7), 29), None);
        assert_eq!(seen(Some(7), 30), Some(true));
        assert_eq!(seen(Some(8), 31), Some(false), "another one");
        assert_eq!(seen(Some(8), 60), None);
        assert_eq!(seen(Some(8), 61), Some(true));
        assert_eq!(seen(None, 62), Some(false));
        assert_eq!(seen(None, 63), Some(false));
        assert_eq!(seen(Some(8), 64), Some(false));
    }

    #[test]
    fn a_table_rests_as_long_as_the_same_snapshot_is_held() {
        let began = Instant::now();
        let seconds = Duration::from_secs;
        let rest = Rest::after(began, Duration::from_millis(200), Some(7));
        assert!(!rest.is_over(began + seconds(3600), Some(7)));
        assert!(!rest.is_over(began + seconds(3), Some(8)));
        assert!(rest.is_over(began + seconds(4), Some(8)));
        assert!(rest.is_over(began + seconds(4), None));
        // However long it took.
        let rest = Rest::after(began, seconds(60), Some(7));
        assert!(rest.is_over(began + REST_MAX, Some(8)));
        // What it could not free without a snapshot, a short one kept.
        let rest = Rest::after(began, seconds(0), None);
        assert!(rest.is_over(began, Some(8)) && rest.is_over(began, None));
    }
}
