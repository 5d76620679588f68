//! The meter: whether a new call may be published at once, or waits held.
//!
//! The door asks on the path of every call, so it is answered from a few numbers in memory. They are looked at beside the
//! path: what the stream holds of the queue, how fast it is drained, how many slots its live workers have. A look is a bound
//! in publications: so many more until the next one. Nothing here decides whether a call runs; when it is wrong, the stream
//! holds a little more or a call waits a moment longer.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use fleet::{
    bus::{
        BusError,
        backlog::{self, Backlog},
        connect::Bus,
    },
    hold::{ALLOWANCE_UNKNOWN, Drain, Line, allowance},
    ids::QueueName,
};
use tokio::{sync::Notify, time::Instant};

/// The meters of all queues of one dispatcher. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queues: RwLock<HashMap<QueueName, Arc<QueueMeter>>>,
    held: Notify,
}

/// What is known of one queue.
#[derive(Debug)]
pub(crate) struct QueueMeter {
    /// Publications that were allowed so far.
    allowed: AtomicU64,
    /// Those of them that were made; the others are still on their way to the stream.
    made: AtomicU64,
    /// How many may be allowed until the next look.
    until: AtomicU64,
    /// Calls wait in the queue's line, or there was no room for one: whoever comes now waits behind them.
    holds: AtomicBool,
    seen: Mutex<Seen>,
}

/// What the last looks saw.
#[derive(Debug, Default)]
struct Seen {
    slots: u64,
    /// There were other slots at the last look: the room that it left is not what there is now.
    outdated: bool,
    drain: Drain,
    last: Option<(Instant, Backlog)>,
    /// Where the measure of the drain began.
    measured: Option<(Instant, Backlog)>,
    /// Publications allowed at the last look.
    allowed: u64,
}

/// The shortest time over which the drain is measured.
const MEASURED_OVER: Duration = Duration::from_millis(100);

impl Meter {
    /// Whether a new call of this line may be published at once. The door's question: no lock is waited for, but for the
    /// moment in which a queue is first seen.
    pub(crate) fn may_publish(&self, line: &Line) -> bool {
        match line {
            Line::Queue(queue) => self.queue(queue).may_publish(),
            // Its limit is the fleet's: only a release knows whether it is reached.
            Line::Tool(_) => false,
        }
    }

