//! How a connection is made clean for the next call: everything of `DISCARD ALL`, but for the plans of its functions, which
//! hold nothing of a call and are dear, and for our own prepared statements.
//!
//! It follows `COMMIT` in the same message, so it costs no trip of its own. `DISCARD ALL` could not: it has to be alone.

use std::time::Duration;

use tokio::time::timeout;

use super::wire::Wire;

/// How long a transaction that failed may take to end properly; then its connection is just closed.
pub(super) const GOODBYE: Duration = Duration::from_millis(250);

/// `COMMIT`, and what a statement or a function that it calls can leave behind in a session, undone. Every name is the server's
/// own.
///
/// A transaction that has failed answers `COMMIT` with the tag `ROLLBACK`, but with an error to anything before it; after an error the server takes nothing more of a message. So a `COMMIT` that is answered has committed.
///
/// Its last rows, one for each statement that is prepared, say whether that was done by SQL: never one of ours. They give
/// back the session's locks besides: a statement of its own costs Postgres as much as a trip, and so does counting.
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
