//! The slots of requests: a request takes one while it is in hand, a batch one for each of its calls.
//!
//! The last quarter is for tenants that have little in hand: a tenant gets slots of it only up to its equal share, so that a
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
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// By tenant, as subjects name it; only tenants that have some.
    by: HashMap<Arc<str>, usize>,
}

/// The slots of one request. Dropping it gives them back.
#[derive(Debug)]
pub(crate) struct RequestPermit {
    inner: Arc<SharedSlots>,
    tenant: Arc<str>,
    count: usize,
}

/// Why no slot was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// None is free.
    All,
    /// Those that are free are reserved for other tenants.
    Share,
}

impl Slots {
    /// `all` slots, all free.
    pub(crate) fn new(all: usize) -> Self {
        let taken = Mutex::default();
        Self {
            inner: Arc::new(SharedSlots { all, taken }),
        }
    }

    /// Takes one for a request of a tenant.
    pub(crate) fn one(&self, tenant: &str) -> Result<RequestPermit, Full> {
        let mut taken = self.inner.taken();
        let of_tenant = taken.by.get_key_value(tenant);
        let has = of_tenant.map_or(0, |(_, has)| *has);
        let name = of_tenant.map_or_else(|| Arc::from(tenant), |(name, _)| Arc::clone(name));
        taken.grant(self.inner.all, has, 1)?;
        taken.by.insert(Arc::clone(&name), has + 1);
        drop(taken);
        Ok(RequestPermit {
            inner: Arc::clone(&self.inner),
            tenant: name,
            count: 1,
        })
    }
}

impl RequestPermit {
    /// Takes the slots that a request needs beyond its first. A request that needs more than a tenant can have takes that many.
    pub(crate) fn further(&mut self, needed: usize) -> Result<(), Full> {
        let all = self.inner.all;
        let more = needed.min(all - reserve(all)).saturating_sub(self.count);
        let mut taken = self.inner.taken();
        let has = taken.by.get(&self.tenant).copied().unwrap_or(0);
        taken.grant(all, has, more)?;
        taken.by.insert(Arc::clone(&self.tenant), has + more);
        drop(taken);
        self.count += more;
        Ok(())
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let mut taken = self.inner.taken();
        taken.all -= self.count;
        if let Some(has) = taken.by.get_mut(&self.tenant) {
            *has -= self.count;
            if *has == 0 {
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
    fn grant(&mut self, all: usize, has: usize, more: usize) -> Result<(), Full> {
        let tenants = self.by.len() + usize::from(has == 0);
        may_take(all, self.all, tenants, has, more)?;
        self.all += more;
        Ok(())
    }
}

/// The slots of which a tenant takes only up to its equal share.
const fn reserve(all: usize) -> usize {
    all / 4
}

/// Whether a tenant that has `has` of the `taken` slots may take `more`; `tenants` have some, itself included. Its equal share
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
            match slots.one(tenant) {
                Ok(one) => held.push(one),
                Err(full) => return (held, full),
            }
        }
    }

    #[test]
    fn a_tenant_alone_leaves_the_last_quarter() {
        let slots = Slots::new(16);
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
        let slots = Slots::new(1_000);
        let (_greedy, _) = fill(&slots, "greedy");
        let (second, full) = fill(&slots, "second");
        // A third of all would be more than is left.
        assert_eq!((second.len(), full), (250, Full::All));
        drop(second);
        let tenants: Vec<String> = (0..9).map(|tenant| format!("t{tenant}")).collect();
        let mut held = Vec::new();
        for tenant in &tenants {
            for _ in 0..25 {
                held.push(slots.one(tenant).unwrap());
            }
        }
        assert!(slots.one("last").is_ok());
        assert_eq!(slots.one("greedy").unwrap_err(), Full::Share);
    }

    #[test]
    fn few_slots_are_for_the_tenant_that_comes_first() {
        for all in 1..4 {
            let (held, full) = fill(&Slots::new(all), "a");
            assert_eq!((held.len(), full), (all, Full::All));
        }
    }

    #[test]
    fn a_batch_takes_a_slot_for_each_call_and_never_more_than_a_tenant_can_have() {
        let slots = Slots::new(16);
        let mut batch = slots.one("a").unwrap();
        batch.further(8).unwrap();
        let mut second = slots.one("a").unwrap();
        assert_eq!(second.further(8), Err(Full::Share));
        second.further(4).unwrap();
        assert_eq!(slots.one("a").unwrap_err(), Full::Share);
        drop(batch);
        drop(second);
        let mut large = slots.one("a").unwrap();
        large.further(1_000).unwrap();
        assert_eq!(slots.one("a").unwrap_err(), Full::Share);
        let mut of_another = slots.one("b").unwrap();
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
                let slots = Slots::new(all);
                let mut held: Vec<Vec<RequestPermit>> = (0..tenants).map(|_| Vec::new()).collect();
                for turn in 0..all * tenants * 2 {
                    let tenant = (turn * turn + turn / 3) % tenants;
                    if let Ok(one) = slots.one(&tenant.to_string()) {
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
