//! One attempt's transaction: `BEGIN`, its limits, what the tool may know, the statement, `COMMIT`.
//!
//! Whoever holds a [`Session`] runs its methods to their end or drops it, which closes the connection: a transaction that
//! is not committed by [`Session::commit`] is rolled back by the server.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering},
    },
    time::Duration,
};

use fleet::{
    manifest::{RowBounds, SqlSpec},
    said,
    wire::message::Message,
};
use futures_util::TryStreamExt;
use sqlx::{
    AssertSqlSafe, Either, Executor, PgConnection, Row as _, ValueRef as _,
    postgres::{PgDatabaseError, PgRow, PgSeverity},
};
use tokio::time::{Instant, timeout};

use super::{
    database::{Database, NoConnection, Open},
    row,
    statement::{Statement, check},
    tidy::{COMMIT, COMMITTED, Found, is_clean},
};
use crate::executors::LINGER_MAX;

/// How long a connection that was idle may take to show that it is alive.
const IDLE_ANSWER: Duration = Duration::from_secs(1);
/// How long a lock may be waited for; less when the attempt has less time.
const LOCK_TIMEOUT_MAX: Duration = Duration::from_secs(10);
/// How long a transaction that failed may take to end properly; then its connection is just closed.
pub(super) const GOODBYE: Duration = Duration::from_millis(250);

/// How far an attempt came: what may have happened is read from it when there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nothing of the tool was sent.
    Before,
    /// The statement was sent, `COMMIT` was not.
    Statement,
    /// `COMMIT` was sent.
    Commit,
}

/// What is seen of an attempt from outside, while its future runs. Clones see the same attempt.
#[derive(Debug, Clone, Default)]
pub struct Watch(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    phase: AtomicU8,
    pid: AtomicI32,
    cut: AtomicBool,
}

impl Watch {
    /// How far it came.
    pub fn phase(&self) -> Phase {
        match self.0.phase.load(Ordering::SeqCst) {
            0 => Phase::Before,
            1 => Phase::Statement,
            _ => Phase::Commit,
        }
    }

    /// The process that serves it; `None` before there is one.
    pub fn pid(&self) -> Option<i32> {
        Some(self.0.pid.load(Ordering::SeqCst)).filter(|pid| *pid != 0)
    }

    /// Tells it to take no further step.
    pub fn cut(&self) {
        self.0.cut.store(true, Ordering::SeqCst);
    }

    /// Whether it was told so.
    pub fn is_cut(&self) -> bool {
        self.0.cut.load(Ordering::SeqCst)
    }

    fn enter(&self, phase: Phase) {
        self.0.phase.store(phase as u8, Ordering::SeqCst);
    }
}

/// Why an attempt did not end with its `COMMIT`.
#[derive(Debug)]
pub enum Ended {
    /// There is no connection. Nothing was sent.
    NoConnection(NoConnection),
    /// The server answered with an error, so the transaction is gone.
    Refused(Refusal),
    /// The connection broke, or what came over it made no sense.
    Lost,
    /// The answer is too large; nothing was committed.
    TooLarge(Message),
    /// The answer cannot be kept: a sentence; nothing was committed.
    Unusable(Message),
    /// The call is not this attempt's any more; nothing was committed, and nothing may be.
    Taken,
    /// The statement cannot be this tool's: a sentence for its author. It was not run.
    Flaw(Message),
    /// An argument cannot be a parameter: a sentence for the caller. Nothing was run.
    Argument(Message),
    /// It returned or changed another number of rows than its manifest expects; nothing was committed.
    Unexpected {
        /// How many it expects.
        expected: RowBounds,
        /// How many there were.
        rows: u64,
    },
    /// It was told to stop between two steps. Nothing was committed.
    Cut,
}

impl Ended {
    /// Whether the tables have changed since the statement was prepared: "cached plan must not change result type".
    pub(super) fn is_stale(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.sqlstate == "0A000")
    }

    /// Whether the tables may have changed since the statement was checked.
    pub(super) fn may_be_news(&self) -> bool {
        match self {
            Self::Refused(refusal) => {
                !refusal.sqlstate.starts_with("23") && refusal.sqlstate != "P0001"
            }
            Self::Flaw(_) => true,
            Self::NoConnection(_)
            | Self::Lost
            | Self::TooLarge(_)
            | Self::Unusable(_)
            | Self::Taken
            | Self::Argument(_)
            | Self::Unexpected { .. }
            | Self::Cut => false,
        }
    }
}

