//! A lane: one statement, one connection of its own, group commit without a timer.
//!
//! Rows that arrive while a batch is in flight form the next batch. So an idle fleet adds no delay, and a busy one shares its
//! commits. The lane yields once before sending, so that senders woken together share the batch: a statement costs as much as a
//! dozen rows. Rows that are sent together go into one statement, whatever their number; their owner bounds it.
//!
//! A statement is never cancelled on a connection that is used again. The server limits its time, and a connection that is
//! silent beyond that limit is dropped with its batch.
//!
//! When the server answers with an error, nothing was changed and the batch is sent again, first without waiting for locks,
//! then in halves, so that one bad or locked row never fails its neighbours. Errors that pass by themselves (a locked table, a
//! deadlock, a full disk) are blamed on no row.
//!
//! When the answer is *missing*, it is unknown what was done. Every row of the batch gets [`Reply::Unknown`], and its owner
//! knows how to find out.
//!
//! A connection that was not used for a second is tested before anything is sent on it, so that the first batch after a quiet
//! time does not meet a broken one.

use std::{
    collections::HashSet,
    hash::Hash,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use sqlx::PgConnection;
use tokio::sync::{mpsc, oneshot};

use super::{answer::listen, answered, passes, session::Postgres};
use crate::{
    checkpoint::{self, Checkpoint},
    delay::{Reconnect, SOON},
    telemetry::metrics,
};

/// One statement over arrays.
pub trait Statement: Send + Sync + 'static {
    /// One element of the arrays.
    type Row: Send + Sync + 'static;
    /// The answer for a row.
    type Answer: Send + 'static;
    /// A value that may occur only once in a batch.
    type Key: Eq + Hash + Send;

    /// The statement's name, for logs and metrics.
    const NAME: &'static str;
    /// The checkpoint while a batch is in flight.
    const SENT: Option<Checkpoint>;

    /// The value that may occur only once in a batch; a unique one where rows may repeat.
    fn key(row: &Self::Row) -> Self::Key;

    /// About how many bytes the row adds to the batch.
    fn weight(row: &Self::Row) -> usize;

    /// Runs it as one autocommit statement. `None` for a row that did not come back: it is undecided.
    fn run<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        rows: &'a [Self::Row],
        locks: Locks,
    ) -> BoxFuture<'a, Result<Vec<Option<Self::Answer>>, sqlx::Error>>;
}

/// What a statement does with a row that another statement has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locks {
    /// Waits, up to the lock timeout.
    Wait,
    /// Leaves it out: it comes back undecided.
    Skip,
}

/// The answer for a row.
#[derive(Debug)]
pub enum Reply<A> {
    /// The statement committed, and this is what it did.
    Done(A),
    /// The statement committed without this row: another statement holds or moved it. Look again.
    Undecided,
    /// The server refused this row: nothing was changed.
    Refused(sqlx::Error),
    /// No answer came: the row may have been written.
    Unknown,
    /// Nothing was changed: it was never sent, or the server cannot do it just now. It may be sent again.
    NotSent,
}

type Queued<S> = (
    <S as Statement>::Row,
    oneshot::Sender<Reply<<S as Statement>::Answer>>,
);

/// Rows that stay together in one statement.
type Unit<S> = Vec<Queued<S>>;

/// The sending end of a lane.
pub struct Lane<S: Statement> {
    sender: mpsc::Sender<Unit<S>>,
}

impl<S: Statement> Clone for Lane<S> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
        }
    }
}

impl<S: Statement> std::fmt::Debug for Lane<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane").field("statement", &S::NAME).finish()
    }
}

/// The most rows in one batch, unless a single unit has more.
pub const BATCH_ROWS_MAX: usize = 500;
/// The most bytes in one batch, unless a single unit is larger.
pub const BATCH_BYTES_MAX: usize = 1024 * 1024;
/// The longest pause between two attempts to reach the ledger. A caller hears no later that the ledger is gone.
const PAUSE_MAX: Duration = SOON;
/// The most units that wait for a batch; further callers wait to hand theirs in.
const WAITING_MAX: usize = 8 * BATCH_ROWS_MAX;

