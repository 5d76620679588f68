//! Files that callers hand in: begun, written in chunks, finished, read and deleted. What a running attempt has of them is in `attempt_files`.
//!
//! Functions in the database decide, under the lock of the file's row, so chunks may go to any dispatcher. Each is an own autocommit statement.

use std::time::Duration;

use bytes::Bytes;
use sqlx::{PgPool, Row as _, postgres::PgRow};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{StoreError, answer::answer_within};
use crate::{
    files::{CHUNK_MAX, CallFile, FileName, MimeType},
    ids::{FileId, Label},
};

/// How long an answer is waited for. The server bounds its statements, and hashes 32 MiB within a second.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(10);

/// A file that is to be handed in.
#[derive(Debug, Clone)]
pub struct NewFile<'a> {
    /// Made by the dispatcher.
    pub file_id: FileId,
    /// Whose it is.
    pub tenant: &'a Label,
    /// Its name.
    pub name: &'a FileName,
    /// Its type.
    pub mime: &'a MimeType,
    /// How many bytes it will have, 1 to [`crate::files::BYTES_MAX`].
    pub bytes: u64,
}

/// How many files, and how many bytes of them, a tenant may have. 0: as many as it hands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileQuota {
    /// Files.
    pub files: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// What came of beginning a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileBegun {
    /// Its chunks may come until then.
    Open {
        /// When it is deleted unless it is finished.
        expires_at: OffsetDateTime,
    },
    /// The tenant has as much as it may have.
    OverQuota {
        /// Its files.
        files: u64,
        /// Their bytes.
        bytes: u64,
    },
}

/// What came of a chunk. Each with how many bytes the file has now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkTaken {
    /// It is there, since now or before.
    There {
        /// The bytes that the file has.
        received: u64,
        /// Whether the file is finished.
        is_ready: bool,
    },
    /// Other bytes are there.
    Differs {
        /// The bytes that the file has.
        received: u64,
    },
    /// It is not the next one, and none that is there begins where it does.
    Gap {
        /// The bytes that the file has.
        received: u64,
    },
    /// With it the file would have more bytes than were announced.
    Beyond {
        /// The bytes that the file has.
        received: u64,
        /// The bytes that were announced.
        bytes: u64,
    },
    /// The file has as many chunks as it may have.
    TooMany,
    /// The tenant has no such file.
    NotFound,
}

/// What came of finishing a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileFinished {
    /// It is ready, since now or before.
    Ready(FileRow),
    /// Not all of it is there.
    Short {
        /// The bytes that it has.
        received: u64,
        /// The bytes that were announced.
        bytes: u64,
    },
    /// It has another hash.
    Differs {
        /// The hash of what is there.
        sha256: [u8; 32],
    },
    /// The tenant has no such file.
    NotFound,
}

/// What came of deleting a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileDeleted {
    /// It is gone.
    Now,
    /// An open call names it.
    Named,
    /// The tenant has no such file.
    NotFound,
}

/// A file as its tenant sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRow {
    /// The file.
    pub file_id: FileId,
    /// Its name.
    pub name: String,
    /// Its type.
    pub mime: String,
    /// The bytes that were announced.
    pub bytes: u64,
    /// The bytes that are there.
    pub received: u64,
    /// Its hash; `None`: it is not ready.
    pub sha256: Option<[u8; 32]>,
    /// When it is deleted, unless an open call names it.
    pub expires_at: OffsetDateTime,
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePart {
    /// Its bytes; none where the file has ended.
    pub data: Bytes,
    /// How many bytes the file has.
    pub bytes: u64,
    /// Its type.
    pub mime: String,
}

