//! How many answers of tools with `large_result` there were, and of how many callers get a part, for the ledger.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use fleet::{modes::Brake, store::interceptors::InterceptorCounts};

/// What became of the answers of tools with `large_result` on this worker since it started.
#[derive(Debug, Default)]
pub(crate) struct LargeResultCounts {
    seen: AtomicU64,
    shortened: AtomicU64,
    own_us: AtomicU64,
}

impl LargeResultCounts {
    pub(super) fn looked(&self, is_shortened: bool, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
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
