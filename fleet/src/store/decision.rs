//! Decisions about a call that the database makes in one function, for whoever asks for them: this asks, and hears the answer.

use std::time::Duration;

use sqlx::{
    PgPool, Postgres,
    postgres::{PgArguments, PgRow},
    query::Query,
};

use super::{StoreError, answer::within};

/// What can go wrong with a decision that a caller asks for.
#[derive(Debug, thiserror::Error)]
pub enum DecisionError {
    /// What was asked for makes no sense; the sentence says what. Nothing was changed.
    #[error("{0}")]
    Invalid(String),
    /// The ledger did not say; asking again is safe.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl DecisionError {
    /// Sorts what a function of the ledger raised: data that it does not take (class 22, or nested too deep), or trouble.
    fn from_sqlx(doing: &'static str, source: sqlx::Error) -> Self {
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
    pool: &PgPool,
    question: Query<'_, Postgres, PgArguments>,
    read: impl FnOnce(&PgRow) -> Result<T, sqlx::Error>,
) -> Result<T, DecisionError> {
    let asking = async { Ok(question.fetch_one(pool).await) };
    let row = within(doing, ANSWER_MAX, asking)
        .await?
        .map_err(|error| DecisionError::from_sqlx(doing, error))?;
    Ok(read(&row).map_err(|error| StoreError::unreadable(doing, error))?)
}
