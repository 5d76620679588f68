//! How many calls of each tenant are under way in each queue, handed to NATS or running: beyond the bound, or three quarters of the
//! queue's slots, a tenant's calls wait in the ledger, in the line of the queue.
//!
//! The door counts what itself lets through, and asks no server. What has ended meanwhile it learns when the release counts the
//! rows (`sweep/release.rs`): for tenants that it has not counted yet, that seem to have half of the bound, or whose calls wait.
//! So a tenant exceeds its bound only by what dispatchers let through before their first count of it, and by what others let
//! through between two counts.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fleet::{
    hold::{Line, tenant_share},
    ids::{CallId, Label, QueueName},
    store::open_counts::Open,
};
use tokio::time::Instant;

use crate::{
    meter::Meter,
    quota::{Admitted, Look, Tally},
};

/// The most tenants of a queue that are remembered; of further ones, those are forgotten of which no call waits.
const TENANTS_MAX: usize = 16_384;
/// The most tenants that are counted at once.
const COUNTED_AT_ONCE: usize = 512;
/// A tenant is not counted again sooner, unless its calls wait.
const COUNTED_AGAIN_AFTER: Duration = Duration::from_millis(25);

/// The tenants' calls under way. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    /// The most of one tenant in one queue; 0: no bound, and nothing is counted.
    most: u64,
    meter: Meter,
    /// Whether calls wait in the line of any queue.
    waits: Arc<AtomicBool>,
    queues: Arc<Mutex<HashMap<QueueName, HashMap<Label, OfTenant>>>>,
}

/// What is known of one tenant in one queue.
#[derive(Debug, Default)]
struct OfTenant {
    tally: Arc<Mutex<Tally>>,
    /// Calls of it wait: a new one waits behind them.
    waits: bool,
}

impl Running {
    /// `most` calls of a tenant in a queue; 0: no bound. The meter wakes the release.
    pub(crate) fn new(most: u64, meter: Meter) -> Self {
        Self {
            most,
            meter,
            waits: Arc::default(),
            queues: Arc::default(),
        }
    }

    /// The bound; `None`: there is none.
    pub(crate) fn most(&self) -> Option<u64> {
        (self.most > 0).then_some(self.most)
    }

    /// The bound in a queue, by the slots that its workers have.
    pub(crate) fn most_of(&self, queue: &QueueName) -> Option<u64> {
        let most = self.most()?;
        Some(tenant_share(most, self.meter.queue(queue).slots()))
    }

    /// A call has ended: if others wait, one of them may be next.
    pub(crate) fn call_has_ended(&self) {
        if self.waits.load(Ordering::Relaxed) {
            self.meter.look_at_lines();
        }
    }

    /// Lets a call of a tenant go on to its queue; `None`: it waits.
    pub(crate) fn enter(
        &self,
        queue: &QueueName,
        tenant: &Label,
        call: CallId,
    ) -> Option<Admitted> {
        let Some(most) = self.most_of(queue) else {
            return Some(Admitted::default());
        };
        let (entered, is_half_full) = self.with(queue, tenant, |of| {
            let entered = match of.waits {
                true => None,
                false => Admitted::take(&of.tally, call, most),
            };
            (entered, of.is_to_be_counted(most, Instant::now()))
        });
        if is_half_full {
            self.meter.look_at_lines();
        }
        entered
    }

    /// A call of this line was committed as held.
    pub(crate) fn call_is_held(&self, line: &Line, tenant: &Label) {
        if let (Line::Slots(queue), Some(_bounded)) = (line, self.most()) {
            self.waits.store(true, Ordering::Relaxed);
            self.with(queue, tenant, |of| of.waits = true);
        }
    }

    /// The ledger holds calls in these lines and in no other.
    pub(crate) fn lines_hold(&self, lines: &[Line]) {
        let waits = lines.iter().any(|line| matches!(line, Line::Slots(_)));
        self.waits.store(waits, Ordering::Relaxed);
        for (queue, tenants) in self.queues().iter_mut() {
            if !lines.contains(&Line::Slots(queue.clone())) {
                tenants.values_mut().for_each(|of| of.waits = false);
            }
        }
    }

    /// The ledger holds calls of these tenants, and of no other, in the line of this queue.
    pub(crate) fn only_these_wait(&self, queue: &QueueName, waiting: &[Label]) {
        let waiting: HashSet<&Label> = waiting.iter().collect();
        if let Some(tenants) = self.queues().get_mut(queue) {
            for (tenant, of) in tenants {
                of.waits = waiting.contains(tenant);
            }
        }
    }

    /// The tenants that were never counted, or seem to have half of the bound under way and were not counted lately.
    pub(crate) fn to_be_counted(&self) -> Vec<(QueueName, Label)> {
        if self.most().is_none() {
            return Vec::new();
        }
        let now = Instant::now();
        let most_of = |queue| self.most_of(queue).unwrap_or(u64::MAX);
        let queues = self.queues();
        let all = queues.iter().flat_map(|(queue, tenants)| {
            let most = most_of(queue);
            let tenants = tenants.iter();
            tenants.map(move |(tenant, of)| (queue, tenant, of, most))
        });
        let due = all.filter(|(.., of, most)| of.is_to_be_counted(*most, now));
        let due = due.map(|(queue, tenant, ..)| (queue.clone(), tenant.clone()));
        due.take(COUNTED_AT_ONCE).collect()
    }

