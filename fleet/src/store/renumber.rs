//! A new number for a call whose pointer no worker will get: under the old number the stream would refuse it for ever.

use sqlx::PgPool;

use super::{
    StoreError,
    answer::listen,
    read_all,
    sweep::{POINTER, Publishable, publishable},
};
use crate::{ids::CallId, wire::pointer::Pointer};

/// Gives new numbers to the calls that still wait under the number named, and returns what to publish.
///
/// Own statement. It is no move: the revision stays. Guard: queued, not held, no pause, and the same number, so only one of
/// several dispatchers gets the call. Rows that another statement has locked are skipped. If this process dies before it
/// publishes them, [`super::walk::step`] finds them by their age.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn renumber(
    pool: &PgPool,
    stranded: &[(CallId, i32)],
) -> Result<Vec<Publishable>, StoreError> {
    let doing = "give calls new numbers";
    // Joined by ctid, with the rows locked: a join by id would read the whole table when the statistics are those of an emptied
    // one.
    let sql = format!(
        "WITH stranded AS MATERIALIZED ( \
             SELECT o.ctid AS place FROM toolfleet.open_calls o \
             JOIN (SELECT unnest($2::uuid[]) AS id, unnest($3::integer[]) AS n) AS i ON o.call_id = i.id AND o.publish_n = i.n \
             WHERE o.call_id = ANY($2) AND o.state = 'queued' AND NOT o.held AND o.due_at IS NULL \
             FOR UPDATE OF o SKIP LOCKED) \
         UPDATE toolfleet.open_calls SET publish_n = publish_n + 1 \
         WHERE ctid = ANY(ARRAY(SELECT place FROM stranded)) AND state = 'queued' \
         RETURNING {POINTER}"
    );
    // Made of constants of this folder.
    let rows = listen(
        sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(i32::try_from(Pointer::ARGS_INLINE_MAX).unwrap_or(i32::MAX))
            .bind(stranded.iter().map(|(call, _)| call.0).collect::<Vec<_>>())
            .bind(stranded.iter().map(|(_, n)| *n).collect::<Vec<_>>())
            .fetch_all(pool),
    )
    .await
    .map_err(|error| StoreError::from_sqlx(doing, error))?;
    read_all(doing, &rows, publishable)
}
