//! Postgres's time of day in terms of the monotonic clock, although it was moved on the way.

use super::facts::Moment;

/// A move of Postgres's time of day.
///
/// It took effect at once, somewhere between two looks of the harness at the monotonic
/// clock, which may have been kept waiting on either side of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockMove {
    /// Until here it had not been moved.
    pub begun: Moment,
    /// From here on it had.
    pub done: Moment,
    /// By how many milliseconds.
    pub by: i64,
}

/// How Postgres's clock went.
#[derive(Debug, Clone, Default)]
pub(super) struct Clock {
    /// In the order of time.
    stretches: Vec<Stretch>,
}

/// A time in which it was not moved. It overlaps its neighbours by as long as each move took.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    from: Moment,
    until: Moment,
    /// By how many milliseconds it was ahead.
    ahead: i64,
}

impl Clock {
    /// From how far it is ahead at the end, and how it was moved on the way, in the order of time.
    pub(super) fn new(ahead: i64, moves: &[ClockMove]) -> Self {
        let moved: i64 = moves.iter().map(|one| one.by).sum();
        let mut stretches = vec![Stretch {
            from: Moment::MIN,
            until: Moment::MAX,
            ahead: ahead - moved,
        }];
        for one in moves {
            let last = stretches.len() - 1;
            stretches[last].until = one.done;
            stretches.push(Stretch {
                from: one.begun,
                until: Moment::MAX,
                ahead: stretches[last].ahead + one.by,
            });
        }
        Self { stretches }
    }

    /// By how many milliseconds it ran back at most: so far before and after such a move, one time that it showed is two moments.
    pub(super) fn ran_back(&self) -> i64 {
        let pairs = self.stretches.windows(2);
        let back = pairs.filter(|pair| pair[0].ahead > pair[1].ahead);
        // A move takes effect somewhere between two looks.
        let times = back.map(|pair| pair[0].ahead - pair[1].ahead + pair[0].until - pair[1].from);
        times.max().unwrap_or(0)
    }

    /// The moment at which it showed this; where it showed it twice, the first of them. What it never showed, because it
    /// was moved past it, is the moment of that move.
    pub(super) fn moment(&self, shown: i64) -> Moment {
        let found = self.stretches.iter().find_map(|stretch| {
            let moment = shown - stretch.ahead;
            (moment <= stretch.until).then(|| moment.max(stretch.from))
        });
        found.unwrap_or(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_once(at: Moment, by: i64) -> ClockMove {
        ClockMove {
            begun: at,
            done: at,
            by,
        }
    }

    #[test]
    fn a_clock_that_was_not_moved_is_ahead_by_the_same_all_the_time() {
        let clock = Clock::new(1_000, &[]);
        assert_eq!((clock.moment(1_000), clock.moment(5_000)), (0, 4_000));
    }

    #[test]
    fn a_clock_that_was_moved_is_followed() {
        // 500 ahead at the end; at 100 it was moved forward by 90, at 200 back by 10.
        let clock = Clock::new(500, &[at_once(100, 90), at_once(200, -10)]);
        assert_eq!(clock.moment(420 + 99), 99);
        assert_eq!(clock.moment(420 + 150), 100, "it never showed this");
        assert_eq!(clock.moment(510 + 101), 101);
        assert_eq!(clock.moment(510 + 195), 195, "it showed this twice");
        assert_eq!(clock.moment(500 + 300), 300);
        assert_eq!((clock.ran_back(), Clock::new(500, &[]).ran_back()), (10, 0));
    }

    #[test]
    fn what_was_shown_while_the_harness_was_kept_waiting_has_its_moment() {
        // It was moved by 90 s at some time between 1,000 and 1,250.
        let slow = ClockMove {
            begun: 1_000,
            done: 1_250,
            by: 90_000,
        };
        let clock = Clock::new(90_000, &[slow]);
        for moment in [1_000, 1_010, 1_249] {
            assert_eq!(clock.moment(moment), moment, "before it was moved");
            assert_eq!(clock.moment(90_000 + moment), moment, "after it");
        }
    }
}
