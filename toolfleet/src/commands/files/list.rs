//! `toolfleet files list`.

use std::process::ExitCode;

use fleet::{
    config::BusArgs,
    ids::{FileId, Label},
};
use serde::Deserialize;

use super::{DescribedFile, upload::repeated};
use crate::commands::{connect, output};

/// What `files list` is told.
#[derive(Debug, clap::Args)]
pub struct ListFiles {
    /// Whose they are
    #[arg(long, default_value = "default")]
    tenant: Label,
    /// Those that are older than this one: the last one of the list before
    #[arg(long, value_name = "FILE_ID")]
    before: Option<FileId>,
    #[command(flatten)]
    bus: BusArgs,
    /// Print JSON: an object with `files`, and in `more` whether there are older ones
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Deserialize)]
struct Listed {
    files: Vec<DescribedFile>,
    more: bool,
}

impl ListFiles {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let client = connect::client(&self.bus).await?;
        let answer = repeated(|| client.list_files(&self.tenant, self.before)).await?;
        if self.json {
            output::print_text(answer.text()?, true)?;
            return Ok(ExitCode::SUCCESS);
        }
        let Listed { files, more } = answer.read()?;
        let last = files.last().map(|file| file.file_id);
        let rows: Vec<_> = files.into_iter().map(cells).collect();
        let headings = ["ID", "STATE", "BYTES", "TYPE", "UNTIL", "NAME"];
        output::print(&output::table(&headings, &rows))?;
        if let Some(last) = last.filter(|_| more) {
            output::warn(&format!("there are older ones: --before {last}"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn cells(file: DescribedFile) -> Vec<String> {
    vec![
        file.file_id.to_string(),
        file.state,
        file.bytes.to_string(),
        file.mime,
        file.expires_at,
        file.name,
    ]
}
