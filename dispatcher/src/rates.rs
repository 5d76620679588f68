//! The rates of each tenant: how many requests and bytes a second it may send, as two token buckets in this process's memory.
//!
//! A bucket is full at first and holds what comes in a second. A request passes while neither bucket is empty, and takes all that
//! it needs: a large one leaves a bucket below zero, and the tenant waits until it is filled again. The time for which a request
//! keeps a thread counts as further calls once it has been answered. So a request of any size passes at some time, and over
//! longer times the rate is exact. No server is asked: each dispatcher counts what itself hears, and NATS spreads the requests of
//! a tenant over all of them.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The most tenants that are remembered. Further ones share one pair of buckets until others are full again.
const TENANTS_MAX: usize = 16_384;

/// Calls that a millisecond of work counts as. So a rate of 1,000 calls a second is also a quarter of a thread, and a tenant
/// whose requests are dear to check is refused before it has taken the thread from the others.
const CALLS_PER_MS: f64 = 4.0;

/// How long after one look for tenants with full buckets the next is made.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// The rates of all tenants.
#[derive(Debug)]
pub(crate) struct Rates {
    calls: Rate,
    bytes: Rate,
    /// What tenants send themselves, and what operators send in their names.
    senders: [Mutex<Remembered>; 2],
}

/// Who sends a request in a tenant's name. Each has buckets of its own, so that a request that only looks like an operator's has
/// a bound, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    /// One of its agents.
    Tenant,
    /// An operator.
    Operator,
}

/// So much a second; 0: no bound.
#[derive(Debug, Clone, Copy)]
struct Rate(u64);

/// Why a request has come too soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooFast {
    pub(crate) what: Counted,
    /// The rate.
    pub(crate) per_second: u64,
    /// When the bucket has something again.
    pub(crate) wait: Duration,
}

/// What a rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Requests; a batch counts as many as it has calls.
    Calls,
    /// Bytes of headers and body.
    Bytes,
}

/// The buckets of the tenants that are remembered.
#[derive(Debug, Default)]
struct Remembered {
    buckets: HashMap<Box<str>, Buckets>,
    /// When those of full tenants were looked for last.
    looked: Option<Instant>,
}

/// The buckets of one tenant.
#[derive(Debug, Clone, Copy)]
struct Buckets {
    calls: f64,
    bytes: f64,
    /// When they were filled up to this level.
    at: Instant,
}

impl Rates {
    /// At most so many calls and so many bytes a second of each tenant; 0: no bound.
    pub(crate) fn new(calls: u64, bytes: u64) -> Self {
        Self {
            calls: Rate(calls),
            bytes: Rate(bytes),
            senders: Default::default(),
        }
    }

    /// Lets a request with so many bytes pass, or says when to come again. The name is the one in the request's subject.
    pub(crate) fn pass(
        &self,
        sender: Sender,
        tenant: &str,
        bytes: usize,
        now: Instant,
    ) -> Result<(), TooFast> {
        let Some(mut tenants) = self.tenants(sender) else {
            return Ok(());
        };
        let buckets = self.buckets(&mut tenants, tenant, now);
        buckets.fill(self, now);
        let empty = |rate: Rate, level: f64, what| {
            let wait = rate.wait(level)?;
            Some(TooFast {
                what,
                per_second: rate.0,
                wait,
            })
        };
        let too_fast = empty(self.calls, buckets.calls, Counted::Calls)
            .or_else(|| empty(self.bytes, buckets.bytes, Counted::Bytes));
        if let Some(too_fast) = too_fast {
            return Err(too_fast);
        }
        buckets.calls -= 1.0;
        buckets.bytes -= bytes as f64;
        Ok(())
    }

    /// Counts the calls of a tenant's request beyond its first.
    pub(crate) fn further(&self, tenant: &str, calls: usize, now: Instant) {
        if let Some(mut tenants) = self.tenants(Sender::Tenant) {
            self.buckets(&mut tenants, tenant, now).calls -= calls as f64;
        }
    }