    /// The publication that was allowed is made.
    pub(crate) fn is_published(&self, line: &Line) {
        if let Line::Queue(queue) = line {
            self.queue(queue).made.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The publication that was allowed is not needed.
    pub(crate) fn give_back(&self, line: &Line) {
        if let Line::Queue(queue) = line {
            self.queue(queue).give_back(1);
        }
    }

    /// A call was accepted held: it may be its turn.
    pub(crate) fn call_is_held(&self) {
        self.0.held.notify_one();
    }

    /// Waits until a call is accepted held.
    pub(crate) async fn until_call_is_held(&self) {
        self.0.held.notified().await;
    }

    /// One queue's meter.
    pub(crate) fn queue(&self, queue: &QueueName) -> Arc<QueueMeter> {
        let queues = self.0.queues.read();
        let known = queues
            .unwrap_or_else(PoisonError::into_inner)
            .get(queue)
            .cloned();
        known.unwrap_or_else(|| {
            let queues = self.0.queues.write();
            let mut queues = queues.unwrap_or_else(PoisonError::into_inner);
            Arc::clone(queues.entry(queue.clone()).or_default())
        })
    }

    /// Every queue that was ever asked about.
    pub(crate) fn queues(&self) -> Vec<(QueueName, Arc<QueueMeter>)> {
        let queues = self.0.queues.read();
        let queues = queues.unwrap_or_else(PoisonError::into_inner);
        queues
            .iter()
            .map(|(queue, meter)| (queue.clone(), Arc::clone(meter)))
            .collect()
    }

    /// How many slots the live workers of each queue have; of a queue that is not named, none.
    pub(crate) fn slots_are(&self, slots: Vec<(QueueName, u64)>) {
        let slots: HashMap<QueueName, u64> = slots.into_iter().collect();
        for (queue, meter) in self.queues() {
            meter
                .seen()
                .slots_are(slots.get(&queue).copied().unwrap_or(0));
        }
    }
}

impl Default for QueueMeter {
    fn default() -> Self {
        Self {
            allowed: AtomicU64::new(0),
            made: AtomicU64::new(0),
            until: AtomicU64::new(ALLOWANCE_UNKNOWN),
            holds: AtomicBool::new(false),
            seen: Mutex::default(),
        }
    }
}

impl QueueMeter {
    fn may_publish(&self) -> bool {
        if self.holds.load(Ordering::Relaxed) {
            return false;
        }
        let allowed = self.allow(1) == 1;
        if !allowed {
            self.holds.store(true, Ordering::Relaxed);
        }
        allowed
    }

    /// Allows as many of these publications as there is room for.
    pub(crate) fn allow(&self, wanted: u64) -> u64 {
        let mut given = 0;
        // Only this counter decides, and nothing is read on its word: no order with anything else is needed.
        let allowing = |allowed: u64| {
            let until = self.until.load(Ordering::Relaxed);
            given = until.saturating_sub(allowed).min(wanted);
            Some(allowed + given)
        };
        let (Ok(_before) | Err(_before)) =
            self.allowed
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, allowing);
        given
    }

    /// Counts publications that are made whether there is room or not.
    pub(crate) fn count(&self, publications: u64) {
        self.allowed.fetch_add(publications, Ordering::Relaxed);
        self.made.fetch_add(publications, Ordering::Relaxed);
    }

    /// These publications are not made.
    pub(crate) fn give_back(&self, publications: u64) {
        let less = |allowed: u64| Some(allowed.saturating_sub(publications));
        let (Ok(_before) | Err(_before)) =
            self.allowed
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// How many more there is room for now.
    pub(crate) fn room(&self) -> u64 {
        let allowed = self.allowed.load(Ordering::Relaxed);
        self.until.load(Ordering::Relaxed).saturating_sub(allowed)
    }

    /// Whether whoever comes now waits.
    pub(crate) fn holds(&self) -> bool {
        self.holds.load(Ordering::Relaxed)
    }

    /// Calls wait in the queue's line, or none does.
    pub(crate) fn set_holds(&self, holds: bool) {
        self.holds.store(holds, Ordering::Relaxed);
    }

    /// Whether the last look is older than this; also when there was none.
    pub(crate) fn is_older_than(&self, age: Duration) -> bool {
        let last = self.seen().last;
        last.is_none_or(|(at, _)| at.elapsed() >= age)
    }

    /// Whether something may have changed since the last look: only then another one says something new.
    pub(crate) fn is_busy(&self) -> bool {
        let seen = self.seen();
        let published = self.allowed.load(Ordering::Relaxed) != seen.allowed;
        let waiting = seen.last.is_some_and(|(_, backlog)| !backlog.is_empty());
        published || waiting || seen.outdated || self.holds()
    }

    /// Looks what the stream holds. While the stream or the consumer is missing nothing is known, and what is published
    /// then is not kept: as if it held nothing.
    pub(crate) async fn look(
        &self,
        bus: &Bus,
        queue: &QueueName,
    ) -> Result<Option<Backlog>, BusError> {
        // What is not made before the question is asked counts as if the answer did not know of it.
        let (asked, made) = (Instant::now(), self.made.load(Ordering::Relaxed));
        let allowed = self.allowed.load(Ordering::Relaxed);
        let found = backlog::look(bus, queue).await?;
        let backlog = found.unwrap_or(Backlog {
            waiting: 0,
            unanswered: 0,
            delivered: 0,
        });
        let mut seen = self.seen();
        let room = seen.learn(asked, backlog);
        seen.allowed = allowed;
        drop(seen);
        self.until
            .store(made.min(allowed).saturating_add(room), Ordering::Relaxed);
        Ok(found)
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn slots_are(&mut self, slots: u64) {
        self.outdated |= slots != self.slots;
        self.slots = slots;
    }

    /// Takes a look in, and says how much room it leaves.
    fn learn(&mut self, at: Instant, backlog: Backlog) -> u64 {
        let (began, first) = *self.measured.get_or_insert((at, backlog));
        let elapsed = at.saturating_duration_since(began);
        if elapsed >= MEASURED_OVER {
            // A consumer that was made anew counts from zero.
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
    use super::*;

    fn line(queue: &str) -> Line {
        queue.parse().unwrap()
    }

    #[test]
    fn what_finds_no_room_waits_and_so_does_whoever_comes_after_it() {
        let meter = Meter::default();
        let allowed = (0..200).filter(|_| meter.may_publish(&line("a"))).count();
        assert_eq!(allowed as u64, ALLOWANCE_UNKNOWN);
        let queue = meter.queue(&"a".parse().unwrap());
        assert!(queue.holds() && queue.is_busy());
        // There is room again, but others were here before.
        queue.give_back(10);
        assert_eq!(queue.room(), 10);
        assert!(!meter.may_publish(&line("a")));
        queue.set_holds(false);
        assert!(meter.may_publish(&line("a")));
        assert!(meter.may_publish(&line("b")), "another queue has its own");
        assert!(!meter.may_publish(&line("tool/a")));
    }

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
        // The consumer was made anew.
        assert!(seen.learn(began + MEASURED_OVER * 21, of(0, 5)) > 4_000);
    }

    #[test]
    fn a_queue_that_is_idle_is_looked_at_again_when_its_workers_have_gone() {
        let meter = Meter::default();
        let (name, queue): (QueueName, _) =
            ("a".parse().unwrap(), meter.queue(&"a".parse().unwrap()));
        let nothing = Backlog {
            waiting: 0,
            unanswered: 0,
            delivered: 0,
        };
        meter.slots_are(vec![(name.clone(), 1_000)]);
        assert_eq!(queue.seen().learn(Instant::now(), nothing), 2_000);
        assert!(!queue.is_busy());
        meter.slots_are(vec![(name, 1_000)]);
        assert!(!queue.is_busy(), "nothing has changed");
        meter.slots_are(Vec::new());
        assert!(queue.is_busy());
        let room = queue.seen().learn(Instant::now(), nothing);
        assert_eq!(room, ALLOWANCE_UNKNOWN);
        assert!(!queue.is_busy());
    }

    #[test]
    fn many_doors_share_the_room() {
        let queue = Arc::new(QueueMeter::default());
        let doors: Vec<_> = (0..4)
            .map(|_| {
                let queue = Arc::clone(&queue);
                std::thread::spawn(move || (0..100).map(|_| queue.allow(1)).sum::<u64>())
            })
            .collect();
        let allowed: u64 = doors.into_iter().map(|door| door.join().unwrap()).sum();
        assert_eq!(allowed, ALLOWANCE_UNKNOWN);
        assert_eq!(queue.room(), 0);
    }
}
