//! Lets interceptors hear how calls ended, when these hold neither slot nor lease any more.

use std::{sync::Arc, time::Duration};

use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};
use tokio_util::task::TaskTracker;

use super::{
    hook::{Fault, Hook},
    passage::Passage,
};

/// How long the hooks of one call may take together.
const TOGETHER_MAX: Duration = Duration::from_secs(10);
/// How long a worker that ends waits for them: no longer than one call's.
const LAST_MAX: Duration = Duration::from_secs(11);

/// Runs the `ended` hooks. Clones share the bound.
#[derive(Debug, Clone)]
pub(crate) struct Hearing {
    tasks: TaskTracker,
    permits: Arc<Semaphore>,
}

impl Hearing {
    /// At most `at_a_time` calls are told of at a time.
    pub(crate) fn new(at_a_time: usize) -> Self {
        Self {
            tasks: TaskTracker::new(),
            permits: Arc::new(Semaphore::new(at_a_time)),
        }
    }

    /// Tells, beside everything else.
    pub(super) fn tell(&self, passage: Passage) {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        match (permit, Handle::try_current()) {
            (Ok(permit), Ok(runtime)) => {
                drop(self.tasks.spawn_on(tell(passage, permit), &runtime));
            }
            (Err(_), _) | (_, Err(_)) => {
                for link in &passage.chain[..passage.called] {
                    let active = &link.active;
                    let (name, none) = (&active.about.name, Duration::ZERO);
                    active
                        .tally
                        .ran(name, Hook::Ended, none, Some(&Fault::TooMany));
                }
            }
        }
    }

    /// Waits until all are told, bounded.
    pub(crate) async fn finish(&self) {
        self.tasks.close();
        if timeout(LAST_MAX, self.tasks.wait()).await.is_err() {
            tracing::warn!("interceptors still hear how calls ended; the worker ends without them");
        }
    }
}

async fn tell(mut passage: Passage, _permit: OwnedSemaphorePermit) {
    let until = Instant::now() + TOGETHER_MAX;
    for link in passage.chain[..passage.called].iter().rev() {
        let (active, call) = (&link.active, passage.subject.view());
        let hook = active
            .hooks
            .ended(&call, &mut passage.carried, &passage.ended);
        drop(active.timed(Hook::Ended, until, hook).await);
    }
}
