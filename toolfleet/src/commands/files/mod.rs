//! `toolfleet files`: hands in files for calls, lists them, gets and deletes them. It asks dispatchers, as any program would.

mod get;
mod list;
mod mime;
mod put;
pub(super) mod upload;

use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;
use fleet::{
    config::BusArgs,
    content,
    ids::{FileId, InvalidName, Label},
};
use fleet_client::Answer;
use serde::Deserialize;

use super::{ask::unanswered, connect, output};

/// What `files` can do.
#[derive(Debug, Subcommand)]
pub enum Files {
    /// Hand in a file, and print what it is: its id is named in calls
    Put(put::PutFile),
    /// List the files of a tenant, the newest first
    List(list::ListFiles),
    /// Get a file, and check that it is what was handed in
    Get(get::GetFile),
    /// Delete a file that no open call names
    Delete(DeleteFile),
}

impl Files {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Put(put) => put.run().await,
            Self::List(list) => list.run().await,
            Self::Get(get) => get.run().await,
            Self::Delete(delete) => delete.run().await,
        }
    }
}

/// What `files delete` is told.
#[derive(Debug, clap::Args)]
pub struct DeleteFile {
    /// The file: its id, or toolfleet://file/ID as in an answer
    #[expect(clippy::doc_markdown, reason = "--help shows it as it stands here")]
    #[arg(value_parser = file)]
    file_id: FileId,
    /// Whose it is
    #[arg(long, default_value = "default")]
    tenant: Label,
    #[command(flatten)]
    bus: BusArgs,
    /// Print the answer on one line
    #[arg(long)]
    json: bool,
}

impl DeleteFile {
    async fn run(self) -> anyhow::Result<ExitCode> {
        let client = connect::client(&self.bus).await?;
        let deleted = client.delete_file(&self.tenant, self.file_id).await;
        let answer = deleted.map_err(|problem| unanswered(problem, "delete it again"))?;
        output::print_text(answer.text()?, self.json)?;
        Ok(ExitCode::from(u8::from(answer.head()?.is_refused())))
    }
}

/// The file that an id or a link of an answer names.
fn file(text: &str) -> Result<FileId, InvalidName> {
    text.strip_prefix(content::large::SCHEME)
        .unwrap_or(text)
        .parse()
}

/// A file, as dispatchers describe it.
#[derive(Debug, Deserialize)]
struct DescribedFile {
    file_id: FileId,
    state: String,
    name: String,
    mime: String,
    bytes: u64,
    sha256: Option<String>,
    expires_at: String,
}

/// The answer, unless it is a refusal: then its sentence is the error.
fn taken(answer: Answer) -> anyhow::Result<Answer> {
    let head = answer.head()?;
    if head.is_refused() {
        bail!("{}", head.message());
    }
    Ok(answer)
}
