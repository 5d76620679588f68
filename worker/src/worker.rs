//! What every attempt of one worker process shares.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use fleet::{
    bus::{connect::Bus, events::Events},
    ending::{Ending, Moved},
    ids::{AttemptId, CallId, WorkerId},
    lease::Lease,
    registry::Registry,
    secrets::Secrets,
    store::{
        PgPool, StoreError,
        ledger::{Claiming, Completing},
        session::Postgres,
    },
};
use tokio::{sync::Semaphore, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    executors::registry::Executors, programs::Programs, put_back::PuttingBack, reply::Replies,
    running::Attempts,
};

/// One worker process.
pub(crate) struct WorkerProcess {
    pub(crate) id: WorkerId,
    /// A label for people.
    pub(crate) name: String,
    pub(crate) bus: Bus,
    pub(crate) events: Events,
    pub(crate) replies: Replies,
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
    /// As many attempts as there are slots may be written without one.
    pub(crate) endings: Semaphore,
    /// How many programs run at a time.
    pub(crate) programs: Programs,
    /// Where calls go that find no slot for a program.
    pub(crate) putting_back: PuttingBack,
    /// What runs here now.
    pub(crate) attempts: Attempts,
    /// Claims whose answer never came, by when they were given up.
    pub(crate) given_up: Mutex<HashMap<AttemptId, (CallId, Instant)>>,
}

impl WorkerProcess {
    /// Whether an effect may be started now.
    pub(crate) fn may_start(&self) -> bool {
        let lease = self
            .lease
            .lock()
            .expect("no thread panics while holding the lease");
        let quarantines = self.postgres.quarantines();
        lease.is_some_and(|(lease, on)| on == quarantines && lease.may_start(Instant::now()))
    }

    /// Remembers a claim that is about to be sent. Unless it is answered it counts as given up, however its sender ends:
    /// it may be committed all the same, and no worker runs it.
    pub(crate) const fn remember(&self, call: CallId, attempt: AttemptId) -> Remembered<'_> {
        Remembered {
            worker: self,
            call,
            attempt,
            answered: false,
        }
    }

    /// How this worker signs what it records.
    pub(crate) fn actor(&self) -> String {
        format!("worker {}", self.id)
    }

    /// Completes a call outside an attempt's path; tries for 5 s.
    pub(crate) async fn end(&self, ending: &Ending) -> Result<Option<Moved>, StoreError> {
        self.completing
            .complete(ending, Duration::from_secs(5))
            .await
    }
}

/// A claim that was sent, or is about to be. Dropping it gives it up.
pub(crate) struct Remembered<'a> {
    worker: &'a WorkerProcess,
    call: CallId,
    attempt: AttemptId,
    answered: bool,
}

impl Remembered<'_> {
    /// The ledger has said whose the call is.
    pub(crate) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Remembered<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let mut given_up = self
                .worker
                .given_up
                .lock()
                .expect("no thread panics while holding the claims");
            given_up.insert(self.attempt, (self.call, Instant::now()));
        }
    }
}
