//! What a running attempt has of the files that its call names: by two functions that the role of workers may execute, and nothing else of
//! files.

use bytes::Bytes;
use sqlx::{PgPool, Row as _};

use super::{
    StoreError,
    answer::answer_within,
    files::{ANSWER_MAX, call_file, read, signed},
};
use crate::{
    files::{CHUNK_MAX, CallFile},
    ids::{AttemptId, CallId, FileId},
};

/// The files of a running attempt, in the order of its call; none where it is over. For the role of workers. Locks nothing.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn of_attempt(
    pool: &PgPool,
    call: CallId,
    attempt: AttemptId,
) -> Result<Vec<CallFile>, StoreError> {
    let doing = "look at the files of an attempt";
    let asking = sqlx::query(
        "SELECT file_id, name, mime, bytes, sha256 FROM toolfleet.attempt_files($1, $2)",
    )
    .bind(call.0)
    .bind(attempt.0)
    .fetch_all(pool);
    let rows = answer_within(doing, ANSWER_MAX, asking).await?;
    rows.iter().map(|row| read(doing, row, call_file)).collect()
}

/// Some bytes of a file that a running attempt has.
///
/// From this place on, at most [`CHUNK_MAX`]: as much as one chunk has of them; none at the end of the file. `None`: the
/// attempt is over, or has no such file. For the role of workers. Locks nothing.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn read_of_attempt(
    pool: &PgPool,
    call: CallId,
    attempt: AttemptId,
    file: FileId,
    at: u64,
) -> Result<Option<Bytes>, StoreError> {
    let doing = "read a file of an attempt";
    let asking = sqlx::query("SELECT toolfleet.read_attempt_file($1, $2, $3, $4, $5) AS data")
        .bind(call.0)
        .bind(attempt.0)
        .bind(file.0)
        .bind(signed(at))
        .bind(i32::try_from(CHUNK_MAX).unwrap_or(i32::MAX))
        .fetch_one(pool);
    let row = answer_within(doing, ANSWER_MAX, asking).await?;
    read(doing, &row, |row| {
        let data: Option<Vec<u8>> = row.try_get("data")?;
        Ok(data.map(Bytes::from))
    })
}
