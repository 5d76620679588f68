//! How often an answer was looked for that stands in for a tool's, for the ledger.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use fleet::{modes::Brake, store::interceptors::InterceptorCounts};

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
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
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
