//! What every attempt of one worker process shares.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use fleet::{
    bus::connect::Bus,
    ids::{AttemptId, CallId, WorkerId},
    lease::Lease,
    registry::Registry,
    secrets::Secrets,
    store::{
        PgPool, StoreError,
        complete::{Ended, Ending},
        ledger::{Claiming, Completing},
        session::Postgres,
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
    pub(crate) postgres: Postgres,
    /// The lease, and how often the ledger had lost writes when it was renewed: after a loss it says nothing any more.
    pub(crate) lease: Mutex<Option<(Lease, i32)>>,
    /// Claims whose answer never came, by when they were given up.
    pub(crate) given_up: Mutex<HashMap<AttemptId, (CallId, Instant)>>,
}

impl Worker {
    /// Whether an effect may be started now.
    pub(crate) fn may_start(&self) -> bool {
        let lease = self
            .lease
            .lock()
            .expect("nobody panics while holding the lease");
        let ground = self.postgres.quarantines();
        lease.is_some_and(|(lease, on)| on == ground && lease.may_start(Instant::now()))
    }

    /// Remembers a claim that was given up: it may be committed all the same, and nobody runs it.
    pub(crate) fn give_up(&self, call: CallId, attempt: AttemptId) {
        let mut given_up = self
            .given_up
            .lock()
            .expect("nobody panics while holding the claims");
        given_up.insert(attempt, (call, Instant::now()));
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
