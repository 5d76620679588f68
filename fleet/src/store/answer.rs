//! How long to wait for the answer of a statement.

use std::{io, time::Duration};

use tokio::time::{error::Elapsed, timeout};

use super::StoreError;

/// How long to wait for the answer of a statement that the server itself limits.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Gives up on a missing answer: the connection is dead. Only for statements outside a transaction.
///
/// # Errors
///
/// [`StoreError::Unavailable`] after `limit`, else the error of `doing`.
pub async fn within<T>(
    doing: &'static str,
    limit: Duration,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    timeout(limit, work).await.unwrap_or_else(|elapsed| {
        let source = silence(elapsed);
        Err(StoreError::Unavailable { doing, source })
    })
}

/// The same for one statement. Dropping it is safe: it may be repeated, and the pool tests the connection before it hands it
/// out again.
///
/// # Errors
///
/// As above, and the server's own.
pub(super) async fn answer_within<T>(
    doing: &'static str,
    limit: Duration,
    statement: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    let statement = async {
        let answer = statement.await;
        answer.map_err(|error| StoreError::from_sqlx(doing, error))
    };
    within(doing, limit, statement).await
}

/// Waits for the answer of a statement on a connection that the caller drops when there is none.
///
/// The server ends every statement within its session's `statement_timeout` and says so. If no answer has come by this later
/// limit, the connection broke silently, and whether the statement ran is unknown.
pub(super) async fn listen<T>(
    statement: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    timeout(SILENCE_MAX, statement)
        .await
        .unwrap_or_else(|elapsed| Err(silence(elapsed)))
}

fn silence(elapsed: Elapsed) -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, elapsed))
}
