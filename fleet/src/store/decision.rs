//! Decisions that the database makes in one function each: asks for one and reads the answer.

use std::time::Duration;

use sqlx::{
    PgExecutor, Postgres,
    postgres::{PgArguments, PgRow},
    query::Query,
};

use super::{StoreError, answer::within};

/// An error of a decision that a caller asks for.
#[derive(Debug, thiserror::Error)]
pub enum DecisionError {
    /// The request makes no sense; the sentence says why. Nothing was changed.
    #[error("{0}")]
    Invalid(String),
    /// The ledger did not answer; asking again is safe.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl DecisionError {
    /// Sorts an error that a function of the ledger raised: invalid data (class 22, or nested too deep), or an error of the
    /// server.
    pub(super) fn from_sqlx(doing: &'static str, source: sqlx::Error) -> Self {
        match &source {
            sqlx::Error::Database(raised)
                if raised
                    .code()
                    .is_some_and(|code| code.starts_with("22") || code == "54001") =>
            {
                Self::Invalid(raised.message().to_owned())
            }
            _ => StoreError::from_sqlx(doing, source).into(),
        }
    }
}

/// How long a decision waits, for a connection and for the answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Asks for a decision, and reads the one row that it is told in.
pub(super) async fn decide<T>(
    doing: &'static str,
    ledger: impl PgExecutor<'_>,
    question: Query<'_, Postgres, PgArguments>,
    read: impl FnOnce(&PgRow) -> Result<T, sqlx::Error>,
) -> Result<T, DecisionError> {
    let asking = async { Ok(question.fetch_one(ledger).await) };
    let row = within(doing, ANSWER_MAX, asking)
        .await?
        .map_err(|error| DecisionError::from_sqlx(doing, error))?;
    Ok(read(&row).map_err(|error| StoreError::unreadable(doing, error))?)
}
