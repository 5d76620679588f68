//! The ledger writer of one process: a lane per statement, a second one for large bodies and for what comes together,
//! and what to do with silence.

use std::{sync::Arc, time::Duration};

use sqlx::PgConnection;
use tokio::{sync::Mutex, task::JoinSet};

use super::{
    StoreError,
    accept::{Accept, AcceptedAt, NewCall},
    claim::{Claim, ClaimRow, Claimed, read_back},
    complete::{Complete, Ended, Ending},
    lane::{Lane, Reply, Statement as _},
    session::{Postgres, within},
    waits::Waits,
};
use crate::{
    delay::Reconnect,
    ids::{AttemptId, CallId, WorkerId},
    mutant::{self, Mutant},
    telemetry::metrics,
};

/// Rows heavier than this take the second lane, so that they do not hold up small ones.
const HEAVY_BYTES: usize = 64 * 1024;
/// How long a new call may have waited for its commit before others are not taken any more: a little longer than one
/// statement waits for a lock.
const BEHIND_AFTER: Duration = Duration::from_millis(1_500);

/// Accepts calls. Held by dispatchers.
#[derive(Debug, Clone)]
pub struct Accepting {
    light: Lane<Accept>,
    heavy: Lane<Accept>,
    light_waits: Arc<Waits>,
    heavy_waits: Arc<Waits>,
}

impl Accepting {
    /// Starts its lanes on `tasks`.
    pub fn start(postgres: &Postgres, tasks: &mut JoinSet<()>) -> Self {
        let statement = Arc::new(Accept);
        let (light, run_light) = Lane::new(Arc::clone(&statement), postgres.clone());
        let (heavy, run_heavy) = Lane::new(statement, postgres.clone());
        tasks.spawn(run_light);
        tasks.spawn(run_heavy);
        Self {
            light,
            heavy,
            light_waits: Arc::default(),
            heavy_waits: Arc::default(),
        }
    }

    /// Whether the ledger is so far behind that a new call of about so many bytes had better not be taken.
    pub fn is_behind(&self, bytes: usize) -> bool {
        let (lane, waits) = self.lane_for(bytes);
        lane.is_full() || waits.longest() > BEHIND_AFTER
    }

    /// Commits one call. [`Reply::Undecided`]: its key is taken.
    pub async fn accept(&self, call: NewCall) -> Reply<AcceptedAt> {
        let (lane, waits) = self.lane_for(Accept::weight(&call));
        let _waiting = waits.begin();
        lane.send(call).await
    }

    /// Commits calls that belong together, in one statement on the second lane; an answer for each, in order.
    pub async fn accept_all(&self, calls: Vec<NewCall>) -> Vec<Reply<AcceptedAt>> {
        let _waiting = self.heavy_waits.begin();
        self.heavy.send_all(calls).await
    }

    fn lane_for(&self, bytes: usize) -> (&Lane<Accept>, &Waits) {
        if bytes > HEAVY_BYTES {
            (&self.heavy, &self.heavy_waits)
        } else {
            (&self.light, &self.light_waits)
        }
    }
}

/// Claims calls for one worker process.
#[derive(Debug, Clone)]
pub struct Claiming {
    lane: Lane<Claim>,
    postgres: Postgres,
    /// One connection for reading claims back, used in turn: after an outage every claim in flight wants it at once.
    reading_back: Arc<Mutex<Option<PgConnection>>>,
}

impl Claiming {
    /// Starts its lane on `tasks`.
    pub fn start(worker: WorkerId, postgres: &Postgres, tasks: &mut JoinSet<()>) -> Self {
        let (lane, run) = Lane::new(Arc::new(Claim::new(worker)), postgres.clone());
        tasks.spawn(run);
        Self {
            lane,
            postgres: postgres.clone(),
            reading_back: Arc::default(),
        }
    }

