//! Transaction: how a call of a `transaction` tool ends, inside the transaction that had its effect.
//!
//! It runs on the connection of the tool, with the rights of the tool's role; what it may do of the ledger is one function,
//! `toolfleet_tool.succeed`. Whatever else ends or moves the call locks the same row, so exactly one of them happens.

use sqlx::PgConnection;

use super::{
    columns::Columns,
    complete::{Moved, read_moved},
};
use crate::ids::{AttemptId, CallId};

/// SQLSTATE: the call is not this attempt's any more. Nothing may be committed, and nothing is: the transaction has failed.
pub const NOT_OURS: &str = "TF001";
/// SQLSTATE: the ledger does not take the result.
pub const BAD_RESULT: &str = "TF002";

/// Ends the call as succeeded once the open transaction commits. The last statement before COMMIT; `result` is JSON text.
///
/// # Errors
///
/// As the server or the wire has it. Anything but an answer means that the transaction must not be committed.
pub async fn succeed(
    connection: &mut PgConnection,
    call: CallId,
    attempt: AttemptId,
    result: &str,
) -> Result<Moved, sqlx::Error> {
    let row = sqlx::query("SELECT * FROM toolfleet_tool.succeed($1, $2, $3::pg_catalog.json)")
        .bind(call.0)
        .bind(attempt.0)
        .bind(result)
        // Connections of tools forget what they have prepared.
        .persistent(false)
        .fetch_one(connection)
        .await?;
    read_moved(Columns::of(&row))
}