/// Begins a file. Guard: the tenant's quota, under a lock of the tenant's own for a moment. Not safe to repeat: what was begun
/// twice and is not finished goes after an hour.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn begin(
    pool: &PgPool,
    new: &NewFile<'_>,
    quota: FileQuota,
) -> Result<FileBegun, StoreError> {
    let doing = "begin a file";
    let asking = sqlx::query(
        "SELECT verdict, expires_at, files, kept_bytes FROM toolfleet.begin_file($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(new.file_id.0)
    .bind(new.tenant.as_str())
    .bind(new.name.as_str())
    .bind(new.mime.as_str())
    .bind(signed(new.bytes))
    .bind(signed(quota.files))
    .bind(signed(quota.bytes))
    .fetch_one(pool);
    let row = answer_within(doing, ANSWER_MAX, asking).await?;
    read(doing, &row, |row| {
        Ok(match row.try_get("verdict")? {
            "open" => FileBegun::Open {
                expires_at: row.try_get("expires_at")?,
            },
            "quota" => FileBegun::OverQuota {
                files: unsigned(row, "files")?,
                bytes: unsigned(row, "kept_bytes")?,
            },
            other => return Err(unknown(other)),
        })
    })
}

/// Takes a chunk. Guards: the file is the tenant's and not expired, the chunk is the next one. Safe to repeat. Locks the file's row.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn write_chunk(
    pool: &PgPool,
    tenant: &Label,
    file: FileId,
    at: u64,
    data: &[u8],
) -> Result<ChunkTaken, StoreError> {
    let doing = "write a chunk of a file";
    let asking = sqlx::query(
        "SELECT verdict, state, received, bytes FROM toolfleet.write_chunk($1, $2, $3, $4)",
    )
    .bind(file.0)
    .bind(tenant.as_str())
    .bind(signed(at))
    .bind(data)
    .fetch_one(pool);
    let row = answer_within(doing, ANSWER_MAX, asking).await?;
    read(doing, &row, |row| {
        let verdict: &str = row.try_get("verdict")?;
        if verdict == "not_found" {
            return Ok(ChunkTaken::NotFound);
        }
        let received = unsigned(row, "received")?;
        Ok(match verdict {
            "written" | "same" => ChunkTaken::There {
                received,
                is_ready: row.try_get::<&str, _>("state")? == "ready",
            },
            "differs" => ChunkTaken::Differs { received },
            "gap" => ChunkTaken::Gap { received },
            "beyond" => ChunkTaken::Beyond {
                received,
                bytes: unsigned(row, "bytes")?,
            },
            "too_many" => ChunkTaken::TooMany,
            other => return Err(unknown(other)),
        })
    })
}

/// Finishes a file. Guards: all of it is there, with this hash. Safe to repeat. Locks the file's row while it is hashed, at most a second.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn finish(
    pool: &PgPool,
    tenant: &Label,
    file: FileId,
    sha256: &[u8; 32],
) -> Result<FileFinished, StoreError> {
    let doing = "finish a file";
    let asking = sqlx::query(
        "SELECT verdict, $1::uuid AS file_id, name, mime, bytes, received, sha256, expires_at \
         FROM toolfleet.finish_file($1, $2, $3)",
    )
    .bind(file.0)
    .bind(tenant.as_str())
    .bind(&sha256[..])
    .fetch_one(pool);
    let row = answer_within(doing, ANSWER_MAX, asking).await?;
    read(doing, &row, |row| {
        Ok(match row.try_get("verdict")? {
            "not_found" => FileFinished::NotFound,
            "short" => FileFinished::Short {
                received: unsigned(row, "received")?,
                bytes: unsigned(row, "bytes")?,
            },
            "differs" => FileFinished::Differs {
                sha256: hash_of(row)?.unwrap_or_default(),
            },
            "ready" => FileFinished::Ready(file_row(row)?),
            other => return Err(unknown(other)),
        })
    })
}

