//! Which call waits at this worker for a slot, and which is next: that of the tenant with the fewest slots, and among equals
//! the one that has waited longest. Pure: what waits is a value.

use std::collections::{HashMap, VecDeque};

use fleet::ids::Label;

/// A tenant; `None` where a message of an older release did not say.
pub(crate) type Tenant = Option<Label>;

/// The waiting places of a worker, and the slots that each tenant has.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    places: usize,
    /// In the order in which they came. No tenant is listed twice, and no line is empty.
    lines: VecDeque<(Tenant, VecDeque<T>)>,
    /// The slots of tenants that have any.
    taken: HashMap<Tenant, usize>,
}

/// The result of a try to wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entered<T> {
    /// It waits.
    Waits,
    /// It waits, in the place of this one, whose tenant had more places.
    InsteadOf(T),
    /// There is no place.
    Full,
}

impl<T> Waiting<T> {
    /// `places` places, all of them free.
    pub(crate) fn new(places: usize) -> Self {
        Self {
            places,
            lines: VecDeque::new(),
            taken: HashMap::new(),
        }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.lines.iter().map(|(_, line)| line.len()).sum()
    }

    /// Takes a place. If none is free, the youngest call of the tenant with most places gives up its own, if that tenant has
    /// two more than this one. So places end up shared evenly.
    pub(crate) fn enter(&mut self, tenant: Tenant, who: T) -> Entered<T> {
        let entry = if self.len() < self.places {
            Entered::Waits
        } else {
            match self.evict(self.of(&tenant) + 2) {
                Some(evicted) => Entered::InsteadOf(evicted),
                None => return Entered::Full,
            }
        };
        match self.lines.iter_mut().find(|(of, _)| *of == tenant) {
            Some((_, line)) => line.push_back(who),
            None => self.lines.push_back((tenant, VecDeque::from([who]))),
        }
        entry
    }

    /// Removes the calls that no longer wait.
    pub(crate) fn keep(&mut self, mut waits: impl FnMut(&T) -> bool) {
        for (_, line) in &mut self.lines {
            line.retain(&mut waits);
        }
        self.lines.retain(|(_, line)| !line.is_empty());
    }

    /// The next call. Call [`Self::take`] when it has its slot.
    pub(crate) fn next(&mut self) -> Option<(Tenant, T)> {
        let taken = |tenant: &Tenant| self.taken.get(tenant).copied().unwrap_or(0);
        // The first of several that are equal.
        let (place, _) = self
            .lines
            .iter()
            .enumerate()
            .min_by_key(|(_, (tenant, _))| taken(tenant))?;
        let (tenant, mut line) = self.lines.remove(place)?;
        let next = line.pop_front();
        if !line.is_empty() {
            self.lines.push_back((tenant.clone(), line));
        }
        next.map(|next| (tenant, next))
    }

    /// A tenant has one more slot.
    pub(crate) fn take(&mut self, tenant: Tenant) {
        *self.taken.entry(tenant).or_default() += 1;
    }

    /// A tenant has one slot less.
    pub(crate) fn give_back(&mut self, tenant: &Tenant) {
        if let Some(taken) = self.taken.get_mut(tenant) {
            *taken -= 1;
            if *taken == 0 {
                self.taken.remove(tenant);
            }
        }
    }

    /// How many slots are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.values().sum()
    }

    fn of(&self, tenant: &Tenant) -> usize {
        let line = self.lines.iter().find(|(of, _)| of == tenant);
        line.map_or(0, |(_, line)| line.len())
    }

    /// Removes the youngest call of the tenant with most places, if that has at least `at_least`.
    fn evict(&mut self, at_least: usize) -> Option<T> {
        let (_, line) = self.lines.iter_mut().max_by_key(|(_, line)| line.len())?;
        if line.len() < at_least {
            return None;
        }
        line.pop_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Tenant {
        Some(name.parse().unwrap())
    }

    /// Enters each of these; the first letter is the tenant.
    fn waiting(places: usize, who: &[&'static str]) -> Waiting<&'static str> {
        let mut waiting = Waiting::new(places);
        for &who in who {
            assert_eq!(waiting.enter(tenant(&who[..1]), who), Entered::Waits);
        }
        waiting
    }

    fn turns(waiting: &mut Waiting<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| {
            let (tenant, who) = waiting.next()?;
            waiting.take(tenant);
            Some(who)
        })
        .collect()
    }

    #[test]
    fn tenants_take_turns_and_each_ones_calls_keep_their_order() {
        let mut waiting = waiting(6, &["a1", "a2", "a3", "b1", "c1", "b2"]);
        assert_eq!(turns(&mut waiting), ["a1", "b1", "c1", "a2", "b2", "a3"]);
        assert_eq!((waiting.len(), waiting.taken()), (0, 6));
    }

    #[test]
    fn whoever_has_fewest_slots_is_next() {
        let mut waiting = waiting(3, &["a1", "a2", "b1"]);
        for _ in 0..2 {
            waiting.take(tenant("a"));
        }
        assert_eq!(turns(&mut waiting), ["b1", "a1", "a2"]);
        for _ in 0..4 {
            waiting.give_back(&tenant("a"));
        }
        assert_eq!(waiting.taken(), 1);
        waiting.give_back(&tenant("nobody"));
        assert_eq!(waiting.taken(), 1);
    }

    #[test]
    fn a_newcomer_takes_the_place_of_a_tenant_that_has_two_more() {
        let mut waiting = waiting(3, &["a1", "a2", "a3"]);
        assert_eq!(waiting.enter(tenant("a"), "a4"), Entered::Full);
        assert_eq!(waiting.enter(tenant("b"), "b1"), Entered::InsteadOf("a3"));
        // Two and one: a swap would help neither tenant.
        assert_eq!(waiting.enter(tenant("b"), "b2"), Entered::Full);
        assert_eq!(waiting.enter(tenant("c"), "c1"), Entered::InsteadOf("a2"));
        assert_eq!(waiting.enter(tenant("d"), "d1"), Entered::Full);
        assert_eq!(waiting.len(), 3);
        assert_eq!(turns(&mut waiting), ["a1", "b1", "c1"]);
    }

    #[test]
    fn who_has_gone_takes_no_place() {
        let mut waiting = waiting(2, &["a1", "b1"]);
        waiting.keep(|who| *who != "a1");
        assert_eq!(waiting.enter(tenant("b"), "b2"), Entered::Waits);
        assert_eq!(turns(&mut waiting), ["b1", "b2"]);
    }

    #[test]
    fn without_places_nobody_waits() {
        assert_eq!(Waiting::new(0).enter(tenant("a"), "a1"), Entered::Full);
    }
}