/// A server's error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Five characters; the first two are its class.
    pub sqlstate: String,
    /// One line.
    pub message: String,
    /// Whether the server ended the session, and not only the statement.
    pub is_fatal: bool,
    /// The constraint that was violated.
    pub constraint: Option<String>,
}

impl From<sqlx::Error> for Ended {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(answer) => Self::Refused(Refusal {
                sqlstate: answer.code().unwrap_or_default().into_owned(),
                message: answer.message().to_owned(),
                is_fatal: answer
                    .try_downcast_ref::<PgDatabaseError>()
                    .is_none_or(|answer| answer.severity() != PgSeverity::Error),
                constraint: answer.constraint().map(str::to_owned),
            }),
            _ => Self::Lost,
        }
    }
}

/// How an attempt's transaction is to be.
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
    /// There is no connection, or the server refuses. Nothing of the tool was sent.
    pub async fn begin(
        database: &Arc<Database>,
        limits: Limits,
        watch: &Watch,
    ) -> Result<Self, Ended> {
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
            // The others are as old: a server that was restarted closed them all.
            database.forget_idle();
        }
        let mut open = database
            .open(limits.until)
            .await
            .map_err(Ended::NoConnection)?;
        begin(&mut open.connection, &limits).await?;
        Ok(begun(open))
    }

    /// Sets the limits, lets the statement and the functions that it calls read these facts with
    /// `current_setting('toolfleet.NAME')`, and learns whom to cancel: inside the transaction, for behind a pooler each one may be served by another process.
    ///
    /// # Errors
    ///
    /// The server refuses, or is gone.
    pub async fn tell(&mut self, facts: Vec<(String, String)>) -> Result<(), Ended> {
        self.step()?;
        let facts = facts
            .into_iter()
            .map(|(name, value)| (format!("toolfleet.{name}"), value));
        let (names, values): (Vec<String>, Vec<String>) =
            self.limits.settings().into_iter().chain(facts).unzip();
        // Nothing here is looked for along the role's `search_path`, where somebody may have put something else.
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

    /// What the server says of a statement: asked once per process, and again after it refused it.
    ///
    /// # Errors
    ///
    /// It is no statement that a tool may run, or the server is gone.
    pub async fn statement(
        &mut self,
        text: &str,
        placeholders: usize,
    ) -> Result<Arc<Statement>, Ended> {
        self.step()?;
        if let Some(known) = self.database.known(text) {
            return Ok(known);
        }
        let checked = check(&mut self.open.connection, text, placeholders).await?;
        let statement = Arc::new(checked);
        self.database.learned(text, &statement);
        Ok(statement)
    }

    /// Runs a statement and reads its whole answer: an array of objects, or how many rows it touched.
    ///
    /// # Errors
    ///
    /// The server refuses, is gone, has more to say than it may, or other than `expected` many rows: then the transaction
    /// must not be committed.
    pub async fn run(
        &mut self,
        statement: &Statement,
        values: Vec<Option<String>>,
        expected: Option<RowBounds>,
    ) -> Result<String, Ended> {
        self.step()?;
        self.watch.enter(Phase::Statement);
        let mut query = sqlx::query(AssertSqlSafe(Arc::clone(&statement.text)));
        for value in values {
            query = query.bind(value);
        }
        let mut answer = Answer::new(statement, self.limits.output_limit, expected);
        let mut stream = Executor::fetch_many(&mut self.open.connection, query);
        while let Some(part) = stream.try_next().await? {
            match part {
                Either::Left(done) => answer.affected += done.rows_affected(),
                Either::Right(row) => answer.push(&row)?,
            }
        }
        if let Some(expected) = expected
            && !expected.admit(answer.count())
        {
            return Err(Ended::Unexpected {
                expected,
                rows: answer.count(),
            });
        }
        Ok(answer.json())
    }

    /// The connection, for what else belongs into the transaction.
    pub const fn connection(&mut self) -> &mut PgConnection {
        &mut self.open.connection
    }

    /// Commits. The connection comes back for [`Database::take_back`] if it is fit for another call.
    ///
    /// # Errors
    ///
    /// The server refuses: nothing was committed. Or it is gone, or going: nobody knows.
    pub async fn commit(mut self) -> Result<Option<Open>, Ended> {
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
                    // Once it said that it committed, it can take nothing back.
                    Err(_gone_afterwards) if answered >= COMMITTED => break false,
                    Err(error) => return Err(error.into()),
                }
            }
        };
        if answered < COMMITTED {
            return Err(Ended::Lost);
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
        // A closed connection is rolled back too, only with a line in the server's log.
        drop(timeout(GOODBYE, goodbye).await);
    }

    /// Before every step: whether there is to be another.
    pub fn step(&self) -> Result<(), Ended> {
        if self.watch.is_cut() {
            Err(Ended::Cut)
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
    /// As settings of a transaction. `standard_conforming_strings` is how statements are read by whoever checks them.
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

/// What Postgres takes: 0 would be no limit.
fn milliseconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis())
        .unwrap_or(i32::MAX)
        .max(1)
}