impl<S: Statement> Lane<S> {
    /// Makes a lane, and the future that runs it until every sender is dropped. The caller runs that future.
    pub fn new(statement: Arc<S>, postgres: Postgres) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (
            Self { sender },
            Runner {
                statement,
                postgres,
                receiver,
                held_back: Vec::new(),
            }
            .run(),
        )
    }

    /// Whether a new sender has to wait for room in the queue.
    pub fn is_full(&self) -> bool {
        self.sender.capacity() == 0
    }

    /// Sends one row and waits for its answer.
    ///
    /// Dropping the future does not take the row back: it may be written all the same.
    pub async fn send(&self, row: S::Row) -> Reply<S::Answer> {
        let (answer, answered) = oneshot::channel();
        if self.sender.send(vec![(row, answer)]).await.is_err() {
            return Reply::NotSent;
        }
        answered.await.unwrap_or(Reply::Unknown)
    }

    /// Sends rows that belong together and waits for the answer of each, in order.
    ///
    /// They are in one statement and so in one commit, unless the server refuses one of them: then the others are sent again
    /// without it. Dropping the future does not take them back.
    pub async fn send_all(&self, rows: Vec<S::Row>) -> Vec<Reply<S::Answer>> {
        let count = rows.len();
        let (unit, answers): (Unit<S>, Vec<_>) = rows
            .into_iter()
            .map(|row| {
                let (answer, answered) = oneshot::channel();
                ((row, answer), answered)
            })
            .unzip();
        if unit.is_empty() || self.sender.send(unit).await.is_err() {
            return (0..count).map(|_| Reply::NotSent).collect();
        }
        let mut replies = Vec::with_capacity(count);
        for answered in answers {
            replies.push(answered.await.unwrap_or(Reply::Unknown));
        }
        replies
    }
}

struct Runner<S: Statement> {
    statement: Arc<S>,
    postgres: Postgres,
    receiver: mpsc::Receiver<Unit<S>>,
    /// Units that did not fit into the batch; never more than a batch has rows.
    held_back: Vec<Unit<S>>,
}

/// The rows that are sent together. `rivals` are rows with a key that the batch has already.
struct Batch<S: Statement> {
    rows: Vec<S::Row>,
    answers: Vec<oneshot::Sender<Reply<S::Answer>>>,
    rivals: Vec<oneshot::Sender<Reply<S::Answer>>>,
}

impl<S: Statement> Runner<S> {
    async fn run(mut self) {
        let mut connection: Option<(PgConnection, Instant)> = None;
        let mut reconnect = Reconnect::default();
        while let Some(Batch {
            rows,
            answers,
            rivals,
        }) = self.next_batch().await
        {
            let connected = match connection.take() {
                Some((connected, used)) => Postgres::still_there(connected, used.elapsed()).await,
                None => None,
            };
            let connected = match connected {
                Some(connected) => Ok(connected),
                None => self.postgres.connect_lane().await,
            };
            match connected {
                Ok(connected) => {
                    reconnect.reached();
                    let usable = self.execute(connected, rows, answers).await;
                    connection = usable.map(|usable| (usable, Instant::now()));
                    for rival in rivals {
                        tell(rival, Reply::Undecided);
                    }
                }
                Err(error) => {
                    let error = crate::telemetry::report(&error);
                    // Each lane tries several times a second; the process says once that Postgres does not answer.
                    tracing::debug!(statement = S::NAME, error, "ledger is not reachable");
                    for answer in answers.into_iter().chain(rivals) {
                        tell(answer, Reply::NotSent);
                    }
                    // Bounded, for callers wait in the lane meanwhile. A pause is cancel-safe.
                    drop(tokio::time::timeout(PAUSE_MAX, reconnect.pause()).await);
                }
            }
        }
    }

