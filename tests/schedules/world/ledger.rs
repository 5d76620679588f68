//! A Postgres that does what statements say, or does not, or does it and says nothing.

use std::{
    borrow::Cow,
    io,
    sync::{Arc, Mutex, MutexGuard},
};

use fleet::store::StoreError;
use sqlx::error::{DatabaseError, ErrorKind};

use super::{
    once_in,
    time::{Duration, timeout},
};

/// What was committed.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// A statement is under way.
    pub(crate) under_way: bool,
    /// The rows that were written, in order.
    pub(crate) done: Vec<u32>,
    /// The rows that were in a statement without an answer.
    pub(crate) unanswered: Vec<u32>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Postgres(Arc<Mutex<Kept>>);

#[derive(Debug)]
pub(crate) struct PgConnection {
    postgres: Postgres,
    /// A statement had no answer, or was given up.
    silent: bool,
}

impl Postgres {
    pub(crate) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().expect("nobody yields while holding it")
    }

    fn begin(&self, rows: &[u32]) {
        let mut kept = self.kept();
        assert!(!kept.under_way, "two statements at a time");
        let twice = rows.iter().find(|row| kept.done.contains(row));
        assert_eq!(twice, None, "a row is sent again although it was done");
        let untold = rows.iter().find(|row| kept.unanswered.contains(row));
        assert_eq!(untold, None, "a row is sent again although nobody knows");
        kept.under_way = true;
    }

    pub(crate) async fn connect_lane(&self) -> Result<PgConnection, StoreError> {
        shuttle::future::yield_now().await;
        if once_in(6) {
            let doing = "connect to Postgres";
            let source = io::Error::from(io::ErrorKind::ConnectionRefused).into();
            return Err(StoreError::Unavailable { doing, source });
        }
        Ok(PgConnection {
            postgres: self.clone(),
            silent: false,
        })
    }

    pub(crate) async fn still_there(
        connection: PgConnection,
        _unused: Duration,
    ) -> Option<PgConnection> {
        shuttle::future::yield_now().await;
        (!once_in(6)).then_some(connection)
    }
}

pub(crate) async fn listen<T>(
    statement: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let listening = timeout(Duration::from_secs(10), statement).await;
    listening.unwrap_or_else(|elapsed| {
        let silence = io::Error::new(io::ErrorKind::TimedOut, elapsed);
        Err(silence.into())
    })
}

impl PgConnection {
    /// Begins a statement over these rows.
    pub(crate) async fn begin(&mut self, rows: &[u32]) -> UnderWay<'_> {
        assert!(!self.silent, "a connection is used again after a silence");
        self.silent = true;
        self.postgres.begin(rows);
        let under_way = UnderWay {
            connection: self,
            rows: rows.to_vec(),
        };
        shuttle::future::yield_now().await;
        under_way
    }
}

/// A statement. Dropped without an answer, whether it was done is unknown.
pub(crate) struct UnderWay<'a> {
    connection: &'a mut PgConnection,
    rows: Vec<u32>,
}

impl UnderWay<'_> {
    /// Commits.
    pub(crate) async fn keep(&self, rows: &[Option<u32>]) {
        let done = rows.iter().flatten();
        self.connection.postgres.kept().done.extend(done);
        // The answer travels.
        shuttle::future::yield_now().await;
    }

    pub(crate) fn answer<T>(self, answer: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        self.connection.silent = false;
        answer
    }

    /// The connection breaks, or is silent for ever.
    pub(crate) async fn no_answer(self) -> sqlx::Error {
        if once_in(2) {
            return io::Error::from(io::ErrorKind::ConnectionReset).into();
        }
        std::future::pending().await
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut kept = self.connection.postgres.kept();
        kept.under_way = false;
        if self.connection.silent {
            kept.unanswered.extend(&self.rows);
        }
    }
}

/// What the server says when it refuses.
pub(crate) fn refusal(code: &'static str) -> sqlx::Error {
    sqlx::Error::Database(Box::new(Refusal(code)))
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(&'static str);

impl DatabaseError for Refusal {
    fn message(&self) -> &str {
        self.0
    }

    fn code(&self) -> Option<Cow<'_, str>> {
        Some(self.0.into())
    }

    fn as_error(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        self
    }

    fn as_error_mut(&mut self) -> &mut (dyn std::error::Error + Send + Sync + 'static) {
        self
    }

    fn into_error(self: Box<Self>) -> Box<dyn std::error::Error + Send + Sync + 'static> {
        self
    }

    fn kind(&self) -> ErrorKind {
        ErrorKind::Other
    }
}
