//! Reads a file of a call, a piece at a time.

use bytes::{Bytes, BytesMut};
use fleet::{files::CallFile, store::StoreError};
use sha2::{Digest, Sha256};

use crate::executors::AttemptFiles;

/// Why a file cannot be read. Reading has no effect, so a tool that has done nothing else may say `not_started`.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The ledger does not answer, or the attempt is over.
    #[error("the file cannot be read at the moment")]
    Unread(#[source] StoreError),
    /// It is gone, or its bytes do not have its SHA-256.
    #[error("the file is not what was uploaded")]
    Changed,
}

/// A file of the call that is being read.
#[derive(Debug)]
pub struct FileReader {
    file: CallFile,
    files: AttemptFiles,
    /// The first byte that was not read.
    at: u64,
    hash: Sha256,
}

impl FileReader {
    pub(super) fn new(file: CallFile, files: AttemptFiles) -> Self {
        Self {
            file,
            files,
            at: 0,
            hash: Sha256::new(),
        }
    }

    /// The next bytes, at most 256 KiB; `None` at the end. The last piece comes only if all of them have the SHA-256 of the file.
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not what was uploaded.
    pub async fn next(&mut self) -> Result<Option<Bytes>, FileError> {
        if self.at >= self.file.bytes {
            return Ok(None);
        }
        let read = self.files.read(self.file.file_id, self.at).await;
        let piece = read.map_err(FileError::Unread)?;
        if piece.is_empty() {
            return Err(FileError::Changed);
        }
        self.at += piece.len() as u64;
        self.hash.update(&piece);
        let is_whole = self.at >= self.file.bytes;
        if is_whole && self.hash.finalize_reset()[..] != self.file.sha256 {
            return Err(FileError::Changed);
        }
        Ok(Some(piece))
    }

    /// All that was not read yet. A file has at most 32 MiB.
    ///
    /// # Errors
    ///
    /// As for [`Self::next`].
    pub async fn rest(mut self) -> Result<Bytes, FileError> {
        let left = self.file.bytes.saturating_sub(self.at);
        let mut whole = BytesMut::with_capacity(usize::try_from(left).unwrap_or_default());
        while let Some(piece) = self.next().await? {
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }
}
