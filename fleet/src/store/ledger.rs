//! The ledger writer of one process: a lane for each statement, a second one for large bodies and for many rows together, and
//! what to do about missing answers.

use std::{sync::Arc, time::Duration};

use sqlx::PgConnection;
use tokio::{sync::Mutex, task::JoinSet};

use super::{
    StoreError,
    accept::{Accept, AcceptedAt, NewCall},
    claim::{Claim, ClaimRow, Claimed, read_back},
    complete::{Complete, Ending, Moved},
    lane::{Lane, Reply, Statement as _},
    limited::{ClaimLimited, Limited, LimitedRow},
    session::{Postgres, within},
    waits::Waits,
};
use crate::{
    delay::{Reconnect, SOON},
    ids::{AttemptId, CallId, WorkerId},
    modes::InterceptMode,
    telemetry::metrics,
};

/// Rows with more bytes than this take the second lane, so that they do not delay small ones: sixty of them would fill a batch.
const HEAVY_BYTES: usize = 16 * 1024;
/// How long a new call may have waited for its commit before further calls are refused: a little longer than one statement
/// waits for a lock.
const BEHIND_AFTER: Duration = Duration::from_millis(1_500);

/// Accepts calls. Used by dispatchers.
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

    /// Whether the ledger is so far behind that a new call of about this many bytes should be refused.
    pub fn is_behind(&self, bytes: usize) -> bool {
        let (lane, waits) = self.lane_for(bytes);
        lane.is_full() || waits.longest() > BEHIND_AFTER
    }

    /// Commits one call. [`Reply::Undecided`]: its key is taken.
    pub async fn accept(&self, call: impl Into<Arc<NewCall>>) -> Reply<AcceptedAt> {
        let call = call.into();
        let (lane, waits) = self.lane_for(Accept::weight(&call));
        let _waiting = waits.begin();
        lane.send(call).await
    }

    /// Commits calls that belong together, in one statement on the second lane. One answer for each, in order.
    pub async fn accept_all(
        &self,
        calls: impl IntoIterator<Item = impl Into<Arc<NewCall>>>,
    ) -> Vec<Reply<AcceptedAt>> {
        let _waiting = self.heavy_waits.begin();
        self.heavy
            .send_all(calls.into_iter().map(Into::into).collect())
            .await
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
    /// For tools with a limit: a claim that has to find a place must not delay others.
    limited: Lane<ClaimLimited>,
    postgres: Postgres,
    /// One connection for reading claims back, used in turn: after an outage every claim in flight wants it at once.
    reading_back: Arc<Mutex<Option<PgConnection>>>,
}

impl Claiming {
    /// Starts its lanes on `tasks`.
    pub fn start(worker: WorkerId, postgres: &Postgres, tasks: &mut JoinSet<()>) -> Self {
        let (lane, run) = Lane::new(Arc::new(Claim::new(worker)), postgres.clone());
        let (limited, run_limited) =
            Lane::new(Arc::new(ClaimLimited::new(worker)), postgres.clone());
        tasks.spawn(run);
        tasks.spawn(run_limited);
        Self {
            lane,
            limited,
            postgres: postgres.clone(),
            reading_back: Arc::default(),
        }
    }

    /// Claims one call. `None`: it was not claimed, and nothing may run.
    ///
    /// When the answer is missing, the claim is read back on another connection with a row lock.
    ///
    /// # Errors
    ///
    /// The ledger refused the claim or was not asked ([`StoreError::Refused`], [`StoreError::NotSent`]): nothing was claimed.
    /// Any other error: the ledger did not confirm the claim. Then nothing may run, and the claim may have been committed or
    /// may still be; a caller that gives it up must look for it later.
    pub async fn claim(&self, row: ClaimRow) -> Result<Option<Claimed>, StoreError> {
        let (call, attempt) = (row.call_id, row.attempt_id);
        match self.lane.send(row).await {
            Reply::Done(claimed) => Ok(Some(claimed)),
            Reply::Undecided => Ok(None),
            Reply::Refused(source) => Err(refused(source)),
            Reply::NotSent => Err(StoreError::NotSent { doing: CLAIMING }),
            // Boxed: the rare branch would make the future of every claim as large as its own.
            Reply::Unknown => Box::pin(self.ask_again(Claim::NAME, call, attempt))
                .await
                .map(Some),
        }
    }

