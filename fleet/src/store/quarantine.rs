//! Quarantine: after lost writes, open calls that may have run without the ledger knowing are in doubt.
//!
//! [`crate::lost_writes`] decides whether writes were lost.

use std::{collections::BTreeMap, time::Duration};

use sqlx::{Executor as _, PgConnection};

use super::{StoreError, answer::within};
use crate::{
    call::Language,
    lost_writes::{Comparison, Seen, Watermark},
    outcome::ToolFailure,
    wire::{code::Code, error::ErrorBody, message::Message},
};

/// How long a quarantine may take, or the wait for one of another process.
const QUARANTINE_MAX: Duration = Duration::from_secs(600);

/// Puts in doubt every call that may have run without the ledger knowing.
///
/// Returns how many calls; `None`: another process has done it. One autocommit statement; guard: the number of quarantines;
/// safe to repeat. It locks the open calls against writers while it runs, and waits for another process that runs it already.
///
/// # Errors
///
/// Postgres does not answer; whether it was done is unknown, and the next look shows it.
pub async fn doubt_open_calls(
    connection: &mut PgConnection,
    seen: &Seen,
    remembered: Option<&Watermark>,
    comparison: Comparison,
) -> Result<Option<i64>, StoreError> {
    let doing = "put in doubt what was open";
    let failed = |error| StoreError::from_sqlx(doing, error);
    let patience = format!(
        "SET statement_timeout = {limit}; SET lock_timeout = {limit}",
        limit = QUARANTINE_MAX.as_millis()
    );
    let quarantining = async {
        // Made of a constant of this file.
        let patient = connection.execute(sqlx::AssertSqlSafe(patience)).await;
        patient.map_err(failed)?;
        let (done, doubted): (bool, i64) = sqlx::query_as(
            "SELECT done, doubted FROM toolfleet.quarantine($1, $2, $3, $4, $5, $6::json)",
        )
        .bind(seen.quarantines)
        .bind(seen.next_quarantine(remembered))
        .bind(&seen.system_identifier)
        .bind(seen.timeline)
        .bind(comparison.as_str())
        .bind(errors_of_doubt())
        .fetch_one(&mut *connection)
        .await
        .map_err(failed)?;
        let reset = connection.execute("RESET statement_timeout; RESET lock_timeout");
        reset.await.map_err(failed)?;
        Ok(done.then_some(doubted))
    };
    within(
        doing,
        QUARANTINE_MAX + Duration::from_secs(10),
        quarantining,
    )
    .await
}

/// How many open calls are in doubt because writes were lost. Reads all open calls, so only for commands of people.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn count(connection: &mut PgConnection) -> Result<i64, StoreError> {
    sqlx::query_scalar(
        "SELECT count(*) FROM toolfleet.open_calls WHERE quarantined AND state = 'in_doubt'",
    )
    .fetch_one(connection)
    .await
    .map_err(|error| StoreError::from_sqlx("count calls in quarantine", error))
}

/// The error of such a call, by language.
fn errors_of_doubt() -> String {
    let what = Message::fixed(
        "the ledger lost its latest writes, and perhaps with them that the call was run",
        "账本丢失了最近的写入，这次调用曾经执行的记录可能也随之丢失",
    );
    let failure = ToolFailure::new(Code::InDoubt, what);
    let errors: BTreeMap<&str, ErrorBody> = Language::ALL
        .iter()
        .map(|language| (language.as_str(), ErrorBody::in_doubt(&failure, *language)))
        .collect();
    serde_json::to_string(&errors).expect("errors have only string keys")
}
