//! Which open calls a pass reads: all of them, or those that the pass before has found and what may have come since.
//!
//! While a snapshot is held, a look at all open calls reads every call that has ended since, too. Between two such looks, a pass
//! reads the old calls one by one, for no call is accepted under an old id, and all behind a floor. A call whose dispatcher's
//! clock is behind by more than [`MARGIN`] is found by the next look at all.

use std::{
    collections::VecDeque,
    time::{Duration, SystemTime},
};

use fleet::{
    ids::CallId,
    store::part::{Part, STEP_ROWS},
};

/// How old an id is at least when no call is accepted under it any more.
const MARGIN: Duration = Duration::from_secs(15);
/// Old calls remembered at most; with more of them, every pass reads all open calls.
const KNOWN_MAX: usize = 50_000;

/// What one statement reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stretch {
    Among(Vec<CallId>),
    Behind(Option<CallId>),
}

impl Stretch {
    pub(super) fn part(&self) -> Part<'_> {
        match self {
            Self::Among(calls) => Part::Among(calls),
            Self::Behind(cursor) => Part::Behind(*cursor),
        }
    }
}

/// Where a pass goes. The default leads over all open calls.
#[derive(Debug, Default)]
pub(super) struct Route {
    /// Behind which call all are read.
    floor: Option<CallId>,
    /// The open calls before it.
    known: Vec<CallId>,
}

impl Route {
    pub(super) fn stretches(&self) -> VecDeque<Stretch> {
        let step = usize::try_from(STEP_ROWS).unwrap_or(usize::MAX);
        let known = self.known.chunks(step);
        let known = known.map(|calls| Stretch::Among(calls.to_vec()));
        known.chain([Stretch::Behind(self.floor)]).collect()
    }

    pub(super) const fn is_over_all(&self) -> bool {
        self.floor.is_none()
    }
}

/// The next pass's route, as a pass that began then finds it.
#[derive(Debug)]
pub(super) struct Survey {
    floor: CallId,
    known: Vec<CallId>,
}

impl Survey {
    pub(super) fn begin(at: SystemTime) -> Self {
        let at = at.checked_sub(MARGIN).unwrap_or(SystemTime::UNIX_EPOCH);
        Self {
            floor: CallId::floor(at),
            known: Vec::new(),
        }
    }

    pub(super) fn see(&mut self, calls: &[CallId]) {
        let room = (KNOWN_MAX + 1).saturating_sub(self.known.len());
        let old = calls.iter().filter(|call| **call < self.floor);
        self.known.extend(old.take(room));
    }

    /// What it leads to. The pass has read all of its stretches.
    pub(super) fn end(self) -> Route {
        if self.known.len() > KNOWN_MAX {
            return Route::default();
        }
        Route {
            floor: Some(self.floor),
            known: self.known,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    fn made(seconds: u64) -> CallId {
        CallId::floor(at(seconds))
    }

    #[test]
    fn old_calls_are_read_one_by_one_and_what_may_have_come_since_behind_a_floor() {
        let mut survey = Survey::begin(at(100));
        survey.see(&[made(3), made(50), made(84), made(85), made(86), made(101)]);
        let route = survey.end();
        assert!(!route.is_over_all());
        let old = vec![made(3), made(50), made(84)];
        let expected = [Stretch::Among(old), Stretch::Behind(Some(made(85)))];
        assert_eq!(route.stretches(), expected);
    }

    #[test]
    fn the_first_route_and_one_with_too_many_old_calls_lead_over_all() {
        assert_eq!(Route::default().stretches(), [Stretch::Behind(None)]);
        let mut survey = Survey::begin(at(100));
        for _ in 0..=KNOWN_MAX / 1_000 {
            survey.see(&[made(1); 1_000]);
        }
        assert_eq!(survey.known.len(), KNOWN_MAX + 1);
        assert!(survey.end().is_over_all());
    }

    #[test]
    fn a_stretch_of_old_calls_is_one_step_long() {
        let mut survey = Survey::begin(at(100));
        survey.see(&[made(1); 4_500]);
        let stretches = survey.end().stretches();
        let lengths = stretches.iter().filter_map(|stretch| match stretch {
            Stretch::Among(calls) => Some(calls.len()),
            Stretch::Behind(_) => None,
        });
        assert_eq!(lengths.collect::<Vec<_>>(), [2_000, 2_000, 500]);
    }
}
