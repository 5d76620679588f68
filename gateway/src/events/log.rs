//! The last events of a session, for all who follow it here. Pure, but that followers can wait for the next one.
//!
//! It keeps what a follower has still to get, at most [`LAG_MAX`] bytes of it, and a little more for those that come back: what is older is
//! in the stream. A follower that has been told everything once and then falls further behind is told nothing more; it comes back where it
//! was.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use super::{place::EventId, told::Told};

/// The most bytes that a follower may be behind.
const LAG_MAX: usize = 1024 * 1024;
/// The bytes that are kept though everybody was told.
const TAIL: usize = 64 * 1024;

/// The last events of one session.
#[derive(Debug)]
pub(super) struct SessionLog {
    held: Mutex<Held>,
    /// Changes with every event.
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Held {
    /// Every event of the session behind this place is in here, as soon as it comes.
    behind: EventId,
    /// The number of the first one that is in here; each has its own.
    first: u64,
    told: VecDeque<Arc<Told>>,
    bytes: usize,
    /// The number of the next one of each follower.
    followers: HashMap<u64, u64>,
    /// The next follower's.
    next_follower: u64,
}

/// Where a follower enters the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// As this follower.
    Here(u64),
    /// The log begins behind its place: what is in between is in the stream.
    Older,
    /// The log does not know its epoch yet, or not any more.
    Unknown,
}

/// What a follower gets.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Taken {
    /// The next one.
    Told(Arc<Told>),
    /// There is no further one yet.
    Nothing,
    /// It is too far behind.
    Lagging,
}

impl SessionLog {
    /// A log of what comes behind this place.
    pub(super) fn new(behind: EventId) -> Self {
        Self {
            held: Mutex::new(Held {
                behind,
                first: 0,
                told: VecDeque::new(),
                bytes: 0,
                followers: HashMap::new(),
                next_follower: 0,
            }),
            changed: watch::Sender::new(()),
        }
    }

    /// Adds what was told, which is behind everything before it.
    pub(super) fn push(&self, told: Told) {
        let mut held = self.held();
        held.bytes += told.size();
        held.told.push_back(Arc::new(told));
        held.drop_old();
        drop(held);
        self.changed.send_replace(());
    }

    /// The place behind everything that was told.
    pub(super) fn newest(&self) -> EventId {
        self.held().newest()
    }

    /// Has a follower enter that has been told everything up to this place.
    pub(super) fn enter(&self, place: EventId) -> Entry {
        let mut held = self.held();
        match held.number_behind(place) {
            Ok(number) => {
                let follower = held.next_follower;
                held.next_follower += 1;
                held.followers.insert(follower, number);
                Entry::Here(follower)
            }
            Err(entry) => entry,
        }
    }

    /// The next one for this follower.
    pub(super) fn take(&self, follower: u64) -> Taken {
        let mut held = self.held();
        let Some(number) = held.followers.get(&follower).copied() else {
            return Taken::Lagging;
        };
        let Some(at) = number.checked_sub(held.first) else {
            return Taken::Lagging;
        };
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let Some(told) = held.told.get(at).cloned() else {
            return Taken::Nothing;
        };
        held.followers.insert(follower, number + 1);
        Taken::Told(told)
    }

    /// A follower is gone.
    pub(super) fn leave(&self, follower: u64) {
        self.held().followers.remove(&follower);
    }

    /// The oldest place from which on the log has everything.
    pub(super) fn oldest(&self) -> EventId {
        self.held().behind
    }

    /// Changes with every event that comes from now on.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        let mut changes = self.changed.subscribe();
        changes.mark_unchanged();
        changes
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn newest(&self) -> EventId {
        self.told.back().map_or(self.behind, |told| told.place())
    }

    /// The number of the first one that is behind a place.
    fn number_behind(&self, place: EventId) -> Result<u64, Entry> {
        let is_told = |told: &Arc<Told>| {
            let at = told.place();
            at.epoch == place.epoch && at.sequence <= place.sequence
        };
        // The last one that its follower was told: all before it were, too.
        let told = self.told.iter().rposition(is_told);
        if let Some(told) = told {
            return Ok(self.first + self.number(told) + 1);
        }
        if self.behind.epoch != place.epoch {
            return Err(Entry::Unknown);
        }
        if self.behind.sequence > place.sequence {
            return Err(Entry::Older);
        }
        Ok(self.first)
    }

