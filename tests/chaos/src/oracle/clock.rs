//! Postgres's time of day in terms of the monotonic clock, although it was moved on the way.

use super::facts::Moment;

/// How Postgres's clock went.
#[derive(Debug, Clone, Default)]
pub(super) struct Clock {
    /// From when on, and by how many milliseconds it was ahead then; in the order of time, the first from the beginning.
    pieces: Vec<(Moment, i64)>,
}

impl Clock {
    /// From how far it is ahead at the end, and when it was moved on the way by how much, in the order of time.
    pub(super) fn new(ahead: i64, moves: &[(Moment, i64)]) -> Self {
        let moved: i64 = moves.iter().map(|(_, by)| by).sum();
        let mut pieces = vec![(Moment::MIN, ahead - moved)];
        for (at, by) in moves {
            let (_, before) = pieces[pieces.len() - 1];
            pieces.push((*at, before + by));
        }
        Self { pieces }
    }

    /// The moment at which it showed this; where it showed it twice, the first of them. What it never showed, because it
    /// was moved past it, is the moment of that move.
    pub(super) fn moment(&self, shown: i64) -> Moment {
        let ends = self.pieces.iter().skip(1).map(|(at, _)| *at);
        let mut pieces = self.pieces.iter().zip(ends.chain([Moment::MAX]));
        let found = pieces.find_map(|((from, ahead), until)| {
            let moment = shown - ahead;
            (moment < until).then(|| moment.max(*from))
        });
        found.unwrap_or(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_not_moved_is_ahead_by_the_same_all_the_time() {
        let clock = Clock::new(1_000, &[]);
        assert_eq!((clock.moment(1_000), clock.moment(5_000)), (0, 4_000));
    }

    #[test]
    fn a_clock_that_was_moved_is_followed() {
        // 500 ahead at the end; at 100 it was moved forward by 90, at 200 back by 10.
        let clock = Clock::new(500, &[(100, 90), (200, -10)]);
        assert_eq!(clock.moment(420 + 99), 99);
        assert_eq!(clock.moment(420 + 150), 100, "it never showed this");
        assert_eq!(clock.moment(510 + 101), 101);
        assert_eq!(clock.moment(510 + 195), 195, "it showed this twice");
        assert_eq!(clock.moment(500 + 300), 300);
    }
}
