//! Which open calls a pass reads: all of them, or those that the pass before has found and what may have come since.
//!
//! While a snapshot is held, a look at all open calls reads every call that has ended since, too. Between two such looks, a pass
//! reads the old calls one by one, for no call is accepted under an old id, and all behind a floor. A call whose dispatcher's
//! clock is behind by more than [`MARGIN`] is found by the next look at all.

use std::{collections::VecDeque, time::Duration};

use fleet::{
    ids::CallId,
    store::look::{CallsPart, STEP_ROWS},
};
use tokio::time::Instant;

use super::pace::Pace;

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
    pub(super) fn part(&self) -> CallsPart<'_> {
        match self {
            Self::Among(calls) => CallsPart::Among(calls),
            Self::Behind(cursor) => CallsPart::Behind(*cursor),
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

/// The next pass's route, as a pass finds it that began when this id was made.
#[derive(Debug)]
struct Survey {
    floor: CallId,
    known: Vec<CallId>,
}

impl Survey {
    fn begin(newest: CallId) -> Self {
        Self {
            floor: newest.before(MARGIN),
            known: Vec::new(),
        }
    }

    fn see(&mut self, calls: &[CallId]) {
        let room = (KNOWN_MAX + 1).saturating_sub(self.known.len());
        let old = calls.iter().filter(|call| **call < self.floor);
        self.known.extend(old.take(room));
    }

    /// What it leads to. The pass has read all of its stretches.
    fn end(self) -> Route {
        if self.known.len() > KNOWN_MAX {
            return Route::default();
        }
        Route {
            floor: Some(self.floor),
            known: self.known,
        }
    }
}

/// The stretches of one pass after the other. While a look at all open calls is quick, each pass is one.
#[derive(Debug, Default)]
pub(super) struct Tour {
    ahead: VecDeque<Stretch>,
    /// What this pass has found.
    survey: Option<Survey>,
    /// What the pass before has found.
    route: Route,
    is_over_all: bool,
    /// When a pass may be over all again.
    over_all: Pace,
}

impl Tour {
    /// What the last pass has found.
    pub(super) const fn route(&self) -> &Route {
        &self.route
    }

    pub(super) fn is_over(&self) -> bool {
        self.ahead.is_empty()
    }

    /// Begins a pass; all calls that are accepted from now on have ids about as new as this one.
    pub(super) fn set_out(&mut self, now: Instant, newest: CallId) {
        self.survey = Some(Survey::begin(newest));
        self.is_over_all = self.route.is_over_all() || self.over_all.is_due(now);
        self.ahead = if self.is_over_all {
            Route::default().stretches()
        } else {
            self.route.stretches()
        };
    }

    pub(super) fn next(&mut self) -> Option<Stretch> {
        self.ahead.pop_front()
    }

    /// What a stretch has, and where it goes on.
    pub(super) fn read(&mut self, seen: &[CallId], cursor: Option<CallId>) {
        if let Some(survey) = &mut self.survey {
            survey.see(seen);
        }
        if cursor.is_some() {
            self.again(Stretch::Behind(cursor));
        }
    }

    pub(super) fn again(&mut self, stretch: Stretch) {
        self.ahead.push_front(stretch);
    }

    /// The server gave up on it. A pass over all reads what is known instead; one that knows nothing yet, what comes from now on.
    pub(super) fn took_too_long(
        &mut self,
        stretch: Stretch,
        took: Duration,
        (now, newest): (Instant, CallId),
    ) {
        if !self.is_over_all {
            self.again(stretch);
            return;
        }
        self.over_all.took(now, took);
        if self.route.is_over_all() {
            self.route = Survey::begin(newest).end();
        }
        self.set_out(now, newest);
    }

    /// Ends a pass whose looks took so long.
    pub(super) fn end(&mut self, now: Instant, looked: Duration) {
        if self.is_over_all {
            self.over_all.took(now, looked);
        }
        if let Some(survey) = self.survey.take() {
            self.route = survey.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(seconds: u64) -> CallId {
        let last: CallId = "01960000-0000-7000-8000-000000000000".parse().unwrap();
        last.before(Duration::from_secs(1_000 - seconds))
    }

    #[test]
    fn old_calls_are_read_one_by_one_and_what_may_have_come_since_behind_a_floor() {
        let mut survey = Survey::begin(made(100));
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
        let mut survey = Survey::begin(made(100));
        for _ in 0..=KNOWN_MAX / 1_000 {
            survey.see(&[made(1); 1_000]);
        }
        assert_eq!(survey.known.len(), KNOWN_MAX + 1);
        assert!(survey.end().is_over_all());
    }

    #[test]
    fn a_stretch_of_old_calls_is_one_step_long() {
        let mut survey = Survey::begin(made(100));
        survey.see(&[made(1); 4_500]);
        let stretches = survey.end().stretches();
        let lengths = stretches.iter().filter_map(|stretch| match stretch {
            Stretch::Among(calls) => Some(calls.len()),
            Stretch::Behind(_) => None,
        });
        assert_eq!(lengths.collect::<Vec<_>>(), [2_000, 2_000, 500]);
    }

    fn drained(tour: &mut Tour) -> Vec<Stretch> {
        std::iter::from_fn(|| tour.next()).collect()
    }

    #[test]
    fn while_a_look_at_all_is_quick_each_pass_is_one() {
        let (mut tour, began) = (Tour::default(), Instant::now());
        for pass in 0..3 {
            tour.set_out(began + Duration::from_secs(3 * pass), made(3 * pass));
            assert_eq!(drained(&mut tour), [Stretch::Behind(None)]);
            tour.read(&[made(1)], None);
            tour.end(
                began + Duration::from_secs(3 * pass),
                Duration::from_millis(100),
            );
        }
    }

    #[test]
    fn between_slow_looks_at_all_passes_read_what_the_last_one_has_found() {
        let (mut tour, began) = (Tour::default(), Instant::now());
        let seconds = Duration::from_secs;
        tour.set_out(began, made(100));
        assert_eq!(tour.next(), Some(Stretch::Behind(None)));
        tour.read(&[made(1), made(50)], Some(made(50)));
        assert_eq!(tour.next(), Some(Stretch::Behind(Some(made(50)))));
        tour.read(&[made(99)], None);
        assert!(tour.is_over());
        tour.end(began, seconds(2));

        tour.set_out(began + seconds(39), made(139));
        let known = |calls: &[CallId]| Stretch::Among(calls.to_vec());
        let expected = [known(&[made(1), made(50)]), Stretch::Behind(Some(made(85)))];
        assert_eq!(drained(&mut tour), expected);
        // One has ended, another has become old.
        tour.read(&[made(50)], None);
        tour.read(&[made(99), made(130)], None);
        tour.end(began + seconds(39), seconds(0));
        let expected = [
            known(&[made(50), made(99)]),
            Stretch::Behind(Some(made(124))),
        ];
        assert_eq!(tour.route().stretches(), expected);

        tour.set_out(began + seconds(40), made(140));
        assert_eq!(drained(&mut tour), [Stretch::Behind(None)]);
    }

    #[test]
    fn a_look_at_all_that_takes_too_long_makes_way_for_what_is_known() {
        let (mut tour, began) = (Tour::default(), Instant::now());
        tour.set_out(began, made(100));
        let stretch = tour.next().unwrap();
        tour.took_too_long(stretch, Duration::from_secs(5), (began, made(100)));
        // One that has just started knows what comes from now on.
        let recent = Stretch::Behind(Some(made(85)));
        assert_eq!(tour.next().as_ref(), Some(&recent));
        assert!(tour.is_over());
        // Of a pass over what is known, the stretch is read again.
        tour.is_over_all = false;
        tour.took_too_long(recent.clone(), Duration::from_secs(5), (began, made(100)));
        assert_eq!(drained(&mut tour), [recent]);
    }
}
