//! The slots of requests: a request takes one while it is in hand, a batch one for each of its calls.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// The slots of one dispatcher. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    free: Arc<Semaphore>,
    all: usize,
}

impl Slots {
    /// So many, all free.
    pub(crate) fn new(all: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(all)),
            all,
        }
    }

    /// One for a request, if one is free.
    pub(crate) fn one(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }

    /// What a request needs beyond the one it holds, if that is free. Who needs more than there are takes all of them.
    pub(crate) fn further(&self, needed: usize) -> Option<SemaphorePermit<'_>> {
        let further = u32::try_from(needed.min(self.all).saturating_sub(1));
        let further = further.expect("there are at most 200,000 slots");
        self.free.try_acquire_many(further).ok()
    }
}
