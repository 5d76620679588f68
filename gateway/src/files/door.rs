//! The endpoint `file` of the dispatchers, as any client asks it.

use std::time::Duration;

use bytes::Bytes;
use fleet::{
    delay::Reconnect,
    ids::{FileId, Label},
    wire::{code::Code, message::Message},
};
use fleet_client::{Answer, files::NewFile as FileToBegin};
use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    answer::Glimpse,
    ask::Dispatchers,
    refusal::{Refused, Repeatable},
};

/// The most bytes of a piece.
pub(crate) const PIECE_MAX: usize = fleet::files::CHUNK_MAX;
/// How long a question is asked again that may be repeated, while dispatchers are busy or away.
const PATIENCE: Duration = Duration::from_secs(15);
/// What a refusal says of itself.
const REFUSED: &str = "Nats-Service-Error-Code";

/// Asks about the files of one tenant. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct FileDoor {
    dispatchers: Dispatchers,
    tenant: Label,
}

/// A file that is to be made.
#[derive(Debug, Clone)]
pub(crate) struct NewFile {
    pub(crate) name: String,
    pub(crate) mime: String,
    pub(crate) bytes: u64,
}

/// What the door says of a file that is there as a whole.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ReadyFile {
    pub(crate) file_id: FileId,
    pub(crate) name: String,
    pub(crate) mime: String,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

/// Why a question about a file came to nothing.
#[derive(Debug)]
pub(crate) enum NoFile {
    /// The door has refused it.
    Refused(Answer),
    /// It has not answered, or the gateway refuses it.
    Gateway(Refused),
}

impl From<Refused> for NoFile {
    fn from(refused: Refused) -> Self {
        Self::Gateway(refused)
    }
}

/// What may be asked again: the second answer is that of the first.
enum FileAsk<'a> {
    Piece(u64, &'a Bytes),
    Finish(&'a str),
    Describe,
    Read(u64),
    Delete,
}

#[derive(Deserialize)]
struct Begun {
    file_id: FileId,
}

#[derive(Deserialize)]
struct DescribedFile {
    state: String,
}

impl FileDoor {
    /// For the files of this tenant.
    pub(crate) fn of(dispatchers: &Dispatchers, tenant: &Label) -> Self {
        Self {
            dispatchers: dispatchers.clone(),
            tenant: tenant.clone(),
        }
    }

    /// Begins a file. Asked once: each answer is another file.
    ///
    /// # Errors
    ///
    /// It is refused, or nobody answers.
    pub(crate) async fn begin(&self, file: &NewFile) -> Result<FileId, NoFile> {
        let file = FileToBegin {
            name: &file.name,
            mime: &file.mime,
            bytes: file.bytes,
        };
        let asking = self.dispatchers.client().begin_file(&self.tenant, &file);
        let answer = self.dispatchers.hear(asking, Repeatable::Always).await?;
        let answer = taken(answer)?;
        Ok(read::<Begun>(&answer)?.file_id)
    }

    /// Hands in a piece of at most [`PIECE_MAX`] bytes.
    ///
    /// # Errors
    ///
    /// As for [`Self::begin`], after a while.
    pub(crate) async fn piece(
        &self,
        file: FileId,
        offset: u64,
        bytes: &Bytes,
    ) -> Result<(), NoFile> {
        let handed = self.ask(file, &FileAsk::Piece(offset, bytes)).await;
        handed.map(drop)
    }

    /// Ends a file, whose bytes have this hash. The answer describes it.
    ///
    /// # Errors
    ///
    /// As for [`Self::piece`].
    pub(crate) async fn finish(&self, file: FileId, sha256: &str) -> Result<Answer, NoFile> {
        self.ask(file, &FileAsk::Finish(sha256)).await
    }

    /// What there is of a file.
    ///
    /// # Errors
    ///
    /// As for [`Self::piece`]; `conflict` where it is not whole.
    pub(crate) async fn describe(&self, file: FileId) -> Result<ReadyFile, NoFile> {
        let answer = self.ask(file, &FileAsk::Describe).await?;
        if read::<DescribedFile>(&answer)?.state != "ready" {
            return Err(not_whole().into());
        }
        read(&answer)
    }

    /// The bytes of a file from this one on: at least one, at most [`PIECE_MAX`].
    ///
    /// # Errors
    ///
    /// As for [`Self::piece`].
    pub(crate) async fn read(&self, file: FileId, offset: u64) -> Result<Bytes, NoFile> {
        let answer = self.ask(file, &FileAsk::Read(offset)).await?;
        let bytes = answer.bytes().clone();
        if bytes.is_empty() {
            return Err(Refused::no_answer(Repeatable::Always).into());
        }
        Ok(bytes)
    }

    /// Deletes a file.
    ///
    /// # Errors
    ///
    /// As for [`Self::piece`].
    pub(crate) async fn delete(&self, file: FileId) -> Result<Answer, NoFile> {
        self.ask(file, &FileAsk::Delete).await
    }

    /// Asks until it is answered or a while is over.
    async fn ask(&self, file: FileId, ask: &FileAsk<'_>) -> Result<Answer, NoFile> {
        let until = Instant::now() + PATIENCE;
        let mut pauses = Reconnect::default();
        loop {
            let problem = match self.once(file, ask).await {
                Ok(answer) => return Ok(answer),
                Err(problem) => problem,
            };
            let may_pass = match &problem {
                NoFile::Refused(answer) => Glimpse::of(answer.bytes()).may_pass(),
                NoFile::Gateway(refused) => refused.may_pass(),
            };
            if !may_pass || Instant::now() >= until {
                return Err(problem);
            }
            pauses.pause().await;
        }
    }

    async fn once(&self, file: FileId, ask: &FileAsk<'_>) -> Result<Answer, NoFile> {
        let (client, tenant) = (self.dispatchers.client(), &self.tenant);
        let asking = async {
            match ask {
                FileAsk::Piece(offset, bytes) => {
                    let bytes = Bytes::clone(bytes);
                    client.send_chunk(tenant, file, *offset, bytes).await
                }
                FileAsk::Finish(sha256) => client.finish_file(tenant, file, sha256).await,
                FileAsk::Describe => client.describe_file(tenant, file).await,
                FileAsk::Read(offset) => client.read_file(tenant, file, *offset).await,
                FileAsk::Delete => client.delete_file(tenant, file).await,
            }
        };
        taken(self.dispatchers.hear(asking, Repeatable::Always).await?)
    }
}

/// An answer that is no refusal. What is read of a file may look like one, so the headers say it.
fn taken(answer: Answer) -> Result<Answer, NoFile> {
    let is_refusal = answer
        .headers()
        .is_some_and(|headers| headers.get(REFUSED).is_some());
    if is_refusal {
        Err(NoFile::Refused(answer))
    } else {
        Ok(answer)
    }
}

fn read<'a, T: Deserialize<'a>>(answer: &'a Answer) -> Result<T, NoFile> {
    let read = answer.read();
    read.map_err(|_unreadable| Refused::no_answer(Repeatable::Always).into())
}

fn not_whole() -> Refused {
    let what = Message::fixed("the file is not complete yet", "文件还没有上传完整");
    Refused::new(Code::Conflict, what)
}