/// Deletes a file. Guard: no open call names it. Said again, there is no such file. Locks the file's row.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn delete(
    pool: &PgPool,
    tenant: &Label,
    file: FileId,
) -> Result<FileDeleted, StoreError> {
    let doing = "delete a file";
    let asking = sqlx::query("SELECT toolfleet.delete_file($1, $2) AS verdict")
        .bind(file.0)
        .bind(tenant.as_str())
        .fetch_one(pool);
    let row = answer_within(doing, ANSWER_MAX, asking).await?;
    read(doing, &row, |row| {
        Ok(match row.try_get("verdict")? {
            "deleted" => FileDeleted::Now,
            "named" => FileDeleted::Named,
            "not_found" => FileDeleted::NotFound,
            other => return Err(unknown(other)),
        })
    })
}

/// The columns of [`file_row`].
macro_rules! file_columns {
    () => {
        "f.file_id, f.name, f.mime, f.bytes, f.received, \
         CASE WHEN f.state = 'ready' THEN f.sha256 END AS sha256, f.expires_at"
    };
}

/// A file lives until its time is over, and longer while an open call names it.
macro_rules! lives {
    () => {
        "CASE WHEN f.expires_at > now() THEN true ELSE toolfleet.is_named(f.file_id) END"
    };
}

/// A file of this tenant. `None`: it has no such file. Locks nothing.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn find(
    pool: &PgPool,
    tenant: &Label,
    file: FileId,
) -> Result<Option<FileRow>, StoreError> {
    let doing = "look at a file";
    let asking = sqlx::query(concat!(
        "SELECT ",
        file_columns!(),
        " FROM toolfleet.kept_files f WHERE f.file_id = $1 AND f.tenant = $2 AND ",
        lives!()
    ))
    .bind(file.0)
    .bind(tenant.as_str())
    .fetch_optional(pool);
    let row = answer_within(doing, ANSWER_MAX, asking).await?;
    row.map(|row| read(doing, &row, file_row)).transpose()
}

/// The files of this tenant whose time is not over, the newest first, at most so many, and older than this one. Locks nothing.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn list(
    pool: &PgPool,
    tenant: &Label,
    before: Option<FileId>,
    most: u32,
) -> Result<Vec<FileRow>, StoreError> {
    let doing = "list files";
    let asking = sqlx::query(concat!(
        "SELECT ",
        file_columns!(),
        " FROM toolfleet.kept_files f WHERE f.tenant = $1 AND f.file_id < coalesce($2, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid) \
           AND f.expires_at > now() \
         ORDER BY f.file_id DESC LIMIT $3"
    ))
    .bind(tenant.as_str())
    .bind(before.map(|file| file.0))
    .bind(i64::from(most))
    .fetch_all(pool);
    let rows = answer_within(doing, ANSWER_MAX, asking).await?;
    rows.iter().map(|row| read(doing, row, file_row)).collect()
}

/// Those of these files that a new call of this tenant may name, in no order: they are ready, and their time is not over. Locks nothing: the statement that
/// accepts the call looks again.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn nameable(
    pool: &PgPool,
    tenant: &Label,
    files: &[FileId],
) -> Result<Vec<CallFile>, StoreError> {
    let doing = "look at the files of a call";
    // By their ids alone: a tenant may have ten thousand others.
    let ids: Vec<Uuid> = files.iter().map(|file| file.0).collect();
    let asking = sqlx::query(
        "SELECT f.file_id, f.name, f.mime, f.bytes, f.sha256 FROM toolfleet.kept_files f \
         WHERE f.file_id = ANY($1) AND CASE WHEN f.state = 'ready' THEN f.tenant = $2 AND f.expires_at > now() END",
    )
    .bind(ids)
    .bind(tenant.as_str())
    .fetch_all(pool);
    let rows = answer_within(doing, ANSWER_MAX, asking).await?;
    rows.iter().map(|row| read(doing, row, call_file)).collect()
}

