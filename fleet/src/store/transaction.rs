//! Transaction: how a call of a `transaction` tool ends, in the transaction with its effect.
//!
//! It runs on the tool's connection, with the rights of the tool's role. That role may use one function of the ledger,
//! `toolfleet_tool.succeed`. Every other statement that ends or moves the call locks the same row, so exactly one of them
//! happens.

use sqlx::PgConnection;

use super::{
    columns::Columns,
    complete::{Moved, read_moved},
};
use crate::ids::{AttemptId, CallId};

/// SQLSTATE: the call is not this attempt's any more. Nothing is committed, for the transaction has failed.
pub const NOT_OURS: &str = "TF001";
/// SQLSTATE: the ledger cannot store the result.
pub const BAD_RESULT: &str = "TF002";

/// Ends the call as succeeded once the open transaction commits. The last statement before COMMIT; `result` is JSON text.
///
/// # Errors
///
/// The error of the server or of the connection. After any error the transaction must not be committed.
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
        // Connections of tools do not keep prepared statements.
        .persistent(false)
        .fetch_one(connection)
        .await?;
    read_moved(Columns::of(&row))
}
