//! One queue: how many of its messages the stream holds, and how fast workers take them.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fleet::{
    bus::{
        BusError,
        backlog::{self, Backlog},
        connect::Bus,
    },
    hold::{Drain, allowance},
    ids::QueueName,
};
use tokio::time::Instant;

use super::permit::{Audit, Books};

/// What is known of one queue.
#[derive(Debug, Default)]
pub(crate) struct QueueMeter {
    pub(super) books: Arc<Books>,
    /// Calls wait in the queue's line: a new call waits behind them.
    holds: AtomicBool,
    seen: Mutex<Seen>,
    audit: Mutex<Audit>,
}

/// The last looks at the stream.
#[derive(Debug, Default)]
struct Seen {
    slots: u64,
    /// The number of slots has changed since the last look, so its room is outdated.
    outdated: bool,
    drain: Drain,
    last: Option<(Instant, Backlog)>,
    /// When the measurement of the drain began.
    measured: Option<(Instant, Backlog)>,
    /// Publications that were allowed at the last look.
    allowed: u64,
}

/// The shortest time over which the drain is measured.
const MEASURED_OVER: Duration = Duration::from_millis(100);

impl QueueMeter {
    /// Counts publications that are made without a permit.
    pub(crate) fn count(&self, publications: u64) {
        self.books.count(publications);
    }

    /// For how many more there is room now.
    pub(crate) fn room(&self) -> u64 {
        self.books.room()
    }

    /// Whether a new call waits.
    pub(crate) fn holds(&self) -> bool {
        self.holds.load(Ordering::Relaxed)
    }

    /// Sets whether calls wait in the queue's line.
    pub(crate) fn set_holds(&self, holds: bool) {
        self.holds.store(holds, Ordering::Relaxed);
    }

    /// How many slots its live workers have; 0: none, or they were not counted yet.
    pub(crate) fn slots(&self) -> u64 {
        self.seen().slots
    }

    /// Sets how many slots its live workers have.
    pub(super) fn slots_are(&self, slots: u64) {
        self.seen().slots_are(slots);
    }

    /// Gives back publications that count as under way and are not; returns their number.
    pub(super) fn audit(&self) -> u64 {
        let audit = self.audit.lock();
        self.books
            .audit(&mut audit.unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the last look is older than this, or there was none.
    pub(crate) fn is_older_than(&self, age: Duration) -> bool {
        let last = self.seen().last;
        last.is_none_or(|(at, _)| at.elapsed() >= age)
    }

    /// Whether something may have changed since the last look.
    pub(crate) fn is_busy(&self) -> bool {
        let seen = self.seen();
        let published = self.books.allowed() != seen.allowed;
        let waiting = seen.last.is_some_and(|(_, backlog)| !backlog.is_empty());
        published || waiting || seen.outdated || self.holds()
    }

    /// Asks how much the stream holds. While the stream or the consumer is missing that is unknown, and published messages are
    /// not kept: it counts as empty.
    pub(crate) async fn look(
        &self,
        bus: &Bus,
        queue: &QueueName,
    ) -> Result<Option<Backlog>, BusError> {
        // A publication that is made after the question was asked counts as if the answer did not include it.
        let (asked, made, allowed) = (Instant::now(), self.books.made(), self.books.allowed());
        let found = backlog::look(bus, queue).await?;
        let backlog = found.unwrap_or(Backlog {
            waiting: 0,
            unanswered: 0,
            delivered: 0,
            floor: 0,
        });
        let mut seen = self.seen();
        let room = seen.learn(asked, backlog);
        seen.allowed = allowed;
        drop(seen);
        self.books.allow_until(made, room);
        Ok(found)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn slots_are(&mut self, slots: u64) {
        self.outdated |= slots != self.slots;
        self.slots = slots;
    }

    /// Adds a look, and returns the room that it leaves.
    fn learn(&mut self, at: Instant, backlog: Backlog) -> u64 {
        let (began, first) = *self.measured.get_or_insert((at, backlog));
        let elapsed = at.saturating_duration_since(began);
        if elapsed >= MEASURED_OVER {
            // A consumer that was made again counts from zero.
            let taken = backlog.delivered.saturating_sub(first.delivered);
            let waited = first.waiting > 0 && backlog.waiting > 0;
            self.drain = self.drain.after(taken, elapsed, waited);
            self.measured = Some((at, backlog));
        }
        self.last = Some((at, backlog));
        self.outdated = false;
        allowance(self.slots, self.drain.per_s()).saturating_sub(backlog.waiting)
    }
}

#[cfg(test)]
mod tests {
    use fleet::hold::ALLOWANCE_UNKNOWN;

    use super::*;

    #[test]
    fn a_look_leaves_the_room_that_the_stream_has() {
        let mut seen = Seen {
            slots: 64,
            ..Seen::default()
        };
        let began = Instant::now();
        let of = |waiting, delivered| Backlog {
            waiting,
            unanswered: 0,
            delivered,
            floor: 0,
        };
        assert_eq!(seen.learn(began, of(0, 0)), 128);
        assert_eq!(seen.learn(began, of(100, 0)), 28);
        assert_eq!(seen.learn(began, of(500, 0)), 0);
        // Ten thousand a second: half a second of it is five thousand.
        for tick in 1..20_u32 {
            let at = began + MEASURED_OVER * tick;
            seen.learn(at, of(500, u64::from(tick) * 1_000));
        }
        let room = seen.learn(began + MEASURED_OVER * 20, of(500, 20_000));
        assert!((4_000..=4_500).contains(&room), "{room}");
        // The consumer was made again.
        assert!(seen.learn(began + MEASURED_OVER * 21, of(0, 5)) > 4_000);
    }

    #[test]
    fn a_queue_that_is_idle_is_looked_at_again_when_its_workers_have_gone() {
        let queue = QueueMeter::default();
        let nothing = Backlog {
            waiting: 0,
            unanswered: 0,
            delivered: 0,
            floor: 0,
        };
        queue.slots_are(1_000);
        assert_eq!(queue.seen().learn(Instant::now(), nothing), 2_000);
        assert!(!queue.is_busy());
        queue.slots_are(1_000);
        assert!(!queue.is_busy(), "nothing has changed");
        queue.slots_are(0);
        assert!(queue.is_busy());
        let room = queue.seen().learn(Instant::now(), nothing);
        assert_eq!(room, ALLOWANCE_UNKNOWN);
        assert!(!queue.is_busy());
    }
}