    /// Claims one call. `None`: it is not ours, and nothing may run.
    ///
    /// When the answer is missing, the claim is read back on another connection with a row lock.
    ///
    /// # Errors
    ///
    /// The ledger could not be asked, or did not confirm the claim. Nothing may run, and the claim may have been committed,
    /// or be committed yet: whoever gives it up must look for it later.
    pub async fn claim(&self, row: ClaimRow) -> Result<Option<Claimed>, StoreError> {
        let doing = "claim a call";
        let (call, attempt) = (row.call_id, row.attempt_id);
        match self.lane.send(row).await {
            Reply::Done(claimed) => Ok(Some(claimed)),
            Reply::Undecided => Ok(None),
            Reply::Refused(source) => Err(StoreError::Refused { doing, source }),
            Reply::NotSent => Err(StoreError::Unavailable {
                doing,
                source: sqlx::Error::WorkerCrashed,
            }),
            Reply::Unknown if mutant::on(Mutant::SilentClaimIsNone) => Ok(None),
            Reply::Unknown => {
                // Boxed: the rare way must not make every claim's future large.
                let claimed = within(
                    doing,
                    READ_BACK_MAX,
                    Box::pin(self.read_back(call, attempt)),
                )
                .await?;
                metrics().lost_answer(Claim::NAME, claimed.is_some());
                let unconfirmed = || StoreError::Unavailable {
                    doing,
                    source: sqlx::Error::WorkerCrashed,
                };
                claimed.map(Some).ok_or_else(unconfirmed)
            }
        }
    }
}

impl Claiming {
    async fn read_back(
        &self,
        call: CallId,
        attempt: AttemptId,
    ) -> Result<Option<Claimed>, StoreError> {
        let mut idle = self.reading_back.lock().await;
        // Taken out: if we are given up in the middle, the connection is dropped with us.
        let mut connection = match idle.take() {
            Some(connection) => connection,
            None => self.postgres.connect().await?,
        };
        let read = read_back(&mut connection, call, attempt).await;
        let read = read.map_err(|error| StoreError::from_sqlx("read a claim back", error))?;
        *idle = Some(connection);
        Ok(read)
    }
}

/// How long reading one claim back may take, with waiting for its turn.
const READ_BACK_MAX: Duration = Duration::from_secs(15);

/// Ends attempts and calls. Held by workers, and by the sweep of dispatchers.
#[derive(Debug, Clone)]
pub struct Completing {
    light: Lane<Complete>,
    heavy: Lane<Complete>,
}

impl Completing {
    /// Starts its lanes on `tasks`.
    pub fn start(postgres: &Postgres, tasks: &mut JoinSet<()>) -> Self {
        let statement = Arc::new(Complete::default());
        let (light, run_light) = Lane::new(Arc::clone(&statement), postgres.clone());
        let (heavy, run_heavy) = Lane::new(statement, postgres.clone());
        tasks.spawn(run_light);
        tasks.spawn(run_heavy);
        Self { light, heavy }
    }

    /// Ends one attempt or queued call, once. [`Reply::Undecided`]: it did not move; look again.
    pub async fn complete_once(&self, ending: Ending) -> Reply<Ended> {
        let lane = if Complete::weight(&ending) > HEAVY_BYTES {
            &self.heavy
        } else {
            &self.light
        };
        lane.send(ending).await
    }

    /// Ends one attempt or queued call and does not rest until the ledger has answered: a completion names its attempt,
    /// so repeating it is harmless. `None`: it did not move; look again.
    ///
    /// # Errors
    ///
    /// The server refuses this row, or `patience` is over.
    pub async fn complete(
        &self,
        ending: &Ending,
        patience: Duration,
    ) -> Result<Option<Ended>, StoreError> {
        let doing = "complete an attempt";
        let began = tokio::time::Instant::now();
        let mut reconnect = Reconnect::default();
        let mut unanswered = false;
        loop {
            let reply = self.complete_once(ending.clone()).await;
            if unanswered && matches!(reply, Reply::Done(_)) {
                metrics().lost_answer(Complete::NAME, false);
            }
            unanswered |= matches!(reply, Reply::Unknown);
            match reply {
                Reply::Done(ended) => return Ok(Some(ended)),
                Reply::Undecided => return Ok(None),
                Reply::Refused(source) => return Err(StoreError::Refused { doing, source }),
                Reply::Unknown | Reply::NotSent if began.elapsed() >= patience => {
                    return Err(StoreError::Unavailable {
                        doing,
                        source: sqlx::Error::WorkerCrashed,
                    });
                }
                Reply::Unknown | Reply::NotSent => reconnect.pause().await,
            }
        }
    }
}