    /// Counts the work of a request: as [`CALLS_PER_MS`] further calls for each whole millisecond that it kept a thread.
    pub(crate) fn worked(&self, sender: Sender, tenant: &str, kept: Duration, now: Instant) {
        let kept = kept.as_millis() as f64;
        if kept >= 1.0
            && let Some(mut tenants) = self.tenants(sender)
        {
            self.buckets(&mut tenants, tenant, now).calls -= kept * CALLS_PER_MS;
        }
    }

    /// Whether anything is bounded, and so counted.
    pub(crate) fn are_bounded(&self) -> bool {
        self.calls.0 > 0 || self.bytes.0 > 0
    }

    /// `None`: nothing is bounded, and nothing is counted.
    fn tenants(&self, sender: Sender) -> Option<std::sync::MutexGuard<'_, Remembered>> {
        let tenants = &self.senders[sender as usize];
        self.are_bounded()
            .then(|| tenants.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn buckets<'a>(
        &self,
        tenants: &'a mut Remembered,
        tenant: &str,
        now: Instant,
    ) -> &'a mut Buckets {
        let Remembered {
            buckets: tenants,
            looked,
        } = tenants;
        // The look is at all of them: requests in the names of ever more tenants must not each cost one.
        if tenants.len() >= TENANTS_MAX
            && !tenants.contains_key(tenant)
            && looked.is_none_or(|looked| now.saturating_duration_since(looked) >= LOOK_PAUSE)
        {
            *looked = Some(now);
            // A tenant with full buckets is like one that was never heard of.
            tenants.retain(|_, buckets| {
                buckets.fill(self, now);
                buckets.calls < self.calls.0 as f64 || buckets.bytes < self.bytes.0 as f64
            });
        }
        let known = tenants.len() < TENANTS_MAX || tenants.contains_key(tenant);
        // No subject has an empty token, so no tenant has this name.
        let name = if known { tenant } else { "" };
        if !tenants.contains_key(name) {
            let full = Buckets {
                calls: self.calls.0 as f64,
                bytes: self.bytes.0 as f64,
                at: now,
            };
            tenants.insert(name.into(), full);
        }
        tenants.get_mut(name).expect("it was just added")
    }
}

impl Buckets {
    fn fill(&mut self, rates: &Rates, now: Instant) {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.calls = rates.calls.filled(self.calls, seconds);
        self.bytes = rates.bytes.filled(self.bytes, seconds);
    }
}

impl Rate {
    fn filled(self, level: f64, seconds: f64) -> f64 {
        let rate = self.0 as f64;
        (level + rate * seconds).min(rate)
    }

