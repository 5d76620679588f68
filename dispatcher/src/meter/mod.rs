//! The meter: whether a new call may be published at once, or is held.
//!
//! The door asks on the path of every call, so the answer comes from a few numbers in memory. They are measured beside the
//! path: what the stream holds of the queue, how fast it is drained, how many slots its live workers have. Each poll of the
//! stream grants a publish budget until the next poll. No call's fate depends on it: with a wrong number the stream holds a
//! little more, or a call waits a little longer.
//!
//! `permit` is the value that the door gets, `queue` what is known of one queue.

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
    /// The slots of all queues, by the last count.
    slots: RwLock<HashMap<QueueName, u64>>,
    held: Notify,
}

impl Meter {
    /// A permit to publish a new call of this queue at once; `None`: there is no room, or other calls wait for it already.
    /// Called on the path of every call, so it waits for no lock, except when a queue is seen for the first time.
    pub(crate) fn permit(&self, queue: &QueueName) -> Option<Permit> {
        let meter = self.queue(queue);
        if meter.holds() {
            return None;
        }
        meter.books.permit()
    }

    /// A call was committed as held: later calls of its line wait behind it. Not before its commit: a call that is refused
    /// after all must not close a queue to others.
    pub(crate) fn call_is_held(&self, line: &Line) {
        match line {
            Line::Queue(queue) => self.queue(queue).set_holds(true),
            // A tenant that has its bound under way waits alone.
            Line::Slots(queue) => {
                let queue = self.queue(queue);
                if queue.room() == 0 {
                    queue.set_holds(true);
                }
            }
            Line::Tool(_) | Line::Key(..) | Line::Pause(_) | Line::Breaker(_) | Line::After(_) => {}
        }
        self.look_at_lines();
    }

    /// Wakes the release: calls are held that were not before, and one of them may be next.
    pub(crate) fn look_at_lines(&self) {
        self.0.held.notify_one();
    }

    /// Waits until a newly held call is reported.
    pub(crate) async fn until_call_is_held(&self) {
        self.0.held.notified().await;
    }

    /// The ledger holds calls in these lines and in no other: every other queue is open again, whatever had closed it.
    pub(crate) fn lines_hold(&self, lines: &[Line]) {
        for (queue, meter) in self.queues() {
            let holds =
                lines.contains(&Line::Queue(queue.clone())) || lines.contains(&Line::Slots(queue));
            if meter.holds() && !holds {
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
            let new = || {
                let meter = QueueMeter::default();
                let slots = self.0.slots.read();
                let slots = slots.unwrap_or_else(PoisonError::into_inner);
                meter.slots_are(slots.get(queue).copied().unwrap_or(0));
                Arc::new(meter)
            };
            Arc::clone(queues.entry(queue.clone()).or_insert_with(new))
        })
    }

    /// Every queue that a caller has asked for.
    pub(crate) fn queues(&self) -> Vec<(QueueName, Arc<QueueMeter>)> {
        let queues = self.0.queues.read();
        let queues = queues.unwrap_or_else(PoisonError::into_inner);
        queues
            .iter()
            .map(|(queue, meter)| (queue.clone(), Arc::clone(meter)))
            .collect()
    }

    /// How many slots the live workers of each queue have; a queue that is not listed has none.
    pub(crate) fn slots_are(&self, slots: Vec<(QueueName, u64)>) {
        let slots: HashMap<QueueName, u64> = slots.into_iter().collect();
        for (queue, meter) in self.queues() {
            meter.slots_are(slots.get(&queue).copied().unwrap_or(0));
        }
        let known = self.0.slots.write();
        *known.unwrap_or_else(PoisonError::into_inner) = slots;
    }

    /// Checks the publications that the meters count as under way against the permits, and corrects the count: without that,
    /// room that no permit holds would be lost.
    pub(crate) fn audit(&self) {
        for (queue, meter) in self.queues() {
            let permits = meter.audit();
            if permits > 0 {
                metrics().corrected_permits(permits);
                tracing::warn!(%queue, permits, "a meter counted pointers as under way without a permit; it is corrected");
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
        // There is room, but other calls came first.
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