/// An answer as it grows.
struct Answer<'a> {
    statement: &'a Statement,
    limit: usize,
    /// Rows beyond this are counted and not kept: the answer is not wanted then.
    kept_max: u64,
    text: String,
    rows: u64,
    affected: u64,
}

impl<'a> Answer<'a> {
    fn new(statement: &'a Statement, limit: usize, expected: Option<RowBounds>) -> Self {
        Self {
            statement,
            limit,
            kept_max: expected.and_then(|rows| rows.max).unwrap_or(u64::MAX),
            text: String::new(),
            rows: 0,
            affected: 0,
        }
    }

    /// The rows that were returned, or changed where none are returned.
    const fn count(&self) -> u64 {
        if self.statement.columns.is_empty() {
            self.affected
        } else {
            self.rows
        }
    }

    fn push(&mut self, row: &PgRow) -> Result<(), Ended> {
        if self.rows == SqlSpec::ROWS_MAX {
            return Err(Ended::TooLarge(Message::fixed(
                "it has more than 10000 rows",
                "它超过 10000 行",
            )));
        }
        // What is known of its columns is older than this answer.
        if self.rows == 0 && !self.statement.answers(row) {
            return Err(Ended::Flaw(Message::fixed(
                "the columns of its answer have changed meanwhile; try again",
                "其间它的结果的列发生了变化；请再试一次",
            )));
        }
        if self.rows >= self.kept_max {
            self.rows += 1;
            return Ok(());
        }
        self.text.push_str(if self.rows == 0 { "[{" } else { ",{" });
        for (index, column) in self.statement.columns.iter().enumerate() {
            if index > 0 {
                self.text.push(',');
            }
            row::text(&mut self.text, &column.name);
            self.text.push(':');
            let value = row.try_get_raw(index)?;
            if value.is_null() {
                self.text.push_str("null");
            } else {
                let bytes = value.as_bytes().map_err(|_null| Ended::Lost)?;
                row::write(&mut self.text, &column.kind, bytes).map_err(|_unreadable| {
                    let name = &column.name;
                    Ended::Flaw(said!(
                        "column {name} is not of the type that the server said; try again",
                        "列 {name} 的类型与服务器所说的不同；请再试一次"
                    ))
                })?;
            }
            if self.text.len() >= self.limit {
                return Err(Ended::TooLarge(Message::fixed(
                    "it is larger than its output_limit allows",
                    "它超过了 output_limit",
                )));
            }
        }
        self.text.push('}');
        self.rows += 1;
        Ok(())
    }

    fn json(mut self) -> String {
        if self.statement.columns.is_empty() {
            let mut text = String::new();
            write!(text, r#"{{"rows_affected":{}}}"#, self.affected)
                .expect("a String takes everything");
            return text;
        }
        self.text.push_str(if self.rows == 0 { "[]" } else { "]" });
        self.text
    }
}
