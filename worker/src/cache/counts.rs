//! What the ledger said of calls whose tools have a cache, for the metrics of the process and for the ledger.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use fleet::{
    ids::ToolName,
    modes::Brake,
    store::{answers::Looked, interceptors::InterceptorCounts},
    telemetry::metrics,
};

/// What caches did on this worker since it started.
#[derive(Debug, Default)]
pub(crate) struct CacheCounts {
    asked: AtomicU64,
    went_on: AtomicU64,
    answered: AtomicU64,
    followed: AtomicU64,
    own_us: AtomicU64,
}

impl CacheCounts {
    /// The ledger has said this of a call, after so long.
    pub(super) fn looked(&self, tool: &ToolName, looked: &Looked, took: Duration) {
        let (count, found) = match looked {
            Looked::Alone => (&self.went_on, "alone"),
            Looked::Leads => (&self.went_on, "miss"),
            Looked::Answered(_) | Looked::Hit => (&self.answered, "hit"),
            Looked::Follows(_) => (&self.followed, "followed"),
        };
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.asked.fetch_add(1, Relaxed);
        self.own_us.fetch_add(micros, Relaxed);
        count.fetch_add(1, Relaxed);
        metrics().looked(tool, found);
    }

    /// The counts as they are now; `None`: no call was asked about.
    pub(crate) fn counts(&self) -> Option<InterceptorCounts> {
        let calls = self.asked.load(Relaxed);
        (calls > 0).then(|| InterceptorCounts {
            name: Brake::Cache.as_str().to_owned(),
            calls,
            continued: self.went_on.load(Relaxed),
            waited: self.followed.load(Relaxed),
            answered: self.answered.load(Relaxed),
            own_us: self.own_us.load(Relaxed),
            ..InterceptorCounts::default()
        })
    }
}
