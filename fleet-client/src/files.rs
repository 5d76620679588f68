//! Files: begun, handed in chunk by chunk, finished, looked at, read and deleted.
//!
//! Each answer is the dispatcher's own, which may be a refusal. All but [`FleetClient::begin_file`] are safe to repeat, and any
//! dispatcher may answer the next one.

use async_nats::HeaderMap;
use bytes::Bytes;
use fleet::ids::{FileId, Label};
use serde::Serialize;

use crate::{answer::Answer, client::FleetClient, error::AskError, question::Question};

/// A file that is to be handed in.
#[derive(Debug, Clone, Copy)]
pub struct NewFile<'a> {
    /// Its name: one name and no path.
    pub name: &'a str,
    /// Its type, such as `application/pdf`.
    pub mime: &'a str,
    /// How many bytes it will have, 1 to 32 MiB.
    pub bytes: u64,
}

/// A request about files that is no chunk.
#[derive(Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum FileAsked<'a> {
    Begin {
        name: &'a str,
        mime: &'a str,
        bytes: u64,
    },
    Finish {
        file_id: FileId,
        sha256: &'a str,
    },
    Describe {
        file_id: FileId,
    },
    Read {
        file_id: FileId,
        offset: u64,
    },
    Delete {
        file_id: FileId,
    },
    List {
        #[serde(skip_serializing_if = "Option::is_none")]
        before: Option<FileId>,
    },
}

impl FleetClient {
    /// Announces a file; the answer has its `file_id`, and in `chunk_bytes` how much a chunk may have. Repeated, it announces
    /// another file; what is not finished goes after an hour.
    ///
    /// # Errors
    ///
    /// [`FleetClient::ask`].
    pub async fn begin_file(&self, tenant: &Label, new: &NewFile<'_>) -> Result<Answer, AskError> {
        let NewFile { name, mime, bytes } = *new;
        self.ask_of_files(tenant, &FileAsked::Begin { name, mime, bytes })
            .await
    }

    /// Hands in the next chunk, of at most 256 KiB; the answer has in `received` how much of the file is there.
    ///
    /// # Errors
    ///
    /// [`FleetClient::ask`].
    pub async fn send_chunk(
        &self,
        tenant: &Label,
        file: FileId,
        offset: u64,
        bytes: impl Into<Bytes>,
    ) -> Result<Answer, AskError> {
        let mut headers = HeaderMap::new();
        headers.insert("Toolfleet-File", file.to_string().as_str());
        headers.insert("Toolfleet-File-Offset", offset.to_string().as_str());
        let question = Question::new(self.subjects().file(tenant), bytes);
        self.ask(Question {
            headers,
            ..question
        })
        .await
    }

    /// Says that all of a file is handed in, with its SHA-256 in hexadecimal digits; the answer describes it.
    ///
    /// # Errors
    ///
    /// [`FleetClient::ask`].
    pub async fn finish_file(
        &self,
        tenant: &Label,
        file_id: FileId,
        sha256: &str,
    ) -> Result<Answer, AskError> {
        self.ask_of_files(tenant, &FileAsked::Finish { file_id, sha256 })
            .await
    }

    /// Describes a file.
    ///
    /// # Errors
    ///
    /// [`FleetClient::ask`].
    pub async fn describe_file(&self, tenant: &Label, file_id: FileId) -> Result<Answer, AskError> {
        self.ask_of_files(tenant, &FileAsked::Describe { file_id })
            .await
    }

    /// Some bytes of a file from this place on, at most 256 KiB: as many as one chunk has of them. They are the bytes of the answer, whose
    /// header `Toolfleet-File-Bytes` has how many the whole file has; a refusal has `Nats-Service-Error-Code`.
    ///
    /// # Errors
    ///
    /// [`FleetClient::ask`].
    pub async fn read_file(
        &self,
        tenant: &Label,
        file_id: FileId,
        offset: u64,
    ) -> Result<Answer, AskError> {
        self.ask_of_files(tenant, &FileAsked::Read { file_id, offset })
            .await
    }

    /// Deletes a file that no open call names.
    ///
    /// # Errors
    ///
    /// [`FleetClient::ask`].
    pub async fn delete_file(&self, tenant: &Label, file_id: FileId) -> Result<Answer, AskError> {
        self.ask_of_files(tenant, &FileAsked::Delete { file_id })
            .await
    }

    /// The tenant's files, the newest first, at most 100, and older than `before`; the answer has `files`, and in `more` whether there are
    /// older ones.
    ///
    /// # Errors
    ///
    /// [`FleetClient::ask`].
    pub async fn list_files(
        &self,
        tenant: &Label,
        before: Option<FileId>,
    ) -> Result<Answer, AskError> {
        self.ask_of_files(tenant, &FileAsked::List { before }).await
    }

    async fn ask_of_files(
        &self,
        tenant: &Label,
        asked: &FileAsked<'_>,
    ) -> Result<Answer, AskError> {
        let body = serde_json::to_vec(asked).expect("a question has only string keys");
        self.ask(Question::new(self.subjects().file(tenant), body))
            .await
    }
}
