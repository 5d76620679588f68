//! One attempt's transaction: `BEGIN`, its limits, the facts for the tool, the statement, `COMMIT`.
//!
//! The caller awaits each method of a [`Session`] to its end, or drops the session, which closes the connection. The server
//! rolls back a transaction that [`Session::commit`] did not commit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering},
    },
    time::Duration,
};

use fleet::manifest::RowBounds;
use futures_util::TryStreamExt;
use sqlx::{AssertSqlSafe, Either, Executor, PgConnection, Row as _};
use tokio::time::{Instant, timeout};

use super::{
    answer::SqlAnswer,
    database::{Database, Open},
    not_committed::{NotCommitted, Phase},
    statement::{Statement, check},
    tidy::{COMMIT, COMMITTED, Found, GOODBYE, is_clean},
};
use crate::executors::LINGER_MAX;

/// How long an idle connection may take to show that it is alive.
const IDLE_ANSWER: Duration = Duration::from_secs(1);
/// The longest wait for a lock; less when the attempt has less time.
const LOCK_TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// The state of an attempt, readable while its future runs. Clones see the same attempt.
#[derive(Debug, Clone, Default)]
pub struct Watch(Arc<WatchState>);

#[derive(Debug, Default)]
struct WatchState {
    phase: AtomicU8,
    pid: AtomicI32,
    cut: AtomicBool,
}

impl Watch {
    /// How far the attempt came.
    pub fn phase(&self) -> Phase {
        match self.0.phase.load(Ordering::SeqCst) {
            0 => Phase::Before,
            1 => Phase::Statement,
            _ => Phase::Commit,
        }
    }

    /// The server process that serves it; `None` before there is one.
    pub fn pid(&self) -> Option<i32> {
        Some(self.0.pid.load(Ordering::SeqCst)).filter(|pid| *pid != 0)
    }

    /// Tells the attempt to take no further step.
    pub fn cut(&self) {
        self.0.cut.store(true, Ordering::SeqCst);
    }

    /// Whether the attempt was told so.
    pub fn is_cut(&self) -> bool {
        self.0.cut.load(Ordering::SeqCst)
    }

    fn enter(&self, phase: Phase) {
        self.0.phase.store(phase as u8, Ordering::SeqCst);
    }
}

/// The limits of an attempt's transaction.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Whether the server refuses writes.
    pub read_only: bool,
    /// When it must have answered.
    pub until: Instant,
    /// The most bytes of an answer.
    pub output_limit: usize,
}

/// An open transaction.
pub struct Session {
    database: Arc<Database>,
    open: Open,
    watch: Watch,
    limits: Limits,
}

impl Session {
    /// Opens a transaction, on an idle connection if one is alive.
    ///
    /// # Errors
    ///
    /// No connection can be opened, or the server refuses. Nothing of the tool was sent.
    pub async fn begin(
        database: &Arc<Database>,
        limits: Limits,
        watch: &Watch,
    ) -> Result<Self, NotCommitted> {
        let begun = |open| Self {
            database: Arc::clone(database),
            open,
            watch: watch.clone(),
            limits,
        };
        if let Some(mut open) = database.idle() {
            let beginning = begin(&mut open.connection, &limits);
            if matches!(timeout(IDLE_ANSWER, beginning).await, Ok(Ok(()))) {
                return Ok(begun(open));
            }
            // The other idle connections are as old: a restarted server closed all of them.
            database.forget_idle();
        }
        let mut open = database
            .open(limits.until)
            .await
            .map_err(NotCommitted::NoConnection)?;
        begin(&mut open.connection, &limits).await?;
        Ok(begun(open))
    }

