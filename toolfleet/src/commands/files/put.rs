//! `toolfleet files put`.

use std::{path::PathBuf, process::ExitCode};

use fleet::{
    config::BusArgs,
    files::{FileName, MimeType},
    ids::Label,
};

use super::upload::{Upload, upload};
use crate::commands::{connect, output};

/// What `files put` is told.
#[derive(Debug, clap::Args)]
pub struct PutFile {
    /// The file, of at most 32 MiB
    path: PathBuf,
    /// What it is called for its tool; the last part of the path without it
    #[arg(long)]
    name: Option<FileName>,
    /// Its type, such as application/pdf; by the end of its name without it
    #[arg(long, value_name = "TYPE")]
    mime: Option<MimeType>,
    /// Whose it is: calls of this tenant can name it
    #[arg(long, default_value = "default")]
    tenant: Label,
    #[command(flatten)]
    bus: BusArgs,
    /// Print what it is on one line
    #[arg(long)]
    json: bool,
}

impl PutFile {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let client = connect::client(&self.bus).await?;
        let wanted = Upload {
            tenant: &self.tenant,
            path: &self.path,
            name: self.name.as_ref(),
            mime: self.mime.as_ref(),
        };
        let (_, answer) = upload(&client, &wanted).await?;
        output::print_text(answer.text()?, self.json)?;
        Ok(ExitCode::SUCCESS)
    }
}
