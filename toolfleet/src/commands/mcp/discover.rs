//! `toolfleet mcp discover`.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use fleet::mcp::discovered::{FoundTool, Standing};

use super::looked::Look;
use crate::commands::output;

/// What `mcp discover` is told.
#[derive(Debug, clap::Args)]
pub struct Discover {
    #[command(flatten)]
    look: Look,
    /// Write a manifest for each tool that is new or has changed into this folder, NAME.json; a file that is there is left alone
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
    /// Print JSON: an array with an object per tool, with its manifest
    #[arg(long)]
    json: bool,
}

impl Discover {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let found = self.look.look().await?;
        if self.json {
            output::print_json(&found)?;
        } else {
            for one in &found {
                output::print(&line(one))?;
            }
        }
        if let Some(folder) = &self.into {
            let written = write_all(folder, &found)?;
            let folder = folder.display();
            let files = if written == 1 {
                "manifest"
            } else {
                "manifests"
            };
            output::warn(&format!(
                "{written} {files} written into {folder}; look at each, above all at its effect, then: toolfleet tools apply {folder}"
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A line for people.
pub(super) fn line(found: &FoundTool) -> String {
    let FoundTool { upstream, name, .. } = found;
    let (word, more) = match &found.standing {
        Standing::New => ("new", effect(found)),
        Standing::Unchanged => ("unchanged", String::new()),
        Standing::Changed {
            fields,
            words_only,
            unfit: None,
        } => ("changed", changed(fields, *words_only)),
        Standing::Changed {
            unfit: Some(reason),
            ..
        } => (
            "changed",
            format!("its definition; now it is unfit: {reason}"),
        ),
        Standing::Gone => ("gone", "the server does not have it any more".to_owned()),
        Standing::Unfit { reason } => ("unfit", reason.clone()),
    };
    let gap = if more.is_empty() { "" } else { ": " };
    crate::commands::plain::plain(&format!("{word:<9} {name} ({upstream}){gap}{more}"))
}

fn effect(found: &FoundTool) -> String {
    let effect = found
        .manifest
        .as_ref()
        .and_then(|manifest| manifest["effect"].as_str());
    format!("effect {}", effect.unwrap_or("-"))
}

fn changed(fields: &[&str], words_only: bool) -> String {
    let which = if fields.is_empty() {
        "its definition".to_owned()
    } else {
        fields.join(", ")
    };
    if words_only {
        format!("{which}; title and description alone")
    } else {
        which
    }
}

/// Writes what can be applied; how many were written.
fn write_all(folder: &Path, found: &[FoundTool]) -> anyhow::Result<usize> {
    fs::create_dir_all(folder).with_context(|| format!("make the folder {}", folder.display()))?;
    let mut written = 0;
    for one in found {
        let Some(manifest) = &one.manifest else {
            continue;
        };
        let path = folder.join(format!("{}.json", one.name));
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let mut file = match file {
            Ok(file) => file,
            Err(problem) if problem.kind() == std::io::ErrorKind::AlreadyExists => {
                output::warn(&format!(
                    "{} is there already and was left alone",
                    path.display()
                ));
                continue;
            }
            Err(problem) => {
                return Err(problem).with_context(|| format!("write {}", path.display()));
            }
        };
        writeln!(file, "{manifest:#}").with_context(|| format!("write {}", path.display()))?;
        written += 1;
    }
    Ok(written)
}
