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
use crate::commands::{json, output};

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
        // With what nobody sees as escapes: somebody looks at it before it is applied.
        let text = json::pretty(&manifest.to_string());
        writeln!(file, "{text}").with_context(|| format!("write {}", path.display()))?;
        written += 1;
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use fleet::{
        invisible::first_invisible,
        manifest::{AnyManifest, parse_any},
        mcp::discovered::compare,
    };
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_that_a_server_says_steers_a_terminal_or_hides_in_a_file() {
        let text = "{kind: mcp_server, name: s, version: 1, transport: {stdio: {command: [x]}}}";
        let Ok(AnyManifest::McpServer(server)) = parse_any(text) else {
            panic!("it is a server");
        };
        let hidden = "a\u{202e}b\u{e0041}\u{200b}c";
        let hostile = &format!("{hidden}\u{1b}[31m\u{9b}");
        let long = format!("{hostile}{}", "y\u{202e}".repeat(300_000));
        let definition = |name: &str| {
            json!({"name": name, "description": long, "inputSchema": {"type": "object", "title": hidden,
                "properties": {"p": {"type": "string", "description": hidden, "enum": [hidden, "b"]}}}})
        };
        let unfit = json!({"name": format!("{hostile}2"), "inputSchema": {"type": hostile}});
        let found = compare(&server, &[definition(hidden), unfit], &[]);
        for one in &found {
            let line = line(one);
            assert_eq!(first_invisible(&line), None, "{line:?}");
            assert!(!line.chars().any(char::is_control), "{line:?}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let written = write_all(folder.path(), &found).expect("written");
        assert_eq!(written, 1, "{found:?}");
        let mut fit = found.iter().filter(|one| one.manifest.is_some());
        let name = &fit.next().expect("one is fit").name;
        let path = folder.path().join(format!("{name}.json"));
        let text = fs::read_to_string(path).expect("a manifest");
        assert_eq!(first_invisible(&text), None, "{text}");
        assert!(text.len() < 100_000 && !text.chars().any(|one| one.is_control() && one != '\n'));
        let read = fleet::manifest::parse(&text).expect("a manifest");
        let property = &read.input_schema["properties"]["p"];
        assert_eq!(property["enum"][0], hidden, "what may mean something stays");
    }
}
