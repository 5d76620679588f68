//! How long first attempts took, where the fleet learns a timeout from it: counted by one worker until it reports.

use std::{
    collections::HashMap,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use fleet::{ids::ToolName, learn::RunTimes, store::timeouts::CountedRunTimes};

/// Run times that were counted and not reported yet: some hundreds for each tool whose timeout is learned.
#[derive(Debug, Default)]
pub(crate) struct RunTimeCounts(Mutex<HashMap<Counted, u64>>);

/// What is counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Counted {
    pub(crate) tool: ToolName,
    pub(crate) version: i32,
    pub(crate) limit_ms: u64,
    pub(crate) took_ms: u64,
    pub(crate) cut_off: bool,
}

impl RunTimeCounts {
    fn counts(&self) -> MutexGuard<'_, HashMap<Counted, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One attempt more.
    pub(crate) fn add(&self, counted: Counted) {
        *self.counts().entry(counted).or_default() += 1;
    }

    /// Takes what was counted since the last time.
    pub(crate) fn take(&self) -> Vec<CountedRunTimes> {
        let counts = mem::take(&mut *self.counts());
        let counted = counts.into_iter().map(|(counted, count)| CountedRunTimes {
            tool: counted.tool,
            version: counted.version,
            times: RunTimes {
                limit_ms: counted.limit_ms,
                took_ms: counted.took_ms,
                cut_off: counted.cut_off,
                count,
            },
        });
        counted.collect()
    }
}
