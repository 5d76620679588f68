//! The files of an attempt: what its call names, and their bytes for as long as the attempt runs.
//!
//! No message and no claim says which files a call names. The hash of its arguments has them in it, so only a call whose hash is another
//! one is asked about them, and only of a tool that takes files: no other call costs a statement.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use fleet::{
    files::{self, CallFile},
    ids::{AttemptId, CallId, FileId},
    store::{PgPool, StoreError, attempt_files as store},
};

/// The files of an attempt, in the order in which its call names them. Clones are of the same attempt.
#[derive(Clone, Default)]
pub struct AttemptFiles {
    list: Arc<[CallFile]>,
    source: Option<FileSource>,
}

/// Where their bytes are read.
#[derive(Clone)]
struct FileSource {
    pool: PgPool,
    call: CallId,
    attempt: AttemptId,
}

// Names are a caller's words.
impl fmt::Debug for AttemptFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptFiles")
            .field("count", &self.list.len())
            .finish_non_exhaustive()
    }
}

impl AttemptFiles {
    /// What they are.
    pub fn list(&self) -> &[CallFile] {
        &self.list
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The bytes of a file from this place on, at most 256 KiB: as many as one chunk has of them; none at the end of the file. Cancel-safe.
    ///
    /// # Errors
    ///
    /// The ledger does not answer; or the attempt is over, or has no such file.
    pub async fn read(&self, file: FileId, offset: u64) -> Result<Bytes, StoreError> {
        let part = match &self.source {
            Some(FileSource {
                pool,
                call,
                attempt,
            }) => store::read_of_attempt(pool, *call, *attempt, file, offset).await?,
            None => None,
        };
        part.ok_or_else(|| StoreError::Unreadable {
            doing: "read a file of an attempt",
            what: "the attempt is over, or has no such file".to_owned(),
        })
    }

    /// Those of a running attempt.
    ///
    /// # Errors
    ///
    /// The ledger does not answer.
    pub(crate) async fn of(
        pool: &PgPool,
        call: CallId,
        attempt: AttemptId,
    ) -> Result<Self, StoreError> {
        let list = store::of_attempt(pool, call, attempt).await?;
        let source = FileSource {
            pool: pool.clone(),
            call,
            attempt,
        };
        Ok(Self {
            list: list.into(),
            source: Some(source),
        })
    }

    /// The hash of arguments with this one, and of these files.
    pub(crate) fn hash(&self, args_hash: [u8; 32]) -> [u8; 32] {
        let ids: Vec<FileId> = self.list.iter().map(|file| file.file_id).collect();
        files::hash(args_hash, &ids)
    }
}