    /// Waits for a unit, then takes what else is there: distinct keys, bounded rows and bytes. `None`: all senders are dropped.
    async fn next_batch(&mut self) -> Option<Batch<S>> {
        let mut arrived = std::mem::take(&mut self.held_back);
        if arrived.is_empty() {
            self.receiver.recv_many(&mut arrived, BATCH_ROWS_MAX).await;
        } else {
            self.take_waiting(&mut arrived);
        }
        self.gather(&mut arrived).await;
        let mut batch = Batch {
            rows: Vec::new(),
            answers: Vec::new(),
            rivals: Vec::new(),
        };
        let (mut keys, mut bytes) = (HashSet::new(), 0);
        for unit in arrived {
            let weight: usize = unit.iter().map(|(row, _)| S::weight(row)).sum();
            let fits = bytes + weight <= BATCH_BYTES_MAX
                && batch.rows.len() + unit.len() <= BATCH_ROWS_MAX;
            let is_rival = |(row, _): &Queued<S>| keys.contains(&S::key(row));
            if !batch.rows.is_empty() && !fits && !unit.iter().all(is_rival) {
                self.held_back.push(unit);
                continue;
            }
            for (row, answer) in unit {
                if keys.insert(S::key(&row)) {
                    bytes += S::weight(&row);
                    batch.rows.push(row);
                    batch.answers.push(answer);
                } else {
                    // Told to look again when the batch is through: a hot key must not delay the others.
                    batch.rivals.push(answer);
                }
            }
        }
        (!batch.rows.is_empty()).then_some(batch)
    }

    /// Yields before sending, so that senders woken together share the batch; stops when no row has come meanwhile.
    async fn gather(&mut self, arrived: &mut Vec<Unit<S>>) {
        let mut before = 0;
        while before < arrived.len() && arrived.len() < BATCH_ROWS_MAX {
            before = arrived.len();
            tokio::task::yield_now().await;
            self.take_waiting(arrived);
        }
    }

    fn take_waiting(&mut self, arrived: &mut Vec<Unit<S>>) {
        while arrived.len() < BATCH_ROWS_MAX
            && let Ok(unit) = self.receiver.try_recv()
        {
            arrived.push(unit);
        }
    }

    /// Runs a batch and answers every row. Returns the connection while it can be used.
    async fn execute(
        &self,
        mut connection: PgConnection,
        rows: Vec<S::Row>,
        answers: Vec<oneshot::Sender<Reply<S::Answer>>>,
    ) -> Option<PgConnection> {
        let mut parts = vec![(rows, answers, Locks::Wait)];
        while let Some((mut rows, mut answers, locks)) = parts.pop() {
            let started = Instant::now();
            let sending = self.statement.run(&mut connection, &rows, locks);
            let result = listen(checkpoint::under_way(S::SENT, sending)).await;
            metrics().wrote(S::NAME, rows.len(), started.elapsed());
            match result {
                Ok(decided) => {
                    debug_assert_eq!(decided.len(), answers.len(), "one answer per row");
                    for (answer, decision) in answers.into_iter().zip(decided) {
                        tell(answer, decision.map_or(Reply::Undecided, Reply::Done));
                    }
                }
                Err(error) if answered(&error) => {
                    tracing::debug!(statement = S::NAME, rows = rows.len(), %error, "batch was refused");
                    if locks == Locks::Wait && is_lock_timeout(&error) {
                        parts.push((rows, answers, Locks::Skip));
                    } else if passes(&error) {
                        // No row is to blame, so halving would find nothing.
                        for answer in answers {
                            tell(answer, Reply::NotSent);
                        }
                    } else if rows.len() > 1 {
                        let half = rows.len() / 2;
                        let (later_rows, later_answers) =
                            (rows.split_off(half), answers.split_off(half));
                        parts.push((later_rows, later_answers, locks));
                        parts.push((rows, answers, locks));
                    } else if let Some(answer) = answers.pop() {
                        tell(answer, Reply::Refused(error));
                    }
                }
                Err(error) => {
                    tracing::warn!(statement = S::NAME, rows = rows.len(), %error, "ledger did not answer");
                    for answer in answers {
                        tell(answer, Reply::Unknown);
                    }
                    for answer in parts.into_iter().flat_map(|(_, answers, _)| answers) {
                        tell(answer, Reply::NotSent);
                    }
                    return None;
                }
            }
        }
        Some(connection)
    }
}

pub(super) fn is_lock_timeout(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(answer) if answer.code().as_deref() == Some("55P03"))
}

fn tell<A>(answer: oneshot::Sender<Reply<A>>, reply: Reply<A>) {
    // The sender may be gone; the row is in the ledger all the same.
    drop(answer.send(reply));
}
