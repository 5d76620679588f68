//! The slots of requests: a request takes one while it is in hand, a batch one for each of its calls. Its bytes are in hand as
//! long, and are bounded in the same way.
//!
//! The last quarter of either is for tenants that have little in hand: a tenant gets slots of it only up to its equal share, so that a
//! tenant whose callers all wait does not shut out the others.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The slots of one dispatcher. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    inner: Arc<SharedSlots>,
}

#[derive(Debug)]
struct SharedSlots {
    all: usize,
    /// The most bytes in hand.
    bytes: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    bytes: usize,
    /// By tenant, as subjects name it; only tenants that have some.
    by: HashMap<Arc<str>, InHand>,
}

/// What one tenant has in hand.
#[derive(Debug, Clone, Copy, Default)]
struct InHand {
    slots: usize,
    bytes: usize,
}

/// The slots of one request. Dropping it gives them back.
#[derive(Debug)]
pub(crate) struct RequestPermit {
    inner: Arc<SharedSlots>,
    tenant: Arc<str>,
    count: usize,
    bytes: usize,
}

/// Why no slot was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// None is free.
    All,
    /// Those that are free are reserved for other tenants.
    Share,
    /// There is one, but the requests in hand have too many bytes, all of them or this tenant's.
    Bytes,
}

impl Slots {
    /// `all` slots for requests with `bytes` bytes, all free.
    pub(crate) fn new(all: usize, bytes: usize) -> Self {
        let taken = Mutex::default();
        Self {
            inner: Arc::new(SharedSlots { all, bytes, taken }),
        }
    }

    /// Takes one for a request of a tenant with so many bytes. One that has more than a tenant can have counts as that many.
    pub(crate) fn one(&self, tenant: &str, bytes: usize) -> Result<RequestPermit, Full> {
        let (all, most) = (self.inner.all, self.inner.bytes);
        let bytes = bytes.min(most - reserve(most));
        let mut taken = self.inner.taken();
        let of_tenant = taken.by.get_key_value(tenant);
        let has = of_tenant.map_or_else(InHand::default, |(_, has)| *has);
        let name = of_tenant.map_or_else(|| Arc::from(tenant), |(name, _)| Arc::clone(name));
        let tenants = taken.tenants(has);
        may_take(all, taken.all, tenants, has.slots, 1)?;
        may_take(most, taken.bytes, tenants, has.bytes, bytes).map_err(|_full| Full::Bytes)?;
        taken.all += 1;
        taken.bytes += bytes;
        let has = InHand {
            slots: has.slots + 1,
            bytes: has.bytes + bytes,
        };
        taken.by.insert(Arc::clone(&name), has);
        drop(taken);
        Ok(RequestPermit {
            inner: Arc::clone(&self.inner),
            tenant: name,
            count: 1,
            bytes,
        })
    }
}

impl RequestPermit {
    /// Takes the slots that a request needs beyond its first. A request that needs more than a tenant can have takes that many.
    pub(crate) fn further(&mut self, needed: usize) -> Result<(), Full> {
        let all = self.inner.all;
        let more = needed.min(all - reserve(all)).saturating_sub(self.count);
        let mut taken = self.inner.taken();
        let has = taken.by.get(&self.tenant).copied().unwrap_or_default();
        may_take(all, taken.all, taken.tenants(has), has.slots, more)?;
        taken.all += more;
        if let Some(has) = taken.by.get_mut(&self.tenant) {
            has.slots += more;
        }
        drop(taken);
        self.count += more;
        Ok(())
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let mut taken = self.inner.taken();
        taken.all -= self.count;
        taken.bytes -= self.bytes;
        if let Some(has) = taken.by.get_mut(&self.tenant) {
            has.slots -= self.count;
            has.bytes -= self.bytes;
            if has.slots == 0 {
                taken.by.remove(&self.tenant);
            }
        }
    }
}

impl SharedSlots {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// How many tenants have something, with one that has this.
    fn tenants(&self, has: InHand) -> usize {
        self.by.len() + usize::from(has.slots == 0)
    }
}

/// The slots or bytes of which a tenant takes only up to its equal share.
const fn reserve(all: usize) -> usize {
    all / 4
}

