//! What one dispatcher believes about one tenant's open calls: the ledger's last count, and what it has added since.
//!
//! It may believe in too many until the next look, for calls end elsewhere. It believes in too few only by the calls that other
//! dispatchers have accepted since the look.

use std::{collections::HashSet, time::Duration};

use fleet::{ids::CallId, store::open_counts::Open};
use tokio::time::Instant;

/// How long a tenant that got no room by a look is not looked at again.
pub(super) const SHUT_FOR: Duration = Duration::from_millis(50);
/// When a call comes, a count that is older than this is read again soon.
pub(super) const STALE_AFTER: Duration = Duration::from_secs(1);

/// Why a tenant may have no further call now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoQuota {
    /// It has as many open calls as its quota allows: this many.
    Full(u64),
    /// It seems to, and the ledger cannot be read.
    Unreadable,
}

/// What is believed of one tenant.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Its open calls, by the ledger's last count.
    open: i64,
    /// How many calls this dispatcher has seen committed, ever.
    committed: u64,
    /// How many of those are in the ledger's last count.
    in_open: u64,
    /// Calls that were let through and of which nothing is known yet.
    on_the_way: HashSet<CallId>,
    looked: Option<Instant>,
    /// Why the last look gave no room, and until when no request looks again.
    shut: Option<(NoQuota, Instant)>,
}

/// The beginning of a look at the ledger.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    at: Instant,
    committed: u64,
}

impl Tally {
    /// Lets a call through, if the quota has a place for it.
    pub(crate) fn take(&mut self, call: CallId, quota: u64) -> bool {
        let has_room = self.believed() < quota;
        if has_room {
            self.on_the_way.insert(call);
        }
        has_room
    }

    /// The call is in the ledger.
    pub(crate) fn committed(&mut self, call: CallId) {
        // The ledger may have counted it already.
        if self.on_the_way.remove(&call) {
            self.committed += 1;
        }
    }

    /// The call is not in the ledger; or that is unknown, and a look will count it.
    pub(crate) fn given_up(&mut self, call: CallId) {
        self.on_the_way.remove(&call);
    }

    /// Begins a look, which will see all that is known now.
    pub(crate) fn begin(&self, now: Instant) -> Look {
        Look {
            at: now,
            committed: self.committed,
        }
    }

    /// The calls under way; a look can say whether it has counted them.
    pub(super) fn asked(&self, calls_max: usize) -> Vec<CallId> {
        self.on_the_way.iter().copied().take(calls_max).collect()
    }

    /// Adds the result of a look. If a later look has reported already, the result is ignored.
    pub(crate) fn seen(&mut self, look: Look, found: &Open) {
        if self.looked.is_some_and(|looked| looked > look.at) {
            return;
        }
        self.looked = Some(look.at);
        self.open = found.calls;
        self.in_open = look.committed;
        for call in &found.there {
            if !self.on_the_way.remove(call) {
                // Reported while the look was under way, and counted by it.
                self.in_open = self.in_open.saturating_add(1).min(self.committed);
            }
        }
    }

    /// A look has just given no room. Requests that come soon after it get the same answer.
    pub(super) fn shut(&mut self, why: NoQuota, now: Instant) {
        self.shut = Some((why, now + SHUT_FOR));
    }

    /// Why the last look gave no room, while another would come too soon.
    pub(super) fn is_shut(&self, now: Instant) -> Option<NoQuota> {
        let (why, until) = self.shut?;
        (now < until).then_some(why)
    }

    /// Whether something was added since the last look.
    pub(crate) fn has_moved(&self) -> bool {
        self.committed > self.in_open || self.looked.is_none() && !self.on_the_way.is_empty()
    }

    /// Whether too little is known to wait for the next regular look.
    pub(super) fn is_stale(&self, now: Instant) -> bool {
        self.looked
            .is_none_or(|looked| now.duration_since(looked) > STALE_AFTER)
    }

    /// When it was looked at last; `None`, never, sorts first.
    pub(crate) fn looked(&self) -> Option<Instant> {
        self.looked
    }

    /// Whether it can be forgotten without loss.
    pub(crate) fn is_idle(&self) -> bool {
        self.on_the_way.is_empty() && !self.has_moved()
    }

    /// How many there are, as far as is known here.
    pub(crate) fn believed(&self) -> u64 {
        let open = u64::try_from(self.open).unwrap_or(0);
        open + (self.committed - self.in_open) + self.on_the_way.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(calls: i64, there: &[CallId]) -> Open {
        Open {
            calls,
            there: there.to_vec(),
        }
    }

    /// Lets so many calls through and reports them committed.
    fn accept(tally: &mut Tally, calls: usize) {
        for _ in 0..calls {
            let call = CallId::generate();
            assert!(tally.take(call, u64::MAX));
            tally.committed(call);
        }
    }

    #[test]
    fn a_call_on_its_way_takes_room_until_it_is_given_up() {
        let mut tally = Tally::default();
        let (first, second) = (CallId::generate(), CallId::generate());
        assert!(tally.take(first, 1));
        assert!(!tally.take(second, 1));
        tally.given_up(first);
        assert!(tally.take(second, 1));
        tally.committed(second);
        assert!(
            !tally.take(first, 1),
            "one that is committed takes it for good"
        );
    }

    #[test]
    fn a_look_forgets_what_it_has_counted_and_nothing_else() {
        let mut tally = Tally::default();
        accept(&mut tally, 3);
        let look = tally.begin(Instant::now());
        accept(&mut tally, 2);
        // Two of the three have ended elsewhere.
        tally.seen(look, &found(1, &[]));
        assert_eq!(tally.believed(), 3);
        assert!(tally.has_moved());
        tally.seen(tally.begin(Instant::now()), &found(3, &[]));
        assert_eq!((tally.believed(), tally.has_moved()), (3, false));
    }

    #[test]
    fn a_call_that_a_look_has_seen_on_its_way_is_counted_once() {
        let mut tally = Tally::default();
        let (seen, heard, unseen) = (CallId::generate(), CallId::generate(), CallId::generate());
        for call in [seen, heard, unseen] {
            assert!(tally.take(call, 3));
        }
        let look = tally.begin(Instant::now());
        tally.committed(heard);
        tally.seen(look, &found(2, &[seen, heard]));
        assert_eq!(tally.believed(), 3);
        tally.committed(seen);
        tally.committed(unseen);
        assert_eq!(tally.believed(), 3);
    }

    #[test]
    fn of_two_looks_the_later_one_counts_whichever_is_heard_of_first() {
        let mut tally = Tally::default();
        let now = Instant::now();
        let early = tally.begin(now);
        accept(&mut tally, 5);
        let late = tally.begin(now + Duration::from_millis(1));
        tally.seen(late, &found(5, &[]));
        tally.seen(early, &found(0, &[]));
        assert_eq!(tally.believed(), 5);
    }

    #[test]
    fn more_endings_than_beginnings_make_no_room_beyond_the_quota() {
        let mut tally = Tally::default();
        let look = tally.begin(Instant::now());
        tally.seen(look, &found(-3, &[]));
        assert!(tally.take(CallId::generate(), 1));
        assert!(!tally.take(CallId::generate(), 1));
    }

    #[test]
    fn what_comes_soon_after_a_look_is_told_what_the_look_said() {
        let mut tally = Tally::default();
        let now = Instant::now();
        assert_eq!(tally.is_shut(now), None);
        for why in [NoQuota::Unreadable, NoQuota::Full(5)] {
            tally.shut(why, now);
            assert_eq!(tally.is_shut(now), Some(why));
            assert_eq!(tally.is_shut(now + SHUT_FOR), None);
        }
    }
}