    /// Claims one call of a tool with a limit, and with it a place of its tool. `None`: it was not claimed, and nothing may
    /// run.
    ///
    /// When the answer is missing, the claim is read back as any other: the place was taken with the call, or not at all.
    ///
    /// # Errors
    ///
    /// As for [`Claiming::claim`].
    pub async fn claim_limited(
        &self,
        claim: ClaimRow,
        rate_mode: InterceptMode,
    ) -> Result<Option<Limited>, StoreError> {
        let (call, attempt) = (claim.call_id, claim.attempt_id);
        match self.limited.send(LimitedRow { claim, rate_mode }).await {
            Reply::Done(decided) => Ok(Some(decided)),
            Reply::Undecided => Ok(None),
            Reply::Refused(source) => Err(refused(source)),
            Reply::NotSent => Err(StoreError::NotSent { doing: CLAIMING }),
            Reply::Unknown => Box::pin(self.ask_again(ClaimLimited::NAME, call, attempt))
                .await
                .map(|claimed| {
                    // A bell too many costs one message.
                    Some(Limited::Claimed {
                        claimed,
                        took_place: true,
                        is_observed: false,
                    })
                }),
        }
    }
}

const CLAIMING: &str = "claim a call";

const fn refused(source: sqlx::Error) -> StoreError {
    StoreError::Refused {
        doing: CLAIMING,
        source,
    }
}

fn not_confirmed() -> StoreError {
    StoreError::no_answer(CLAIMING)
}

impl Claiming {
    /// Finds out whether a claim without an answer was committed.
    async fn ask_again(
        &self,
        statement: &'static str,
        call: CallId,
        attempt: AttemptId,
    ) -> Result<Claimed, StoreError> {
        let claimed = within(CLAIMING, READ_BACK_MAX, self.read_back(call, attempt)).await?;
        metrics().lost_answer(statement, claimed.is_some());
        claimed.ok_or_else(not_confirmed)
    }
}

impl Claiming {
    async fn read_back(
        &self,
        call: CallId,
        attempt: AttemptId,
    ) -> Result<Option<Claimed>, StoreError> {
        let mut idle = self.reading_back.lock().await;
        // Taken out: if this future is dropped, the connection is dropped with it.
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

/// How long reading one claim back may take, with the wait for its turn.
const READ_BACK_MAX: Duration = Duration::from_secs(15);

/// Ends attempts and calls. Used by workers, and by the sweep of dispatchers.
#[derive(Debug, Clone)]
pub struct Completing {
    light: Lane<Complete>,
    heavy: Lane<Complete>,
}

impl Completing {
    /// Starts its lanes on `tasks`.
    pub fn start(postgres: &Postgres, tasks: &mut JoinSet<()>) -> Self {
        let statement = Arc::new(Complete);
        let (light, run_light) = Lane::new(Arc::clone(&statement), postgres.clone());
        let (heavy, run_heavy) = Lane::new(statement, postgres.clone());
        tasks.spawn(run_light);
        tasks.spawn(run_heavy);
        Self { light, heavy }
    }

    /// Ends one attempt or queued call, once. [`Reply::Undecided`]: it did not move; read the call.
    pub async fn complete_once(&self, ending: Ending) -> Reply<Moved> {
        let lane = if Complete::weight(&ending) > HEAVY_BYTES {
            &self.heavy
        } else {
            &self.light
        };
        lane.send(ending).await
    }

    /// Ends one attempt or queued call, and repeats that until the ledger has answered: an ending names its attempt, so
    /// repeating it is harmless. `None`: it did not move; read the call.
    ///
    /// # Errors
    ///
    /// The server refuses this row, or `patience` is over.
    pub async fn complete(
        &self,
        ending: &Ending,
        patience: Duration,
    ) -> Result<Option<Moved>, StoreError> {
        let doing = "complete an attempt";
        let began = tokio::time::Instant::now();
        // Short pauses: where many wait, slots of a worker wait with them.
        let mut reconnect = Reconnect::up_to(SOON);
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
                    return Err(StoreError::no_answer(doing));
                }
                Reply::Unknown | Reply::NotSent => reconnect.pause().await,
            }
        }
    }
}
