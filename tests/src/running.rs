//! A call that runs under an attempt, as if a worker had just claimed it.

use fleet::{
    ids::{AttemptId, CallId},
    store::{
        complete::Moved,
        transaction::{SUCCEED, moved},
    },
};
use sqlx::{AssertSqlSafe, PgConnection, Row as _, ValueRef as _, postgres::PgRow};

/// Takes a call out of the history, as if that had lost it.
///
/// # Panics
///
/// The server refuses.
pub async fn forget(connection: &mut PgConnection, call: CallId) {
    // The history refuses changes.
    let forget = format!(
        "SET session_replication_role = replica; DELETE FROM toolfleet.finished_calls WHERE call_id = '{}'; \
         RESET session_replication_role",
        call.0
    );
    sqlx::raw_sql(AssertSqlSafe(forget))
        .execute(connection)
        .await
        .expect("take a call out of the history");
}

/// Puts a running call of effect `transaction` into the ledger, or gives this attempt one that runs already.
///
/// # Panics
///
/// The server refuses.
pub async fn transaction(connection: &mut PgConnection, call: CallId, attempt: AttemptId) {
    sqlx::query(
        "INSERT INTO toolfleet.open_calls (call_id, state, tenant, tool, tool_version, effect, queue, line, priority, \
         key_retention_ms, args, args_hash, language, dispatcher_id, accepted_at, deadline_at, not_before, attempts, \
         attempt_id, worker_id, first_started_at, attempt_started_at, attempt_until, attempt_timeout_ms) \
         VALUES ($1, 'running', 'acme', 'tool', 1, 'transaction', 'default', 'default', 1, 0, '{}', '', 'en', gen_random_uuid(), \
         now(), now() + interval '1 hour', now(), 1, $2, gen_random_uuid(), now(), now(), now() + interval '1 minute', 60000) \
         ON CONFLICT (call_id) DO UPDATE SET attempt_id = excluded.attempt_id",
    )
    .bind(call.0)
    .bind(attempt.0)
    .execute(connection)
    .await
    .expect("put a running call into the ledger");
}

/// Ends a call as the executor of transactions does, as the last statement of the open one.
///
/// # Errors
///
/// As the server has it.
///
/// # Panics
///
/// Its row is not that of a call that has ended.
pub async fn succeed(
    connection: &mut PgConnection,
    call: CallId,
    attempt: AttemptId,
    result: &str,
) -> Result<Moved, sqlx::Error> {
    let succeeding = sqlx::query(SUCCEED)
        .bind(call.0)
        .bind(attempt.0)
        .bind(result)
        .persistent(false);
    let row = succeeding.fetch_one(connection).await?;
    let columns = (0..row.len()).map(|index| column(&row, index));
    Ok(moved(columns).expect("a call that has ended"))
}

fn column(row: &PgRow, index: usize) -> Option<&[u8]> {
    let value = row.try_get_raw(index).expect("a column");
    (!value.is_null()).then(|| value.as_bytes().expect("its bytes"))
}