    fn number(&self, at: usize) -> u64 {
        u64::try_from(at).expect("a place in memory fits")
    }

    fn drop_old(&mut self) {
        // Those that are lagging already get nothing more.
        let reading = self.followers.values().copied();
        let slowest = reading.filter(|number| *number >= self.first).min();
        while self.told.len() > 1 {
            let is_wanted = slowest.is_some_and(|number| number <= self.first);
            let most = if is_wanted { LAG_MAX } else { TAIL };
            if self.bytes <= most {
                return;
            }
            if let Some(oldest) = self.told.pop_front() {
                self.bytes -= oldest.size();
                self.behind = oldest.place();
                self.first += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use time::OffsetDateTime;

    use super::*;
    use crate::events::told::{EventGap, SessionEvent};

    const fn id(epoch: u64, sequence: u64) -> EventId {
        EventId { epoch, sequence }
    }

    fn event(sequence: u64, bytes: usize) -> Told {
        Told::Event(SessionEvent {
            id: id(5, sequence),
            at: OffsetDateTime::UNIX_EPOCH,
            kind: "output".to_owned(),
            payload: Bytes::from(vec![b'x'; bytes]),
        })
    }

    fn gap(behind: EventId, up_to: EventId) -> Told {
        Told::Gap(EventGap {
            behind: Some(behind),
            why: None,
            up_to,
            calls: None,
        })
    }

    fn enter(log: &SessionLog, place: EventId) -> u64 {
        match log.enter(place) {
            Entry::Here(follower) => follower,
            other => panic!("{other:?}"),
        }
    }

    /// The sequences that a follower gets now.
    fn all(log: &SessionLog, follower: u64) -> Vec<u64> {
        let next = || match log.take(follower) {
            Taken::Told(told) => Some(told.place().sequence),
            Taken::Nothing => None,
            Taken::Lagging => panic!("it is lagging"),
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn each_follower_gets_everything_behind_its_place_once() {
        let log = SessionLog::new(id(5, 10));
        let early = enter(&log, id(5, 10));
        let (older, other) = (log.enter(id(5, 9)), log.enter(id(6, 10)));
        assert_eq!((older, other), (Entry::Older, Entry::Unknown));
        for sequence in [12, 15, 20] {
            log.push(event(sequence, 10));
        }
        let late = enter(&log, id(5, 13));
        assert_eq!(all(&log, late), [15, 20]);
        assert_eq!(all(&log, early), [12, 15, 20]);
        let last = enter(&log, id(5, 25));
        log.push(event(26, 10));
        assert_eq!((all(&log, early), all(&log, last)), (vec![26], vec![26]));
        assert_eq!(log.newest(), id(5, 26));
    }

    #[test]
    fn who_has_been_told_of_a_new_stream_goes_on_in_it_and_others_hear_of_the_gap() {
        let log = SessionLog::new(id(5, 10));
        let old = enter(&log, id(5, 10));
        log.push(gap(id(5, 10), id(6, 3)));
        let new = enter(&log, id(6, 4));
        log.push(Told::Event(SessionEvent {
            id: id(6, 5),
            at: OffsetDateTime::UNIX_EPOCH,
            kind: String::new(),
            payload: Bytes::new(),
        }));
        assert_eq!((all(&log, old), all(&log, new)), (vec![3, 5], vec![5]));
        assert_eq!(log.enter(id(7, 1)), Entry::Unknown);
    }

    #[test]
    fn what_everybody_was_told_goes_soon_and_what_somebody_lacks_at_a_megabyte() {
        let log = SessionLog::new(id(5, 0));
        let (slow, quick) = (enter(&log, id(5, 0)), enter(&log, id(5, 0)));
        for sequence in 1..=10 {
            log.push(event(sequence, 100_000));
            assert_eq!(all(&log, quick), [sequence]);
        }
        assert_eq!(log.oldest(), id(5, 0));
        log.push(event(11, 100_000));
        assert_eq!(log.take(slow), Taken::Lagging);
        assert_eq!(log.enter(id(5, 0)), Entry::Older);
        log.leave(slow);
        assert_eq!(all(&log, quick), [11]);
        log.push(event(12, 100_000));
        // An event is never dropped before it could be taken.
        assert_eq!(log.oldest(), id(5, 11));
        assert_eq!(all(&log, quick), [12]);
        log.push(event(13, 2_000_000));
        assert_eq!(all(&log, quick), [13]);
    }
}
