//! How many turns one gateway waits for by itself.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most turns whose final call one gateway waits for. Each has one question on its way.
const WAITED_MAX: usize = 256;

/// The turns whose final call this gateway waits for. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct AnswersWaited(Arc<Semaphore>);

impl Default for AnswersWaited {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(WAITED_MAX)))
    }
}

impl AnswersWaited {
    /// A place for one more, which is free again when it is dropped; `None`: there is none.
    pub(super) fn enter(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }
}
