//! Cleans a connection for the next call: everything of `DISCARD ALL` except the plans of functions, which are costly and hold
//! nothing of a call, and except our own prepared statements.
//!
//! It follows `COMMIT` in the same message, so it costs no round trip. `DISCARD ALL` must be alone, so it could not.

use std::time::Duration;

use sqlx::{Connection as _, PgConnection, Row as _, postgres::PgRow};
use tokio::time::timeout;

/// How long a failed transaction may take to end properly. After that its connection is closed.
pub(super) const GOODBYE: Duration = Duration::from_millis(250);

/// `COMMIT`, then undoes everything that a statement, or a function that it calls, can leave behind in a session. Every name is
/// qualified with the server's own schema.
///
/// A failed transaction answers `COMMIT` with the tag `ROLLBACK`, which the driver does not report. So a `SELECT` stands before
/// it: in a failed transaction it is an error, and after an error the server ignores the rest of the message. A `COMMIT` that
/// is answered has therefore committed.
///
/// The last rows, one for each prepared statement, say whether SQL prepared it: ours are never prepared by SQL. The same query
/// gives back the session's locks, because a statement of its own would cost Postgres as much as a round trip, and so would a
/// count.
pub(super) const COMMIT: &str = "SELECT; COMMIT; \
    CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; DISCARD TEMP; DISCARD SEQUENCES; \
    SELECT p.from_sql, pg_catalog.pg_advisory_unlock_all() FROM pg_catalog.pg_prepared_statement() p";
/// So many of its statements must be answered for it to have committed.
pub(super) const COMMITTED: u32 = 2;

/// What the last rows of [`COMMIT`] say.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Found {
    prepared: usize,
    /// A statement was prepared by SQL, or it cannot be told.
    by_others: bool,
}

impl Found {
    /// Adds a row.
    pub(super) fn add(&mut self, row: &PgRow) {
        self.prepared += 1;
        self.by_others |= row.try_get(0).unwrap_or(true);
    }
}

/// Whether another call may use the connection.
///
/// A function can deallocate one of our statements and `PREPARE` another under its name: the next call would run that one. And
/// where one of ours is missing, the next call would fail.
pub(super) async fn is_clean(connection: &mut PgConnection, found: Found) -> bool {
    if found.by_others {
        return false;
    }
    if found.prepared == connection.cached_statements_size() && found.prepared > 0 {
        return true;
    }
    // Or a pooler keeps them elsewhere. The next call prepares its own. Without a row, no lock was given back.
    let cleared = timeout(GOODBYE, async {
        connection.clear_cached_statements().await?;
        let unlocking = sqlx::raw_sql("SELECT pg_catalog.pg_advisory_unlock_all()");
        unlocking.execute(connection).await
    });
    matches!(cleared.await, Ok(Ok(_unlocked)))
}
