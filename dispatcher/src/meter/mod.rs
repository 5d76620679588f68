//! The meter: whether a new call may be published at once, or waits held.
//!
//! The door asks on the path of every call, so it is answered from a few numbers in memory. They are looked at beside the
//! path: what the stream holds of the queue, how fast it is drained, how many slots its live workers have. Each poll of the
//! stream grants a publish budget until the next poll. Nothing here decides whether a call runs; when it is wrong, the stream
//! holds a little more or a call waits a moment longer.
//!
//! `permit` is the value that a door gets, `queue` what is known of one queue.

mod permit;
mod queue;

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use fleet::{hold::Line, ids::QueueName, telemetry::metrics};
use tokio::sync::Notify;

pub(crate) use self::permit::Permit;
use self::queue::QueueMeter;

/// The meters of all queues of one dispatcher. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter(Arc<Meters>);

#[derive(Debug, Default)]
struct Meters {
    queues: RwLock<HashMap<QueueName, Arc<QueueMeter>>>,
    held: Notify,
}

impl Meter {
    /// Leave to publish a new call of this queue at once; `None`: there is no room, or others wait for it already. The door's
    /// question: no lock is waited for, but for the moment in which a queue is first seen.
    pub(crate) fn permit(&self, queue: &QueueName) -> Option<Permit> {
        self.queue(queue).permit()
    }

    /// A call was committed held: a call that comes to its line now waits behind it. Not before its commit: what is refused after
    /// all must not leave a queue closed to others.
    pub(crate) fn call_is_held(&self, line: &Line) {
        if let Line::Queue(queue) = line {
            self.queue(queue).set_holds(true);
        }
        self.look_at_lines();
    }

    /// Calls are held that were not before: it may be the turn of one of them.
    pub(crate) fn look_at_lines(&self) {
        self.0.held.notify_one();
    }

    /// Waits until calls are held that were not before.
    pub(crate) async fn until_call_is_held(&self) {
        self.0.held.notified().await;
    }

    /// The ledger holds calls in these lines, and in no other: a queue that is not among them is open again, whatever it was
    /// closed for.
    pub(crate) fn lines_hold(&self, lines: &[Line]) {
        for (queue, meter) in self.queues() {
            if meter.holds() && !lines.contains(&Line::Queue(queue)) {
                meter.set_holds(false);
            }
        }
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
            meter.slots_are(slots.get(&queue).copied().unwrap_or(0));
        }
    }

    /// Looks whether all that the meters count as on its way is, and corrects them where it is not: room that no permit holds
    /// would be lost.
    pub(crate) fn audit(&self) {
        for (queue, meter) in self.queues() {
            let permits = meter.audit();
            if permits > 0 {
                metrics().corrected_permits(permits);
                tracing::warn!(%queue, permits, "a meter counted pointers as on their way that nobody was publishing; it is corrected");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fleet::hold::ALLOWANCE_UNKNOWN;

    use super::*;

    fn line(line: &str) -> Line {
        line.parse().unwrap()
    }

    fn queue(queue: &str) -> QueueName {
        queue.parse().unwrap()
    }

    #[test]
    fn who_comes_after_a_held_call_waits_behind_it_until_its_line_is_empty() {
        let meter = Meter::default();
        let permits = || {
            let permits: Vec<Permit> = (0..200).map_while(|_| meter.permit(&queue("a"))).collect();
            permits.len() as u64
        };
        assert_eq!(permits(), ALLOWANCE_UNKNOWN);
        meter.call_is_held(&line("a"));
        let busy = meter.queue(&queue("a"));
        assert!(busy.is_busy());
        // There is room, but others were here before.
        assert_eq!((busy.room(), permits()), (ALLOWANCE_UNKNOWN, 0));
        meter.lines_hold(&[line("b"), line("a")]);
        assert_eq!(permits(), 0);
        assert!(meter.permit(&queue("b")).is_some(), "another queue is open");
        meter.lines_hold(&[line("b"), line("tool/a")]);
        assert_eq!(permits(), ALLOWANCE_UNKNOWN);
    }

    #[test]
    fn what_finds_no_room_and_is_refused_leaves_its_queue_open() {
        let meter = Meter::default();
        let taken: Vec<Permit> = (0..200).map_while(|_| meter.permit(&queue("a"))).collect();
        for _ in 0..3_000 {
            assert!(meter.permit(&queue("a")).is_none());
        }
        drop(taken);
        assert!(meter.permit(&queue("a")).is_some());
    }
}
