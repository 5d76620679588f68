//! `toolfleet files get`.

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context, bail};
use fleet::{
    config::BusArgs,
    files::FileName,
    ids::{FileId, Label},
};
use fleet_client::{Answer, FleetClient};
use sha2::{Digest, Sha256};
use tokio::{fs::OpenOptions, io::AsyncWriteExt};

use super::{
    DescribedFile,
    upload::{hex_of, repeated},
};
use crate::commands::{ask::unanswered, connect, output};

/// What `files get` is told.
#[derive(Debug, clap::Args)]
pub struct GetFile {
    /// The file: its id, or toolfleet://file/ID as in an answer
    #[expect(clippy::doc_markdown, reason = "--help shows it as it stands here")]
    #[arg(value_parser = super::file)]
    file_id: FileId,
    /// Where it goes, a path at which there is nothing yet, or - for standard output; its own name, in this folder, without it
    #[arg(long, value_name = "PATH|-")]
    out: Option<PathBuf>,
    /// Whose it is
    #[arg(long, default_value = "default")]
    tenant: Label,
    #[command(flatten)]
    bus: BusArgs,
    /// Print what it is on one line, once it is there
    #[arg(long)]
    json: bool,
}

impl GetFile {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let client = connect::client(&self.bus).await?;
        let described = repeated(|| client.describe_file(&self.tenant, self.file_id)).await?;
        let about: DescribedFile = described.read()?;
        let Some(sha256) = about.sha256.as_deref() else {
            bail!("the file is {}: not all of it is handed in", about.state);
        };
        let path = match self.out.clone() {
            Some(path) => path,
            // Checked again: it becomes a path here.
            None => {
                let name: FileName = about.name.parse().context("read the name of the file")?;
                name.as_str().into()
            }
        };
        if path.as_os_str() == "-" {
            let bytes = self.whole(&client, about.bytes).await?;
            check(&bytes, sha256)?;
            let mut output = io::stdout().lock();
            output
                .write_all(&bytes)
                .and_then(|()| output.flush())
                .context("write the output")?;
            return Ok(ExitCode::SUCCESS);
        }
        let bytes = self.whole(&client, about.bytes).await?;
        check(&bytes, sha256)?;
        // Nothing is written over.
        let mut options = OpenOptions::new();
        let shown = path.display();
        let mut file = options
            .write(true)
            .create_new(true)
            .open(&path)
            .await
            .with_context(|| format!("make {shown}"))?;
        file.write_all(&bytes)
            .await
            .with_context(|| format!("write {shown}"))?;
        file.sync_all()
            .await
            .with_context(|| format!("write {shown}"))?;
        output::print_text(described.text()?, self.json)?;
        Ok(ExitCode::SUCCESS)
    }

    /// All of it: 32 MiB at most.
    async fn whole(&self, client: &FleetClient, bytes: u64) -> anyhow::Result<Vec<u8>> {
        let mut whole = Vec::with_capacity(usize::try_from(bytes)?);
        while (whole.len() as u64) < bytes {
            let part = self.part(client, whole.len() as u64).await?;
            whole.extend_from_slice(part.bytes());
        }
        Ok(whole)
    }

    async fn part(&self, client: &FleetClient, at: u64) -> anyhow::Result<Answer> {
        let part = client.read_file(&self.tenant, self.file_id, at).await;
        let part = part.map_err(|problem| unanswered(problem, "get it again"))?;
        let is_part = part
            .headers()
            .is_some_and(|headers| headers.get("Toolfleet-File-Bytes").is_some());
        if !is_part || part.bytes().is_empty() {
            bail!("{}", part.head()?.message());
        }
        Ok(part)
    }
}

fn check(bytes: &[u8], sha256: &str) -> anyhow::Result<()> {
    let found = hex_of(&Sha256::digest(bytes));
    if found != sha256 {
        bail!("what came has the SHA-256 {found} and not {sha256}; get it again");
    }
    Ok(())
}
