//! The quota of open calls of each tenant.
//!
//! The ledger keeps the counts (`fleet/src/store/open_counts.rs`). A few times a second a dispatcher reads the counts of the
//! tenants it hears of, and it adds the calls that it accepts itself, so the door asks no server. Only where that leaves no
//! room does it read the tenant's count anew, and it refuses if there is none. A tenant exceeds its quota only by the calls
//! that a dispatcher accepts before its first look at it, or that others accept between two looks (`docs/limits.md`).

mod limits;
mod tally;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fleet::{
    ids::{CallId, Label},
    store::{
        PgPool,
        open_counts::{self, Open},
        session::within,
    },
    telemetry::report,
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};

pub use self::limits::{BadQuotas, TenantQuotas};
pub(crate) use self::{
    limits::Limits,
    tally::{Look, NoQuota, Tally},
};

/// How often it reads the counts of tenants that have had new calls.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How soon it reads the count of a tenant of which nothing recent is known.
const LOOK_AFTER: Duration = Duration::from_millis(50);
/// The most tenants in one look; the others are next.
const LOOKED_AT_ONCE: usize = 512;
/// The most calls under way that a look at one tenant asks about.
const ASKED_MAX: usize = 2_000;
/// The most tenants that are remembered, unless more have calls under way.
const TENANTS_MAX: usize = 16_384;

/// The quotas, and what is known of the tenants. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Quota {
    inner: Arc<Tenants>,
}

#[derive(Debug)]
struct Tenants {
    limits: Limits,
    pool: PgPool,
    tenants: Mutex<HashMap<Label, Arc<Tenant>>>,
    /// Wakes the look: a tenant came of which nothing recent is known.
    stale: Notify,
}

#[derive(Debug)]
struct Tenant {
    quota: u64,
    tally: Arc<Mutex<Tally>>,
    /// Held by the request that looks at the tenant; others wait for its result.
    looking: tokio::sync::Mutex<()>,
}

/// A call that was let through. It takes a place in its tenant's tally until it is known to be in the ledger, or dropped.
#[derive(Debug, Default)]
pub(crate) struct Admitted(Option<(Arc<Mutex<Tally>>, CallId)>);

impl Quota {
    pub(crate) fn new(limits: Limits, pool: PgPool) -> Self {
        Self {
            inner: Arc::new(Tenants {
                limits,
                pool,
                tenants: Mutex::default(),
                stale: Notify::new(),
            }),
        }
    }

    /// Lets one more call of a tenant through, or says why its quota has no place.
    pub(crate) async fn admit(&self, tenant: &Label, call: CallId) -> Result<Admitted, NoQuota> {
        let Some(quota) = self.inner.limits.of(tenant) else {
            return Ok(Admitted::default());
        };
        let known = self.inner.known(tenant, quota);
        if let Some(admitted) = Admitted::take(&known.tally, call, quota) {
            return Ok(admitted);
        }
        // Boxed: without it the future of every request would be as large as this rare branch.
        Box::pin(self.inner.look_and_admit(tenant, known, call)).await
    }

    /// Reads the counts of tenants that have had new calls, for ever. Cancel-safe.
    pub(crate) async fn keep(self) {
        loop {
            tokio::select! {
                () = sleep(LOOK_EVERY) => {}
                () = async { sleep(LOOK_AFTER).await; self.inner.stale.notified().await } => {}
            }
            self.inner.look().await;
        }
    }
}

impl Tenants {
    fn known(&self, tenant: &Label, quota: u64) -> Arc<Tenant> {
        let mut tenants = self.tenants();
        let known = match tenants.get(tenant) {
            Some(known) => Arc::clone(known),
            None => {
                let new = Arc::new(Tenant::new(quota));
                tenants.insert(tenant.clone(), Arc::clone(&new));
                new
            }
        };
        drop(tenants);
        if known.tally().is_stale(Instant::now()) {
            self.stale.notify_one();
        }
        known
    }

