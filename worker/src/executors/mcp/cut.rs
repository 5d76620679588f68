//! When an attempt must end.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::came::CutOff;
use crate::executors::{AttemptContext, Stop};

/// When an attempt must end: at a moment, or when it is told to.
#[derive(Debug, Clone)]
pub(super) struct AttemptEnd {
    pub(super) until: Instant,
    pub(super) stop: Stop,
}

impl AttemptEnd {
    pub(super) fn of(context: &AttemptContext) -> Self {
        Self {
            until: context.until,
            stop: context.stop.clone(),
        }
    }

    /// The same, and after this time at the latest.
    pub(super) fn within(&self, limit: Duration) -> Self {
        Self {
            until: self.until.min(Instant::now() + limit),
            stop: self.stop.clone(),
        }
    }

    /// Waits until the attempt must end. Cancel-safe.
    pub(super) async fn told(&self) -> CutOff {
        tokio::select! {
            biased;
            reason = self.stop.told() => CutOff::Stopped(reason),
            () = sleep_until(self.until) => CutOff::TimedOut,
        }
    }

    /// Why it must end now, if it must.
    pub(super) fn is_over(&self) -> Option<CutOff> {
        let stopped = self.stop.asked().map(CutOff::Stopped);
        stopped.or_else(|| (Instant::now() >= self.until).then_some(CutOff::TimedOut))
    }
}
