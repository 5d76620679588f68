//! What caches, fallbacks and large results have done on this worker since it started, for the ledger, and looks at caches for the
//! metrics of the process.

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
    pub(crate) fn looked(&self, tool: &ToolName, looked: &Looked, took: Duration) {
        let (count, found) = match looked {
            Looked::Alone => (&self.went_on, "alone"),
            Looked::Leads => (&self.went_on, "miss"),
            Looked::Answered(_) | Looked::Hit => (&self.answered, "hit"),
            Looked::Follows(_) => (&self.followed, "followed"),
        };
        let micros = micros(took);
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

/// What fallbacks did on this worker since it started.
#[derive(Debug, Default)]
pub(crate) struct FallbackCounts {
    calls: AtomicU64,
    answered: AtomicU64,
    own_us: AtomicU64,
}

impl FallbackCounts {
    /// One was looked for, for so long.
    pub(crate) fn looked(&self, is_found: bool, took: Duration) {
        let micros = micros(took);
        self.calls.fetch_add(1, Relaxed);
        self.answered.fetch_add(u64::from(is_found), Relaxed);
        self.own_us.fetch_add(micros, Relaxed);
    }

    /// The counts as they are now; `None`: none was looked for.
    pub(crate) fn counts(&self) -> Option<InterceptorCounts> {
        let calls = self.calls.load(Relaxed);
        let answered = self.answered.load(Relaxed);
        (calls > 0).then(|| InterceptorCounts {
            name: Brake::Fallback.as_str().to_owned(),
            calls,
            continued: calls.saturating_sub(answered),
            answered,
            own_us: self.own_us.load(Relaxed),
            ..InterceptorCounts::default()
        })
    }
}

/// What became of the answers of tools with `large_result` on this worker since it started.
#[derive(Debug, Default)]
pub(crate) struct LargeResultCounts {
    seen: AtomicU64,
    shortened: AtomicU64,
    own_us: AtomicU64,
}

impl LargeResultCounts {
    pub(crate) fn looked(&self, is_shortened: bool, took: Duration) {
        let micros = micros(took);
        self.seen.fetch_add(1, Relaxed);
        self.shortened.fetch_add(u64::from(is_shortened), Relaxed);
        self.own_us.fetch_add(micros, Relaxed);
    }

    /// The counts as they are now; `None`: there was no such answer.
    pub(crate) fn counts(&self) -> Option<InterceptorCounts> {
        let calls = self.seen.load(Relaxed);
        let changed = self.shortened.load(Relaxed);
        (calls > 0).then(|| InterceptorCounts {
            name: Brake::LargeResult.as_str().to_owned(),
            calls,
            continued: calls.saturating_sub(changed),
            changed,
            own_us: self.own_us.load(Relaxed),
            ..InterceptorCounts::default()
        })
    }
}

fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}
