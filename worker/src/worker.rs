//! What every attempt of one worker process shares.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use fleet::{
    bus::connect::Bus,
    ids::{AttemptId, WorkerId},
    lease::Lease,
    registry::Registry,
    secrets::Secrets,
    store::{
        PgPool, StoreError,
        complete::{Ended, Ending},
        ledger::{Claiming, Completing},
    },
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::executors::Executors;

/// One worker process.
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) bus: Bus,
    pub(crate) pool: PgPool,
    pub(crate) registry: Registry,
    pub(crate) claiming: Claiming,
    pub(crate) completing: Completing,
    pub(crate) executors: Executors,
    pub(crate) secrets: Secrets,
    /// Cancelled when running attempts must end now.
    pub(crate) work: CancellationToken,
    pub(crate) lease: Mutex<Option<Lease>>,
    pub(crate) attempts: Arc<Mutex<HashSet<AttemptId>>>,
}

impl Worker {
    /// Whether an effect may be started now.
    pub(crate) fn may_start(&self) -> bool {
        let lease = self
            .lease
            .lock()
            .expect("nobody panics while holding the lease");
        lease.is_some_and(|lease| lease.may_start(Instant::now()))
    }

    /// Remembers an attempt before its claim is sent. A running row of ours that is not remembered was given up.
    pub(crate) fn register(&self, attempt: AttemptId) -> InFlight {
        self.attempts
            .lock()
            .expect("nobody panics while holding the attempts")
            .insert(attempt);
        InFlight {
            attempt,
            attempts: Arc::clone(&self.attempts),
        }
    }

    /// Whether the attempt is in this process's hands.
    pub(crate) fn is_in_flight(&self, attempt: AttemptId) -> bool {
        self.attempts
            .lock()
            .expect("nobody panics while holding the attempts")
            .contains(&attempt)
    }

    /// How this worker signs what it records.
    pub(crate) fn actor(&self) -> String {
        format!("worker {}", self.id)
    }

    /// Ends something that waits for nobody; gives up soon.
    pub(crate) async fn end(&self, ending: &Ending) -> Result<Option<Ended>, StoreError> {
        self.completing
            .complete(ending, Duration::from_secs(5))
            .await
    }
}

/// An attempt in this process's hands; dropping it lets go.
pub(crate) struct InFlight {
    attempt: AttemptId,
    attempts: Arc<Mutex<HashSet<AttemptId>>>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.attempts
            .lock()
            .expect("nobody panics while holding the attempts")
            .remove(&self.attempt);
    }
}
