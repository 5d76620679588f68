//! Counts what an interceptor does, for the metrics of the process and for the ledger.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use fleet::{store::interceptors::InterceptorCounts, telemetry::metrics};
use tokio::time::Instant;

use super::hook::{Fault, Hook};
use crate::interceptor::Verdict;

/// What one interceptor did on this worker since it started.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    calls: AtomicU64,
    continued: AtomicU64,
    refused: AtomicU64,
    waited: AtomicU64,
    changed: AtomicU64,
    errors: AtomicU64,
    own_us: AtomicU64,
    last_error: Mutex<Option<LastError>>,
}

#[derive(Debug, Clone)]
struct LastError {
    said: String,
    at: Instant,
}

/// The most characters of an error that are kept.
const ERROR_MAX: usize = 300;

impl Tally {
    /// A hook has returned, or failed.
    pub(super) fn ran(&self, name: &str, hook: Hook, took: Duration, fault: Option<&Fault>) {
        if hook == Hook::Before {
            self.calls.fetch_add(1, Relaxed);
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.own_us.fetch_add(micros, Relaxed);
        metrics().intercept_took(name, took, fault.is_some());
        let Some(fault) = fault else { return };
        tracing::debug!(interceptor = name, %hook, %fault, "an interceptor failed");
        self.errors.fetch_add(1, Relaxed);
        // A fault holds no value of a call, so nothing has to be masked before it is cut.
        let mut said = format!("{hook}: {fault}");
        said.truncate(said.floor_char_boundary(ERROR_MAX));
        let at = Instant::now();
        *self.last() = Some(LastError { said, at });
    }

    /// It has said this of a call.
    pub(super) fn said(&self, name: &str, verdict: &Verdict) {
        let (count, word) = match verdict {
            Verdict::Continue => (&self.continued, "continue"),
            Verdict::Refuse(_) => (&self.refused, "refuse"),
            Verdict::Wait(_) => (&self.waited, "wait"),
        };
        count.fetch_add(1, Relaxed);
        metrics().intercepted(name, word);
    }

    /// It has changed an answer.
    pub(super) fn changed(&self, name: &str) {
        self.changed.fetch_add(1, Relaxed);
        metrics().intercepted(name, "change");
    }

    fn last(&self) -> MutexGuard<'_, Option<LastError>> {
        self.last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts as they are now.
    pub(crate) fn counts(&self, name: &str) -> InterceptorCounts {
        let last = self.last().clone();
        let millis = |at: Instant| u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
        InterceptorCounts {
            name: name.to_owned(),
            calls: self.calls.load(Relaxed),
            continued: self.continued.load(Relaxed),
            refused: self.refused.load(Relaxed),
            waited: self.waited.load(Relaxed),
            changed: self.changed.load(Relaxed),
            answered: 0,
            errors: self.errors.load(Relaxed),
            own_us: self.own_us.load(Relaxed),
            last_error_age_ms: last.as_ref().map(|last| millis(last.at)),
            last_error: last.map(|last| last.said),
        }
    }
}
