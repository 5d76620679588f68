//! How a connection is made clean for the next call: everything of `DISCARD ALL`, but for the plans of its functions, which
//! hold nothing of a call and are dear, and for our own prepared statements.
//!
//! It follows `COMMIT` in the same message, so it costs no trip of its own. `DISCARD ALL` could not: it has to be alone.

use std::time::Duration;

use tokio::time::timeout;

use super::wire::Wire;

/// How long a failed transaction may take to end properly. After that its connection is closed.
pub(super) const GOODBYE: Duration = Duration::from_millis(250);

/// `COMMIT`, then undoes everything that a statement, or a function that it calls, can leave behind in a session. Every name is
/// qualified with the server's own schema.
///
/// A failed transaction answers `COMMIT` with the tag `ROLLBACK`, but any statement before it with an error, and after an error
/// the server ignores the rest of the message. So a `SELECT` stands first, and a `COMMIT` that is answered has committed.
///
/// The last rows, one for each prepared statement, say whether SQL prepared it: ours are never prepared by SQL. The same query
/// gives back the session's locks, because a statement of its own would cost Postgres as much as a round trip, and so would a
/// count.
pub(super) const COMMIT: &str = "SELECT; COMMIT; \
    CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; DISCARD TEMP; DISCARD SEQUENCES; \
    SELECT p.from_sql, pg_catalog.pg_advisory_unlock_all() FROM pg_catalog.pg_prepared_statement() p";
/// So many answers of it say that it has committed.
pub(super) const COMMITTED: u32 = 2;

/// What the last rows of [`COMMIT`] say.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Found {
    prepared: usize,
    /// Not by us, or it cannot be told.
    by_others: bool,
}

impl Found {
    /// Takes in another row, whose first column this is, as text.
    pub(super) fn add(&mut self, from_sql: Option<&[u8]>) {
        self.prepared += 1;
        self.by_others |= from_sql != Some(b"f");
    }
}

/// Whether a connection may serve another call.
///
/// A function can `PREPARE` under the name of one of our statements, after it has deallocated that: the next call would run
/// it. And where one of ours is missing, the next call would fail.
pub(super) async fn is_clean(wire: &mut Wire, found: Found) -> bool {
    if found.by_others {
        return false;
    }
    if found.prepared == wire.prepared() && found.prepared > 0 {
        return true;
    }
    // Or a pooler keeps them elsewhere. The next call prepares its own; and where there was no row, nothing was given back.
    let cleared = timeout(GOODBYE, async {
        wire.close_prepared()?;
        wire.rows(
            "SELECT pg_catalog.pg_advisory_unlock_all()::pg_catalog.text",
            &[],
        )
        .await
    });
    matches!(cleared.await, Ok(Ok(_unlocked)))
}