    /// Begins to count these, which will see all that is known now.
    pub(crate) fn begin(&self, of: &[(QueueName, Label)]) -> Vec<Look> {
        let now = Instant::now();
        let begin = |(queue, tenant): &(QueueName, Label)| {
            self.with(queue, tenant, |of| of.tally().begin(now))
        };
        of.iter().map(begin).collect()
    }

    /// So many are under way, with those that are about to be released.
    pub(crate) fn seen(&self, (queue, tenant): &(QueueName, Label), look: Look, calls: u64) {
        let found = Open {
            calls: i64::try_from(calls).unwrap_or(i64::MAX),
            there: Vec::new(),
        };
        self.with(queue, tenant, |of| of.tally().seen(look, &found));
    }

    fn with<T>(
        &self,
        queue: &QueueName,
        tenant: &Label,
        act: impl FnOnce(&mut OfTenant) -> T,
    ) -> T {
        let mut queues = self.queues();
        if !queues.contains_key(queue) {
            queues.insert(queue.clone(), HashMap::new());
        }
        let tenants = queues
            .get_mut(queue)
            .expect("it is there or was just added");
        if !tenants.contains_key(tenant) {
            if tenants.len() >= TENANTS_MAX {
                tenants.retain(|_, of| of.waits || Arc::strong_count(&of.tally) > 1);
            }
            tenants.insert(tenant.clone(), OfTenant::default());
        }
        act(tenants
            .get_mut(tenant)
            .expect("it is there or was just added"))
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<QueueName, HashMap<Label, OfTenant>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OfTenant {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_to_be_counted(&self, most: u64, now: Instant) -> bool {
        let tally = self.tally();
        let due = match tally.looked() {
            None => true,
            Some(counted) => {
                tally.believed() * 2 >= most && now.duration_since(counted) >= COUNTED_AGAIN_AFTER
            }
        };
        due && tally.has_moved()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> QueueName {
        "default".parse().unwrap()
    }

    fn tenant(name: &str) -> Label {
        name.parse().unwrap()
    }

    fn running(most: u64) -> Running {
        Running::new(most, Meter::default())
    }

    /// Lets as many through as may go, committed.
    fn fill(running: &Running, name: &str) -> usize {
        let entered = (0..100).map_while(|_| {
            running
                .enter(&queue(), &tenant(name), CallId::generate())
                .map(|mut one| one.committed())
        });
        entered.count()
    }

    fn counted(running: &Running, name: &str, calls: u64) {
        let of = (queue(), tenant(name));
        for look in running.begin(std::slice::from_ref(&of)) {
            running.seen(&of, look, calls);
        }
    }

    #[test]
    fn a_tenant_has_its_bound_and_takes_none_from_others() {
        let running = running(7);
        assert_eq!([fill(&running, "greedy"), fill(&running, "other")], [7, 7]);
        let other_queue = "payments".parse().unwrap();
        assert!(
            running
                .enter(&other_queue, &tenant("greedy"), CallId::generate())
                .is_some()
        );
        counted(&running, "greedy", 5);
        assert_eq!(fill(&running, "greedy"), 2, "two have ended");
    }

    #[test]
    fn a_tenant_leaves_a_quarter_of_few_slots() {
        let running = running(7);
        running.meter.slots_are(vec![(queue(), 4)]);
        assert_eq!(fill(&running, "greedy"), 3);
    }

    #[test]
    fn a_call_that_is_not_committed_takes_no_place() {
        let running = running(1);
        drop(running.enter(&queue(), &tenant("a"), CallId::generate()));
        assert_eq!(fill(&running, "a"), 1);
    }

    #[test]
    fn a_new_call_waits_behind_those_of_its_tenant() {
        let running = running(7);
        let line = Line::Slots(queue());
        running.call_is_held(&line, &tenant("a"));
        assert_eq!([fill(&running, "a"), fill(&running, "b")], [0, 7]);
        running.only_these_wait(&queue(), &[tenant("a")]);
        running.lines_hold(&[line]);
        assert_eq!(fill(&running, "a"), 0);
        running.only_these_wait(&queue(), &[tenant("b")]);
        assert_eq!(fill(&running, "a"), 7);
        running.call_is_held(&Line::Slots(queue()), &tenant("c"));
        running.lines_hold(&[Line::Queue(queue())]);
        assert_eq!(fill(&running, "c"), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_is_counted_at_first_and_when_it_seems_to_have_half() {
        let running = running(8);
        let due_after = |calls: usize| {
            for _ in 0..calls {
                let entered = running.enter(&queue(), &tenant("a"), CallId::generate());
                entered.unwrap().committed();
            }
            running.to_be_counted().len()
        };
        assert_eq!(due_after(0), 0);
        assert_eq!(due_after(1), 1, "it was never counted");
        counted(&running, "a", 0);
        tokio::time::advance(COUNTED_AGAIN_AFTER).await;
        assert_eq!([due_after(3), due_after(1)], [0, 1]);
        counted(&running, "a", 4);
        tokio::time::advance(COUNTED_AGAIN_AFTER).await;
        assert_eq!(due_after(0), 0, "nothing has moved since");
    }

    #[test]
    fn without_a_bound_nothing_is_counted() {
        let running = running(0);
        assert_eq!(fill(&running, "a"), 100);
        running.call_is_held(&Line::Slots(queue()), &tenant("a"));
        assert!(running.queues().is_empty() && running.to_be_counted().is_empty());
    }
}
