//! How long the answer of a statement is listened for.

use std::{io, time::Duration};

use tokio::time::{error::Elapsed, timeout};

use super::StoreError;

/// How long we listen for the answer of a statement that the server itself limits.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Gives up on an answer that does not come: the wire is dead. Only for what holds no transaction.
///
/// # Errors
///
/// [`StoreError::Unavailable`] after `limit`, else what `doing` comes to.
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

/// The same for one statement that may be given up: it may be repeated, and the pool tests the connection before it hands it
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

/// Listens for the answer of a statement on a connection that the caller drops when there is none.
///
/// The limits are the server's, which ends every statement within the `statement_timeout` of its session and says so: an answer
/// that is this late does not come, because the wire broke without a word. It is missing, not negative.
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