    /// How long until a bucket at this level has something; `None`: it has, or there is no bound.
    fn wait(self, level: f64) -> Option<Duration> {
        (self.0 > 0 && level <= 0.0).then(|| {
            let seconds = (-level / self.0 as f64).min(3_600.0);
            Duration::from_secs_f64(seconds) + Duration::from_millis(1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// How many requests with so many bytes pass within this time, one tried every millisecond.
    fn passed(rates: &Rates, tenant: &str, bytes: usize, from: Instant, time: Duration) -> u64 {
        let times = (0..time.as_millis() as u64).map(|ms| from + Duration::from_millis(ms));
        let passed = times.filter(|now| rates.pass(Sender::Tenant, tenant, bytes, *now).is_ok());
        passed.count() as u64
    }

    #[test]
    fn a_tenant_gets_its_rate_and_a_second_of_it_at_once_and_takes_none_from_others() {
        let (rates, now) = (Rates::new(100, 0), Instant::now());
        assert_eq!(passed(&rates, "greedy", 1 << 40, now, 10 * SECOND), 1_100);
        let too_fast = rates
            .pass(Sender::Tenant, "greedy", 0, now + 10 * SECOND)
            .err();
        let waits = |from: Instant, too_fast: TooFast| from + too_fast.wait;
        let again = too_fast.map_or(now + 10 * SECOND, |why| waits(now + 10 * SECOND, why));
        assert!(rates.pass(Sender::Tenant, "greedy", 0, again).is_ok());
        assert_eq!(passed(&rates, "other", 0, now, SECOND / 20), 50);
    }

    #[test]
    fn a_request_larger_than_the_rate_passes_and_is_paid_for_afterwards() {
        let (rates, now) = (Rates::new(0, 1_000), Instant::now());
        rates.pass(Sender::Tenant, "a", 8_000, now).unwrap();
        let refused = rates.pass(Sender::Tenant, "a", 1, now).unwrap_err();
        assert_eq!((refused.what, refused.per_second), (Counted::Bytes, 1_000));
        assert_eq!(refused.wait, Duration::from_millis(7_001));
        assert!(
            rates
                .pass(Sender::Tenant, "a", 1, now + 7 * SECOND)
                .is_err()
        );
        rates
            .pass(Sender::Tenant, "a", 1, now + refused.wait)
            .unwrap();
    }

    #[test]
    fn what_an_operator_sends_takes_nothing_from_the_tenant() {
        let (rates, now) = (Rates::new(3, 0), Instant::now());
        for _ in 0..3 {
            rates.pass(Sender::Operator, "a", 0, now).unwrap();
        }
        assert!(rates.pass(Sender::Operator, "a", 0, now).is_err());
        for _ in 0..3 {
            rates.pass(Sender::Tenant, "a", 0, now).unwrap();
        }
        assert!(rates.pass(Sender::Tenant, "a", 0, now).is_err());
    }

    #[test]
    fn the_calls_of_a_batch_count_each() {
        let (rates, now) = (Rates::new(10, 0), Instant::now());
        rates.pass(Sender::Tenant, "a", 0, now).unwrap();
        rates.further("a", 99, now);
        let refused = rates.pass(Sender::Tenant, "a", 0, now).unwrap_err();
        assert_eq!(
            (refused.what, refused.wait.as_millis()),
            (Counted::Calls, 9_001)
        );
    }

    #[test]
    fn work_counts_as_calls_and_less_than_a_millisecond_as_none() {
        let (rates, now) = (Rates::new(10, 0), Instant::now());
        let worked = |kept| rates.worked(Sender::Tenant, "a", kept, now);
        worked(Duration::from_micros(999));
        for _ in 0..10 {
            rates.pass(Sender::Tenant, "a", 0, now).unwrap();
        }
        worked(Duration::from_micros(25_500));
        let refused = rates.pass(Sender::Tenant, "a", 0, now).unwrap_err();
        assert_eq!(refused.wait.as_millis(), 10_001);
    }

    #[test]
    fn without_rates_nothing_is_counted_and_with_too_many_tenants_the_others_share() {
        let now = Instant::now();
        let none = Rates::new(0, 0);
        assert_eq!(passed(&none, "a", 1 << 40, now, SECOND), 1_000);
        assert!(none.senders[0].lock().unwrap().buckets.is_empty());
        let rates = Rates::new(1, 0);
        for tenant in 0..TENANTS_MAX {
            rates
                .pass(Sender::Tenant, &tenant.to_string(), 0, now)
                .unwrap();
        }
        rates.pass(Sender::Tenant, "late", 0, now).unwrap();
        assert!(
            rates.pass(Sender::Tenant, "later", 0, now).is_err(),
            "they share one"
        );
        assert_eq!(
            rates.senders[0].lock().unwrap().buckets.len(),
            TENANTS_MAX + 1
        );
        rates
            .pass(Sender::Tenant, "later", 0, now + 2 * SECOND)
            .unwrap();
        assert_eq!(rates.senders[0].lock().unwrap().buckets.len(), 1);
    }

    #[test]
    fn ever_more_tenants_cost_one_look_a_second_at_those_that_are_remembered() {
        let (rates, now) = (Rates::new(1, 0), Instant::now());
        for tenant in 0..2 * TENANTS_MAX {
            let passed = rates.pass(Sender::Tenant, &tenant.to_string(), 0, now);
            assert_eq!(passed.is_ok(), tenant <= TENANTS_MAX);
        }
        let looked = || rates.senders[0].lock().unwrap().looked;
        assert_eq!(looked(), Some(now));
        let soon = now + SECOND / 2;
        rates.pass(Sender::Tenant, "soon", 0, soon).unwrap();
        assert_eq!(looked(), Some(now));
        let later = now + SECOND;
        rates.pass(Sender::Tenant, "later", 0, later).unwrap();
        assert_eq!(looked(), Some(later));
    }
}