    async fn look_and_admit(
        &self,
        tenant: &Label,
        known: Arc<Tenant>,
        call: CallId,
    ) -> Result<Admitted, NoQuota> {
        let looking = known.looking.lock().await;
        // Another request may have looked meanwhile.
        if let Some(admitted) = Admitted::take(&known.tally, call, known.quota) {
            return Ok(admitted);
        }
        if let Some(why) = known.tally().is_shut(Instant::now()) {
            return Err(why);
        }
        let (look, asked) = {
            let tally = known.tally();
            (tally.begin(Instant::now()), tally.asked(ASKED_MAX))
        };
        let doing = "count the open calls of a tenant";
        let counting = open_counts::of(&self.pool, tenant, &asked);
        let why = match within(doing, LOOK_MAX, counting).await {
            Ok(found) => {
                known.tally().seen(look, &found);
                if let Some(admitted) = Admitted::take(&known.tally, call, known.quota) {
                    return Ok(admitted);
                }
                NoQuota::Full(known.quota)
            }
            // A tenant that seems full is not let in without a count.
            Err(error) => {
                // Its callers are refused, which is counted, with each look.
                tracing::debug!(error = report(&error), "a quota was not looked at");
                NoQuota::Unreadable
            }
        };
        known.tally().shut(why, Instant::now());
        drop(looking);
        Err(why)
    }

    async fn look(&self) {
        let looks = self.due();
        if looks.is_empty() {
            return;
        }
        let names: Vec<Label> = looks.iter().map(|(name, ..)| name.clone()).collect();
        let looking = timeout(LOOK_MAX, open_counts::of_all(&self.pool, &names)).await;
        match looking {
            Ok(Ok(found)) => {
                for ((_, tenant, look), calls) in looks.into_iter().zip(found) {
                    let found = Open {
                        calls,
                        there: Vec::new(),
                    };
                    tenant.tally().seen(look, &found);
                }
            }
            Ok(Err(error)) => {
                tracing::debug!(error = report(&error), "open calls were not counted");
            }
            Err(_too_slow) => tracing::debug!("open calls were not counted in time"),
        }
        self.forget();
    }

    /// The tenants that are next: those with new calls since the last look, the longest ago first.
    fn due(&self) -> Vec<(Label, Arc<Tenant>, Look)> {
        let now = Instant::now();
        let mut due: Vec<_> = {
            let tenants = self.tenants();
            let moved = tenants.iter().filter_map(|(name, tenant)| {
                let tally = tenant.tally();
                tally
                    .has_moved()
                    .then(|| (tally.looked(), name.clone(), Arc::clone(tenant)))
            });
            moved.collect()
        };
        due.sort_by_key(|(looked, ..)| *looked);
        due.truncate(LOOKED_AT_ONCE);
        due.into_iter()
            .map(|(_, name, tenant)| {
                let look = tenant.tally().begin(now);
                (name, tenant, look)
            })
            .collect()
    }

    /// Forgets tenants without new or pending calls, once there are many.
    fn forget(&self) {
        let mut tenants = self.tenants();
        if tenants.len() > TENANTS_MAX {
            tenants.retain(|_, tenant| Arc::strong_count(tenant) > 1 || !tenant.tally().is_idle());
        }
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<Label, Arc<Tenant>>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long one look may take; the next one goes on from there.
const LOOK_MAX: Duration = Duration::from_secs(2);

impl Tenant {
    fn new(quota: u64) -> Self {
        Self {
            quota,
            tally: Arc::default(),
            looking: tokio::sync::Mutex::default(),
        }
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        locked(&self.tally)
    }
}

fn locked(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Admitted {
    /// Lets a call through, if the tally has fewer than `most`.
    pub(crate) fn take(tally: &Arc<Mutex<Tally>>, call: CallId, most: u64) -> Option<Self> {
        let taken = locked(tally).take(call, most);
        taken.then(|| Self(Some((Arc::clone(tally), call))))
    }

    /// The call is in the ledger: the ledger gives its place back when the call ends.
    pub(crate) fn committed(&mut self) {
        if let Some((tally, call)) = self.0.take() {
            locked(&tally).committed(call);
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if let Some((tally, call)) = self.0.take() {
            locked(&tally).given_up(call);
        }
    }
}
