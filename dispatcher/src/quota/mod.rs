//! The quota of open calls of each tenant.
//!
//! The ledger keeps the counts (`fleet/src/store/open_counts.rs`). A dispatcher reads those of the tenants it hears of a few
//! times a second and adds what it accepts itself, so the door asks no server. Only where that leaves no room does it read the
//! tenant's own count, and refuses if there really is none. A tenant exceeds its quota only by what is accepted before a
//! dispatcher has looked at it for the first time, or by others between two looks (`docs/limits.md`).

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
    },
    telemetry::report,
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};

pub(crate) use self::limits::Limits;
pub use self::limits::{BadQuotas, TenantQuotas};
use self::tally::{FULL_FOR, Look, Tally};

/// How often tenants are looked at that have had new calls.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How soon one is looked at of which nothing recent is known.
const LOOK_AFTER: Duration = Duration::from_millis(50);
/// Tenants in one look; the others' turn comes next.
const LOOKED_AT_ONCE: usize = 512;
/// Calls on the way that a look at one tenant asks about.
const ASKED_MAX: usize = 2_000;
/// Tenants that are remembered at most, unless more have calls on their way.
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
    /// A tenant came of which nothing recent is known.
    stale: Notify,
}

#[derive(Debug)]
struct Tenant {
    quota: u64,
    tally: Mutex<Tally>,
    /// Held by the request that looks at it; others wait for what it finds.
    looking: tokio::sync::Mutex<()>,
}

/// A call that was let through. It takes room until it is known to be in the ledger, or dropped.
#[derive(Debug, Default)]
pub(crate) struct Admitted(Option<(Arc<Tenant>, CallId)>);

/// Why a tenant may have no further call now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoQuota {
    /// It has as many open calls as it may have: so many.
    Full(u64),
    /// It seems to, and the ledger cannot be asked.
    Unreadable,
}

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

    /// Lets one more call of a tenant through, or says why it has no room for one.
    pub(crate) async fn admit(&self, tenant: &Label, call: CallId) -> Result<Admitted, NoQuota> {
        let Some(quota) = self.inner.limits.of(tenant) else {
            return Ok(Admitted::default());
        };
        let known = self.inner.known(tenant, quota);
        if known.take(call) {
            return Ok(Admitted(Some((known, call))));
        }
        // The rare way must not make every request's future large.
        Box::pin(self.inner.look_and_admit(tenant, known, call)).await
    }

    /// Looks at the tenants that have had new calls, for ever. Cancel-safe.
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
        let mut taken = known.take(call);
        if !taken && !known.tally().is_full(Instant::now()) {
            let (look, asked) = {
                let tally = known.tally();
                (tally.begin(Instant::now()), tally.asked(ASKED_MAX))
            };
            match open_counts::of(&self.pool, tenant, &asked).await {
                Ok(found) => known.tally().seen(look, &found),
                // A tenant that seems full is not let in blindly, and requests that wait for this look do not look in turn.
                Err(error) => {
                    tracing::warn!(error = report(&error), "a quota was not looked at");
                    known.tally().is_full_until(Instant::now() + FULL_FOR);
                    return Err(NoQuota::Unreadable);
                }
            }
            taken = known.take(call);
            if !taken {
                known.tally().is_full_until(Instant::now() + FULL_FOR);
            }
        }
        drop(looking);
        if taken {
            return Ok(Admitted(Some((known, call))));
        }
        Err(NoQuota::Full(known.quota))
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

    /// Whose turn it is: those that have had new calls since they were looked at, the longest ago first.
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

    /// Forgets those that nothing is lost with, once there are many.
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

/// How long one look may take; the next one goes on.
const LOOK_MAX: Duration = Duration::from_secs(2);

impl Tenant {
    fn new(quota: u64) -> Self {
        Self {
            quota,
            tally: Mutex::default(),
            looking: tokio::sync::Mutex::default(),
        }
    }

    fn take(&self, call: CallId) -> bool {
        self.tally().take(call, self.quota)
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admitted {
    /// The call is in the ledger: from here on its room is the ledger's to give back.
    pub(crate) fn committed(&mut self) {
        if let Some((tenant, call)) = self.0.take() {
            tenant.tally().committed(call);
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if let Some((tenant, call)) = self.0.take() {
            tenant.tally().given_up(call);
        }
    }
}
