//! A call that runs under an attempt, as if a worker had just claimed it.

use fleet::ids::{AttemptId, CallId};
use sqlx::{AssertSqlSafe, PgConnection};

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
