//! Large results: whether callers get a part of an answer, by the manifest and by what operators say of that.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use fleet::{
    call::Language,
    ending::Ending,
    ids::Label,
    manifest::Manifest,
    modes::{Brake, InterceptMode},
    store::interceptors::InterceptorCounts,
    telemetry::metrics,
};
use tokio::time::Instant;

use crate::{brakes, worker::WorkerProcess};

/// What became of the answers of tools with `large_result` on this worker since it started.
#[derive(Debug, Default)]
pub(crate) struct LargeResultCounts {
    seen: AtomicU64,
    shortened: AtomicU64,
    own_us: AtomicU64,
}

impl LargeResultCounts {
    fn looked(&self, is_shortened: bool, took: Duration) {
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

/// The ending with what callers get of its answer. Of a tool without `large_result` that is all of it, and this costs nothing.
pub(crate) fn shortened(
    worker: &WorkerProcess,
    manifest: &Manifest,
    tenant: &Label,
    ending: Ending,
    language: Language,
) -> Ending {
    if manifest.large_result.is_none() || !ending.has_result() {
        return ending;
    }
    let name = &manifest.name;
    let mode = brakes::mode_of(worker, Brake::LargeResult, name, Some(tenant));
    if mode == InterceptMode::Off {
        return ending;
    }
    let began = Instant::now();
    let ending = ending.shortened(manifest.large_result.as_ref(), language);
    let is_large = ending.is_shortened();
    let enforces = mode == InterceptMode::Enforce;
    worker
        .large_results
        .looked(is_large && enforces, began.elapsed());
    match (is_large, enforces) {
        (true, true) => {
            metrics().shortened(name);
            ending
        }
        (true, false) => {
            metrics().observed(name, Brake::LargeResult);
            ending.whole()
        }
        (false, _) => ending,
    }
}
