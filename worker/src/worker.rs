//! The state that all attempts of one worker process share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use fleet::{
    bus::{connect::Bus, events::Events},
    ending::{Ending, Moved},
    ids::{AttemptId, CallId, WorkerId},
    lease::Lease,
    registry::Registry,
    secrets::Secrets,
    store::{
        PgPool, StoreError,
        answers::Looking,
        files::FileQuota,
        ledger::{Claiming, Completing},
        session::Postgres,
    },
    wire::{proof::DoneSecret, token::TokenSecret},
};
use tokio::{sync::Semaphore, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    brake_counts::{CacheCounts, FallbackCounts, LargeResultCounts},
    breaker::{counts::BreakerCounts, desk::BreakerDesk},
    executors::{chat::ModelEdits, registry::Executors},
    handover::Handover,
    lacks::SaidLacks,
    onion::{Hearing, Link},
    programs::Programs,
    put_back::PuttingBack,
    reply::Replies,
    retry_budgets::RetryBudgets,
    run_times::RunTimeCounts,
    running::Attempts,
};

/// The largest envelope that is sent, in bytes. A dispatcher reads a larger one from the row.
const REPLY_MAX: usize = 512 * 1024;

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
    /// What it has counted of breakers.
    pub(crate) breakers: Arc<BreakerCounts>,
    /// Whether targets may be tried.
    pub(crate) breaker_desk: BreakerDesk,
    /// Looks for kept answers.
    pub(crate) looking: Looking,
    /// What it has counted of caches.
    pub(crate) cache: Arc<CacheCounts>,
    /// What it has counted of fallbacks.
    pub(crate) fallbacks: FallbackCounts,
    /// What it has counted of large results.
    pub(crate) large_results: LargeResultCounts,
    /// What it has counted of interceptors of model calls.
    pub(crate) model_edits: Arc<ModelEdits>,
    pub(crate) claiming: Claiming,
    pub(crate) completing: Completing,
    pub(crate) executors: Executors,
    pub(crate) secrets: Secrets,
    /// Hands the files of calls over to tools.
    pub(crate) handover: Handover,
    /// How many files a tenant may keep, parts of answers among them.
    pub(crate) file_quota: FileQuota,
    /// The secret of the tokens of tools that may answer later.
    pub(crate) completion_tokens: TokenSecret,
    /// The interceptors of the program, by their order.
    pub(crate) interceptors: Arc<[Link]>,
    /// Lets them hear how calls ended.
    pub(crate) hearing: Hearing,
    /// Cancelled when running attempts must end now.
    pub(crate) work: CancellationToken,
    pub(crate) postgres: Postgres,
    /// The lease, and the number of quarantines when it was renewed: after lost writes the lease is over.
    pub(crate) lease: Mutex<Option<(Lease, i32)>>,
    /// As many outcomes as there are slots may be written without a slot.
    pub(crate) endings: Semaphore,
    /// How many programs run at a time.
    pub(crate) programs: Programs,
    /// Takes calls that find no program slot.
    pub(crate) putting_back: PuttingBack,
    /// How many further attempts it may ask of tools.
    pub(crate) retry_budgets: RetryBudgets,
    /// How long first attempts took whose timeout is learned.
    pub(crate) run_times: RunTimeCounts,
    /// What it lacks for the tools of its queues, as far as its log says so.
    pub(crate) lacks: SaidLacks,
    /// The attempts that run now.
    pub(crate) attempts: Attempts,
    /// Claims without an answer, by the moment when they were given up.
    pub(crate) given_up: Mutex<HashMap<AttemptId, (CallId, Instant)>>,
}

impl WorkerProcess {
    /// Whether an attempt may start now.
    pub(crate) fn may_start(&self) -> bool {
        let lease = self
            .lease
            .lock()
            .expect("no thread panics while holding the lease");
        let quarantines = self.postgres.quarantines();
        lease.is_some_and(|(lease, on)| on == quarantines && lease.may_start(Instant::now()))
    }

    /// Remembers a claim that is about to be sent. Unless it is answered it counts as given up, however its sender ends: it may
    /// be committed all the same, and no worker would run it.
    pub(crate) const fn remember(&self, call: CallId, attempt: AttemptId) -> Remembered<'_> {
        Remembered {
            worker: self,
            call,
            attempt,
            answered: false,
        }
    }

    /// How this worker signs what it writes.
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

impl WorkerProcess {
    /// Tells the dispatcher that accepted the call, when the call is decided, and the followers of its session. Without the secret
    /// of a claim it can only ring the bell: no dispatcher believes more.
    pub(crate) async fn reply(
        &self,
        call: CallId,
        moved: Moved,
        ending: Ending,
        secret: Option<DoneSecret>,
    ) {
        let event = || moved.event(&ending);
        self.events.tell(moved.followed(), event);
        if !moved.state.answers_waiters() {
            return;
        }
        moved.count(&ending.kind);
        let dispatcher = moved.dispatcher;
        let limit = REPLY_MAX.min(self.bus.payload_max().saturating_sub(4 * 1024));
        let proven = || {
            let envelope = moved.envelope(call, ending.kind)?.to_bytes();
            let secret = secret.filter(|_| envelope.len() <= limit)?;
            Some(secret.prove(&envelope))
        };
        // An empty body only rings the bell.
        let body = proven().unwrap_or_default();
        self.replies.tell(dispatcher, call, body).await;
    }
}

/// A claim that was sent, or is about to be. Dropping it without an answer gives it up.
pub(crate) struct Remembered<'a> {
    worker: &'a WorkerProcess,
    call: CallId,
    attempt: AttemptId,
    answered: bool,
}

impl Remembered<'_> {
    /// The ledger has answered the claim.
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
