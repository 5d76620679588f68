//! The attempts that this process runs now, so that a cancellation can reach them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use fleet::ids::{AttemptId, CallId};
use tokio_util::sync::CancellationToken;

use crate::executors::{Stop, StopReason};

/// Every attempt between its claim and its end. The key is the attempt, because an attempt that was taken away may run beside
/// the next attempt of its call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attempts(Arc<Mutex<HashMap<AttemptId, (CallId, Stop)>>>);

/// An attempt's entry. Dropping it removes the attempt.
#[derive(Debug)]
pub(crate) struct Entry {
    attempts: Attempts,
    attempt: AttemptId,
    /// Tells this attempt to end.
    pub(crate) stop: Stop,
}

impl Attempts {
    /// Enters an attempt, before its claim is sent: a bell may ring as soon as the claim is committed.
    pub(crate) fn enter(
        &self,
        call: CallId,
        attempt: AttemptId,
        work: &CancellationToken,
    ) -> Entry {
        let stop = Stop::under(work.clone());
        self.lock().insert(attempt, (call, stop.clone()));
        Entry {
            attempts: self.clone(),
            attempt,
            stop,
        }
    }

    /// Tells an attempt that its call was cancelled.
    pub(crate) fn cancel(&self, attempt: AttemptId) {
        if let Some((call, stop)) = self.lock().get(&attempt) {
            tracing::debug!(%call, "the call was taken back; its attempt is told to end");
            stop.cancel();
        }
    }

    /// The attempts of these calls that were not cancelled yet.
    pub(crate) fn uncancelled(
        &self,
        asked_for: impl Fn(CallId) -> bool,
    ) -> Vec<(CallId, AttemptId)> {
        let attempts = self.lock();
        let running = attempts.iter().filter(|(_, (call, stop))| {
            asked_for(*call) && stop.asked() != Some(StopReason::Cancelled)
        });
        running
            .map(|(attempt, (call, _))| (*call, *attempt))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<AttemptId, (CallId, Stop)>> {
        self.0
            .lock()
            .expect("no thread panics while holding the attempts")
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.attempts.lock().remove(&self.attempt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_attempts_of_one_call_are_told_apart() {
        let (attempts, work) = (Attempts::default(), CancellationToken::new());
        let call = CallId::generate();
        let ids = [AttemptId::generate(), AttemptId::generate()];
        let [first, second] = ids.map(|attempt| attempts.enter(call, attempt, &work));
        attempts.cancel(ids[1]);
        assert_eq!(
            (first.stop.asked(), second.stop.asked()),
            (None, Some(StopReason::Cancelled))
        );
        assert_eq!(attempts.uncancelled(|of| of == call), [(call, ids[0])]);
        work.cancel();
        assert_eq!(
            (first.stop.asked(), second.stop.asked()),
            (Some(StopReason::Drained), Some(StopReason::Cancelled))
        );
        drop((first, second));
        assert!(attempts.uncancelled(|_| true).is_empty());
    }
}