/// A part of a ready file of this tenant, from this place on, at most so many bytes: as much as one chunk has of it. `None`: it has no such file, or
/// it is not ready. Locks nothing.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn read_part(
    pool: &PgPool,
    tenant: &Label,
    file: FileId,
    at: u64,
    most: usize,
) -> Result<Option<FilePart>, StoreError> {
    let doing = "read a file";
    let asking = sqlx::query(concat!(
        "SELECT f.bytes, f.mime, c.data FROM toolfleet.kept_files f \
         LEFT JOIN LATERAL ( \
             SELECT substring(c.data FROM ($3 - c.at)::int + 1 FOR $4) AS data \
             FROM toolfleet.file_chunks c \
             WHERE c.file_id = f.file_id AND c.at <= $3 AND $3 < f.bytes \
             ORDER BY c.at DESC LIMIT 1) c ON true \
         WHERE f.file_id = $1 AND f.tenant = $2 AND f.state = 'ready' AND ",
        lives!()
    ))
    .bind(file.0)
    .bind(tenant.as_str())
    .bind(signed(at))
    .bind(i32::try_from(most.min(CHUNK_MAX)).unwrap_or(i32::MAX))
    .fetch_optional(pool);
    let row = answer_within(doing, ANSWER_MAX, asking).await?;
    let part = |row: &PgRow| {
        let data: Option<Vec<u8>> = row.try_get("data")?;
        Ok(FilePart {
            data: data.unwrap_or_default().into(),
            bytes: unsigned(row, "bytes")?,
            mime: row.try_get("mime")?,
        })
    };
    row.map(|row| read(doing, &row, part)).transpose()
}

/// Deletes at most so many files whose time is over and that no open call names; how many there were. Safe to repeat and to run beside itself. Locks the rows
/// that it deletes, and waits for none.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn drop_expired(pool: &PgPool, most: u32) -> Result<u32, StoreError> {
    let doing = "drop expired files";
    let asking = sqlx::query("SELECT toolfleet.drop_files($1) AS dropped")
        .bind(i32::try_from(most).unwrap_or(i32::MAX))
        .fetch_one(pool);
    let row = answer_within(doing, ANSWER_MAX, asking).await?;
    read(doing, &row, |row| {
        let dropped: i32 = row.try_get("dropped")?;
        Ok(u32::try_from(dropped).unwrap_or(0))
    })
}

fn file_row(row: &PgRow) -> Result<FileRow, sqlx::Error> {
    Ok(FileRow {
        file_id: FileId(row.try_get("file_id")?),
        name: row.try_get("name")?,
        mime: row.try_get("mime")?,
        bytes: unsigned(row, "bytes")?,
        received: unsigned(row, "received")?,
        sha256: hash_of(row)?,
        expires_at: row.try_get("expires_at")?,
    })
}

pub(super) fn call_file(row: &PgRow) -> Result<CallFile, sqlx::Error> {
    Ok(CallFile {
        file_id: FileId(row.try_get("file_id")?),
        name: row.try_get("name")?,
        mime: row.try_get("mime")?,
        bytes: unsigned(row, "bytes")?,
        sha256: hash_of(row)?.unwrap_or_default(),
    })
}

fn hash_of(row: &PgRow) -> Result<Option<[u8; 32]>, sqlx::Error> {
    let hash: Option<Vec<u8>> = row.try_get("sha256")?;
    let hash = hash.map(TryInto::try_into).transpose();
    hash.map_err(|_other_length| sqlx::Error::Decode("a hash has 32 bytes".into()))
}

fn unsigned(row: &PgRow, column: &str) -> Result<u64, sqlx::Error> {
    let number: i64 = row.try_get(column)?;
    Ok(u64::try_from(number).unwrap_or(0))
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unknown(verdict: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("{verdict:?} is not a known verdict").into())
}

pub(super) fn read<T>(
    doing: &'static str,
    row: &PgRow,
    read: impl FnOnce(&PgRow) -> Result<T, sqlx::Error>,
) -> Result<T, StoreError> {
    read(row).map_err(|error| StoreError::unreadable(doing, error))
}