    /// Sets the limits and the facts that the statement can read with `current_setting('toolfleet.NAME')`, and learns which
    /// server process to cancel.
    ///
    /// All inside the transaction, for behind a pooler each transaction may have another server process.
    ///
    /// # Errors
    ///
    /// The server refuses, or the connection is lost.
    pub async fn tell(&mut self, facts: Vec<(String, String)>) -> Result<(), NotCommitted> {
        self.step()?;
        let facts = facts
            .into_iter()
            .map(|(name, value)| (format!("toolfleet.{name}"), value));
        let (names, values): (Vec<String>, Vec<String>) =
            self.limits.settings().into_iter().chain(facts).unzip();
        // The query looks nothing up along the role's `search_path`, where the role may have put other objects.
        let telling = sqlx::query(
            "SELECT pg_catalog.pg_backend_pid(), pg_catalog.count(pg_catalog.set_config(f.name, f.value, true))
             FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[]))
                  AS f (name, value)",
        );
        let row = telling
            .bind(names)
            .bind(values)
            .fetch_one(&mut self.open.connection)
            .await?;
        self.watch.0.pid.store(row.try_get(0)?, Ordering::SeqCst);
        Ok(())
    }

    /// What the server says of a statement. Asked once per process, and again after the server refused it.
    ///
    /// # Errors
    ///
    /// It is not a statement that a tool may run, or the connection is lost.
    pub async fn statement(
        &mut self,
        text: &str,
        placeholders: usize,
    ) -> Result<Arc<Statement>, NotCommitted> {
        self.step()?;
        if let Some(known) = self.database.known(text) {
            return Ok(known);
        }
        let checked = check(&mut self.open.connection, text, placeholders).await?;
        let statement = Arc::new(checked);
        self.database.learned(text, &statement);
        Ok(statement)
    }

    /// Runs a statement and reads its whole answer: an array of objects, or the number of rows that it changed.
    ///
    /// # Errors
    ///
    /// The server refuses, the connection is lost, the answer is too large, or its number of rows is not `expected`. The
    /// transaction must not be committed then.
    pub async fn run(
        &mut self,
        statement: &Statement,
        values: Vec<Option<String>>,
        expected: Option<RowBounds>,
    ) -> Result<String, NotCommitted> {
        self.step()?;
        self.watch.enter(Phase::Statement);
        let mut query = sqlx::query(AssertSqlSafe(Arc::clone(&statement.text)));
        for value in values {
            query = query.bind(value);
        }
        let mut answer = SqlAnswer::new(statement, self.limits.output_limit, expected);
        let mut stream = Executor::fetch_many(&mut self.open.connection, query);
        while let Some(part) = stream.try_next().await? {
            match part {
                Either::Left(done) => answer.add_affected(done.rows_affected()),
                Either::Right(row) => answer.push(&row)?,
            }
        }
        if let Some(expected) = expected
            && !expected.admit(answer.count())
        {
            return Err(NotCommitted::Unexpected {
                expected,
                rows: answer.count(),
            });
        }
        Ok(answer.json())
    }

    /// The connection, for further statements of the same transaction.
    pub const fn connection(&mut self) -> &mut PgConnection {
        &mut self.open.connection
    }

    /// Commits. Returns the connection for [`Database::take_back`] if another call may use it.
    ///
    /// # Errors
    ///
    /// The server refuses: nothing was committed. Or the connection is lost: whether it committed is not known.
    pub async fn commit(mut self) -> Result<Option<Open>, NotCommitted> {
        self.step()?;
        self.watch.enter(Phase::Commit);
        let (mut answered, mut found) = (0, Found::default());
        let tidied = {
            let mut answers = sqlx::raw_sql(COMMIT).fetch_many(&mut self.open.connection);
            loop {
                match answers.try_next().await {
                    Ok(Some(Either::Left(_complete))) => answered += 1,
                    Ok(Some(Either::Right(row))) if answered >= COMMITTED => found.add(&row),
                    Ok(Some(Either::Right(_of_nothing))) => {}
                    Ok(None) => break true,
                    // A server that has said that it committed cannot take that back.
                    Err(_gone_afterwards) if answered >= COMMITTED => break false,
                    Err(error) => return Err(error.into()),
                }
            }
        };
        if answered < COMMITTED {
            return Err(NotCommitted::Lost);
        }
        let is_clean = tidied && is_clean(&mut self.open.connection, found).await;
        Ok(is_clean.then_some(self.open))
    }

    /// Ends a transaction that failed, and closes its connection.
    pub async fn abandon(mut self) {
        let goodbye = async {
            sqlx::raw_sql("ROLLBACK")
                .execute(&mut self.open.connection)
                .await?;
            sqlx::Connection::close(self.open.connection).await
        };
        // A closed connection is rolled back too, but with a line in the server's log.
        drop(timeout(GOODBYE, goodbye).await);
    }

    /// Before every step: `Err` if the attempt was told to stop.
    pub fn step(&self) -> Result<(), NotCommitted> {
        if self.watch.is_cut() {
            Err(NotCommitted::Cut)
        } else {
            Ok(())
        }
    }
}

async fn begin(connection: &mut PgConnection, limits: &Limits) -> Result<(), sqlx::Error> {
    let begin = if limits.read_only {
        "BEGIN READ ONLY"
    } else {
        "BEGIN READ WRITE"
    };
    sqlx::raw_sql(begin).execute(connection).await?;
    Ok(())
}

impl Limits {
    /// As settings of a transaction. Our checks of statements assume `standard_conforming_strings`.
    fn settings(&self) -> [(String, String); 4] {
        let left = self
            .until
            .saturating_duration_since(Instant::now())
            .max(Duration::from_millis(1));
        let timer = |name: &str, duration| (name.to_owned(), milliseconds(duration).to_string());
        [
            ("standard_conforming_strings".to_owned(), "on".to_owned()),
            timer("statement_timeout", left),
            timer("lock_timeout", (left / 2).min(LOCK_TIMEOUT_MAX)),
            timer("idle_in_transaction_session_timeout", left + LINGER_MAX),
        ]
    }
}

/// As Postgres takes it: 0 would mean no limit.
fn milliseconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis())
        .unwrap_or(i32::MAX)
        .max(1)
}