/// Whether a tenant that has `has` of the `taken` slots or bytes may take `more`; `tenants` have some, itself included. Its equal share
/// counts one tenant more, which may still come.
fn may_take(all: usize, taken: usize, tenants: usize, has: usize, more: usize) -> Result<(), Full> {
    let after = taken + more;
    if after > all {
        Err(Full::All)
    } else if after <= all - reserve(all) || has + more <= all / (tenants + 1) {
        Ok(())
    } else {
        Err(Full::Share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes as many single ones as it gets.
    fn fill(slots: &Slots, tenant: &str) -> (Vec<RequestPermit>, Full) {
        let mut held = Vec::new();
        loop {
            match slots.one(tenant, 0) {
                Ok(one) => held.push(one),
                Err(full) => return (held, full),
            }
        }
    }

    #[test]
    fn a_tenant_alone_leaves_the_last_quarter() {
        let slots = Slots::new(16, 0);
        let (held, full) = fill(&slots, "greedy");
        assert_eq!((held.len(), full), (12, Full::Share));
        let (late, full) = fill(&slots, "late");
        assert_eq!((late.len(), full), (4, Full::All));
        drop(held);
        drop(late);
        assert_eq!(fill(&slots, "late").0.len(), 12, "all are free again");
    }

    #[test]
    fn a_tenant_that_comes_late_gets_its_share_of_the_last_quarter_and_leaves_the_rest() {
        let slots = Slots::new(1_000, 0);
        let (_greedy, _) = fill(&slots, "greedy");
        let (second, full) = fill(&slots, "second");
        // A third of all would be more than is left.
        assert_eq!((second.len(), full), (250, Full::All));
        drop(second);
        let tenants: Vec<String> = (0..9).map(|tenant| format!("t{tenant}")).collect();
        let mut held = Vec::new();
        for tenant in &tenants {
            for _ in 0..25 {
                held.push(slots.one(tenant, 0).unwrap());
            }
        }
        assert!(slots.one("last", 0).is_ok());
        assert_eq!(slots.one("greedy", 0).unwrap_err(), Full::Share);
    }

    #[test]
    fn few_slots_are_for_the_tenant_that_comes_first() {
        for all in 1..4 {
            let (held, full) = fill(&Slots::new(all, 0), "a");
            assert_eq!((held.len(), full), (all, Full::All));
        }
    }

    #[test]
    fn a_tenant_with_many_bytes_in_hand_leaves_the_last_quarter_of_them_to_others() {
        let slots = Slots::new(1_000, 64);
        let mut greedy: Vec<_> = (0..6).map(|_| slots.one("greedy", 8).unwrap()).collect();
        assert_eq!(slots.one("greedy", 8).unwrap_err(), Full::Bytes);
        assert_eq!(slots.one("greedy", 1).unwrap_err(), Full::Bytes);
        let other = slots.one("other", 16).unwrap();
        assert_eq!(slots.one("third", 1).unwrap_err(), Full::Bytes);
        drop(other);
        greedy.pop();
        assert!(slots.one("greedy", 8).is_ok());
        drop(greedy);
        // Larger than all that a tenant may have: alone it comes in.
        let large = slots.one("large", 1_000).unwrap();
        assert_eq!(slots.one("large", 1).unwrap_err(), Full::Bytes);
        drop(large);
        let taken = slots.inner.taken();
        assert_eq!((taken.all, taken.bytes, taken.by.len()), (0, 0, 0));
    }

    #[test]
    fn a_batch_takes_a_slot_for_each_call_and_never_more_than_a_tenant_can_have() {
        let slots = Slots::new(16, 0);
        let mut batch = slots.one("a", 0).unwrap();
        batch.further(8).unwrap();
        let mut second = slots.one("a", 0).unwrap();
        assert_eq!(second.further(8), Err(Full::Share));
        second.further(4).unwrap();
        assert_eq!(slots.one("a", 0).unwrap_err(), Full::Share);
        drop(batch);
        drop(second);
        let mut large = slots.one("a", 0).unwrap();
        large.further(1_000).unwrap();
        assert_eq!(slots.one("a", 0).unwrap_err(), Full::Share);
        let mut of_another = slots.one("b", 0).unwrap();
        assert_eq!(of_another.further(5), Err(Full::All));
        of_another.further(4).unwrap();
        drop(of_another);
        drop(large);
        assert_eq!(slots.inner.taken().all, 0);
        assert!(slots.inner.taken().by.is_empty());
    }

    #[test]
    fn no_order_of_taking_gives_a_tenant_more_than_three_quarters_or_all_more_than_there_are() {
        for all in 1..64 {
            for tenants in 1..6_usize {
                let slots = Slots::new(all, 0);
                let mut held: Vec<Vec<RequestPermit>> = (0..tenants).map(|_| Vec::new()).collect();
                for turn in 0..all * tenants * 2 {
                    let tenant = (turn * turn + turn / 3) % tenants;
                    if let Ok(one) = slots.one(&tenant.to_string(), 0) {
                        held[tenant].push(one);
                    }
                }
                let taken: usize = held.iter().map(Vec::len).sum();
                assert!(taken <= all);
                let most = held.iter().map(Vec::len).max().unwrap();
                assert!(most <= all - reserve(all), "{most} of {all}");
            }
        }
    }
}
