//! Counts what the interceptors of model calls did on this worker, for its metrics and for the ledger.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use fleet::{modes::Brake, store::interceptors::InterceptorCounts, telemetry::metrics};
use tokio::time::Instant;

/// Those that there are, in the order in which requests pass them. The last two have a request of each route, behind all that the
/// others have added: `context` counts it against the room of that route.
pub(crate) const IN_ORDER: [Brake; 5] = [
    Brake::Delegation,
    Brake::ToolSelection,
    Brake::Todo,
    Brake::Context,
    Brake::Log,
];

/// What they did since the worker started.
#[derive(Debug, Default)]
pub(crate) struct EditCounts([OneCount; IN_ORDER.len()]);

#[derive(Debug, Default)]
struct OneCount {
    calls: AtomicU64,
    changed: AtomicU64,
    errors: AtomicU64,
    own_us: AtomicU64,
    failed_at: Mutex<Option<Instant>>,
}

/// What became of a request or a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EditPassed {
    Unchanged,
    Changed,
    /// It panicked: the request is as it was.
    Failed,
}

impl EditCounts {
    /// One has seen a request or a reply, and took so long. `is_new`: it is the first time in its call.
    pub(super) fn passed(&self, brake: Brake, passed: EditPassed, took: Duration, is_new: bool) {
        let name = brake.as_str();
        metrics().intercept_took(name, took, passed == EditPassed::Failed);
        let Some(at) = IN_ORDER.iter().position(|one| *one == brake) else {
            return;
        };
        let one = &self.0[at];
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        one.own_us.fetch_add(micros, Relaxed);
        one.calls.fetch_add(u64::from(is_new), Relaxed);
        match passed {
            EditPassed::Unchanged => metrics().intercepted(name, "continue"),
            EditPassed::Changed => {
                one.changed.fetch_add(1, Relaxed);
                metrics().intercepted(name, "change");
            }
            EditPassed::Failed => {
                one.errors.fetch_add(1, Relaxed);
                let mut at = one.failed_at.lock().unwrap_or_else(PoisonError::into_inner);
                *at = Some(Instant::now());
            }
        }
    }

    /// The counts as they are now, of those that have seen something.
    pub(crate) fn counts(&self) -> impl Iterator<Item = InterceptorCounts> {
        let all = IN_ORDER.iter().zip(&self.0);
        all.filter_map(|(brake, one)| {
            let calls = one.calls.load(Relaxed);
            let failed_at = *one.failed_at.lock().unwrap_or_else(PoisonError::into_inner);
            let age = failed_at.map(|at| at.elapsed().as_millis());
            (calls > 0).then(|| InterceptorCounts {
                name: brake.as_str().to_owned(),
                calls,
                continued: calls,
                changed: one.changed.load(Relaxed),
                errors: one.errors.load(Relaxed),
                own_us: one.own_us.load(Relaxed),
                last_error: age
                    .map(|_failed| "it panicked, and the request was sent as it was".to_owned()),
                last_error_age_ms: age.map(|age| u64::try_from(age).unwrap_or(u64::MAX)),
                ..InterceptorCounts::default()
            })
        })
    }
}
