//! Calls that will expire soon, ordered by time.

use std::collections::{BTreeSet, HashMap};

use fleet::ids::CallId;
use tokio::time::Instant;

/// The remembered calls. Losing them loses nothing: the walk over open calls finds them too, only later.
#[derive(Debug, Default)]
pub(super) struct Upcoming {
    by_time: BTreeSet<(Instant, CallId)>,
    known: HashMap<CallId, Instant>,
}

impl Upcoming {
    /// The most calls that are remembered, about ten megabytes. Beyond that, those that expire first are kept.
    const CALLS_MAX: usize = 100_000;

    /// Remembers when a call expires. Returns whether that is before all others.
    pub(super) fn remember(&mut self, call: CallId, due: Instant) -> bool {
        if self.known.contains_key(&call) {
            return false;
        }
        if self.known.len() >= Self::CALLS_MAX {
            match self.by_time.last() {
                Some((last, _)) if due < *last => {
                    let forgotten = self.by_time.pop_last();
                    forgotten.and_then(|(_, call)| self.known.remove(&call));
                }
                Some(_) | None => return false,
            }
        }
        self.known.insert(call, due);
        self.by_time.insert((due, call));
        self.next() == Some(due)
    }

    /// When the next one expires.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(due, _)| *due)
    }

    /// Takes the calls that have expired by now, at most `calls_max`.
    pub(super) fn take(&mut self, now: Instant, calls_max: usize) -> Vec<CallId> {
        let mut taken = Vec::new();
        while taken.len() < calls_max && self.next().is_some_and(|due| due <= now) {
            if let Some((_, call)) = self.by_time.pop_first() {
                self.known.remove(&call);
                taken.push(call);
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_over_is_taken_once_and_in_order() {
        let (mut upcoming, began) = (Upcoming::default(), Instant::now());
        let calls: Vec<CallId> = (0..4).map(|_| CallId::generate()).collect();
        let at = |seconds| began + Duration::from_secs(seconds);
        assert!(upcoming.remember(calls[0], at(3)));
        assert!(upcoming.remember(calls[1], at(1)));
        assert!(!upcoming.remember(calls[2], at(2)));
        assert!(!upcoming.remember(calls[1], at(0)), "it is known");
        assert_eq!(upcoming.next(), Some(at(1)));
        assert!(upcoming.take(began, 10).is_empty());
        assert_eq!(upcoming.take(at(3), 2), [calls[1], calls[2]]);
        assert_eq!(upcoming.take(at(3), 2), [calls[0]]);
        assert_eq!(upcoming.next(), None);
        assert!(upcoming.remember(calls[1], at(4)), "it may come again");
    }

    #[test]
    fn of_too_many_those_that_are_over_first_are_remembered() {
        let (mut upcoming, began) = (Upcoming::default(), Instant::now());
        for n in 0..Upcoming::CALLS_MAX {
            let due = began + Duration::from_millis(1_000 + n as u64);
            upcoming.remember(CallId::generate(), due);
        }
        let (late, early) = (CallId::generate(), CallId::generate());
        assert!(!upcoming.remember(late, began + Duration::from_secs(3_600)));
        assert!(upcoming.remember(early, began));
        assert_eq!(upcoming.known.len(), Upcoming::CALLS_MAX);
        assert_eq!(upcoming.by_time.len(), Upcoming::CALLS_MAX);
        let hour = began + Duration::from_secs(3_600);
        let taken = upcoming.take(hour, Upcoming::CALLS_MAX);
        assert_eq!(taken.first(), Some(&early));
        assert!(!taken.contains(&late));
    }
}
