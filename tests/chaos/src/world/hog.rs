//! Another program in the same Postgres, which delays every other session for a while.

use std::time::Duration;

use fleet_tests::postgres::Database;
use sqlx::{Connection, Executor, PgConnection};
use tokio::time::sleep;

/// More than a server here has.
const CONNECTIONS_MAX: usize = 200;

/// Keeps the table of open calls locked.
///
/// Best effort: with a server that is down, or a lock that cannot be had, it delays nothing.
pub(super) async fn lock_table(url: String, while_: Duration) {
    let Ok(mut connection) = PgConnection::connect(&url).await else {
        return;
    };
    let lock = "BEGIN; SET LOCAL lock_timeout = '2s'; LOCK TABLE toolfleet.open_calls";
    if connection.execute(lock).await.is_ok() {
        sleep(while_).await;
    }
}

/// Keeps every connection that is left.
pub(super) async fn exhaust(url: String, while_: Duration) {
    let mut taken = Vec::new();
    while taken.len() < CONNECTIONS_MAX
        && let Ok(connection) = PgConnection::connect(&url).await
    {
        taken.push(connection);
    }
    sleep(while_).await;
}

/// Ends a tenth of all sessions. Returns how many.
pub(super) async fn end_sessions(database: &Database) -> i64 {
    let sql = "SELECT count(pg_terminate_backend(pid)) FROM ( \
                   SELECT pid FROM pg_stat_activity \
                   WHERE datname = current_database() AND pid <> pg_backend_pid() AND random() < 0.1) AS tenth";
    let Ok(mut connection) = PgConnection::connect(&database.url).await else {
        return 0;
    };
    match sqlx::query_scalar(sql).fetch_one(&mut connection).await {
        Ok(ended) => ended,
        // Postgres may be stopped meanwhile; a statement that it cannot read is a fault that never strikes.
        Err(sqlx::Error::Database(error))
            if error.code().is_some_and(|code| code.starts_with("42")) =>
        {
            panic!("the statement that ends sessions: {error}")
        }
        Err(_gone) => 0,
    }
}
