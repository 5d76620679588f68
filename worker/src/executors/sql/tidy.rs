//! How a connection is made clean for the next call: everything of `DISCARD ALL`, but for the plans of its functions, which
//! hold nothing of a call and are dear, and for our own prepared statements.
//!
//! It follows `COMMIT` in the same message, so it costs no trip of its own. `DISCARD ALL` could not: it has to be alone.

use sqlx::{Connection as _, PgConnection, Row as _, postgres::PgRow};
use tokio::time::timeout;

use super::session::GOODBYE;

/// `COMMIT`, and what a statement or a function that it calls can leave behind in a session, undone. Every name is the server's
/// own.
///
/// A transaction that has failed answers `COMMIT` with the tag `ROLLBACK`, which nobody would see, but an error to anything
/// before it; after an error the server takes nothing more of a message. So a `COMMIT` that is answered has committed.
///
/// Its last row says how many statements are prepared, and how many of them by SQL: never one of ours.
pub(super) const COMMIT: &str = "SELECT; COMMIT; \
    CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; \
    SELECT pg_catalog.pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES; \
    SELECT pg_catalog.count(*), pg_catalog.count(CASE WHEN p.from_sql THEN true END) \
    FROM pg_catalog.pg_prepared_statement() p";
/// So many answers of it say that it has committed.
pub(super) const COMMITTED: u32 = 2;

/// Whether a connection may serve another call, by the last row of [`COMMIT`].
///
/// A function can `PREPARE` under the name of one of our statements, after it has deallocated that: the next call would run
/// it. And where one of ours is missing, the next call would fail.
pub(super) async fn is_clean(connection: &mut PgConnection, last: Option<&PgRow>) -> bool {
    let counted = |at| last.and_then(|row| row.try_get::<i64, _>(at).ok());
    let (Some(prepared), Some(0)) = (counted(0), counted(1)) else {
        return false;
    };
    if usize::try_from(prepared) == Ok(connection.cached_statements_size()) {
        return true;
    }
    // Or a pooler keeps them elsewhere. The next call prepares its own.
    let cleared = timeout(GOODBYE, connection.clear_cached_statements()).await;
    matches!(cleared, Ok(Ok(())))
}
