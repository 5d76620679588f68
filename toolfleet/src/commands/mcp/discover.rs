//! `toolfleet mcp discover`.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use fleet::{
    manifest::{Manifest, parse},
    mcp::discovered::FoundTool,
};
use serde_json::{Value, json};

use super::{
    line::lines,
    looked::{Look, Seen},
};
use crate::commands::{json::pretty, output};

/// What `mcp discover` is told.
#[derive(Debug, clap::Args)]
pub struct Discover {
    #[command(flatten)]
    look: Look,
    /// Write a manifest for each tool that is new or has changed into this folder, NAME.json, in the place of one that is applied as it
    /// stands; another file is left alone, and the exit code is 1 then
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
    /// Print JSON: an array with an object per tool, with its manifest
    #[arg(long)]
    json: bool,
}

/// How many files were written, and which were left alone.
#[derive(Debug, Default)]
struct Written {
    count: usize,
    left: Vec<PathBuf>,
}

impl Discover {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let Seen { found, applied } = self.look.look().await?;
        if self.json {
            output::print_json(&found)?;
        } else {
            for one in &found {
                output::print(&lines(one))?;
            }
        }
        let Some(folder) = &self.into else {
            return Ok(ExitCode::SUCCESS);
        };
        let written = write_all(folder, &found, &applied)?;
        for path in &written.left {
            output::warn(&format!(
                "{} is there already, is not what is applied, and was left alone: apply it or take it away, or name another folder",
                path.display()
            ));
        }
        output::warn(&advice(&written, folder, found.len()));
        Ok(ExitCode::from(u8::from(!written.left.is_empty())))
    }
}

/// What is to be done now.
fn advice(written: &Written, folder: &Path, tools: usize) -> String {
    let folder = folder.display();
    match (written.count, written.left.len()) {
        (0, 0) => format!("nothing is new or has changed among {tools} tools"),
        (0, _) => "no manifest was written".to_owned(),
        (count, _) => {
            let files = if count == 1 { "manifest" } else { "manifests" };
            format!(
                "{count} {files} written into {folder}; look at each, above all at effect and executor.mcp.errors, then: toolfleet tools apply {folder}"
            )
        }
    }
}

/// Writes what can be applied.
fn write_all(folder: &Path, found: &[FoundTool], applied: &[Manifest]) -> anyhow::Result<Written> {
    let mut written = Written::default();
    for one in found {
        let Some(manifest) = &one.manifest else {
            continue;
        };
        let path = folder.join(format!("{}.json", one.name));
        let standing = applied
            .iter()
            .find(|applied| applied.name.as_str() == one.name);
        let is_free = match old(&path) {
            OldFile::None => true,
            OldFile::Text(text) => may_be_replaced(&text, standing, manifest),
            OldFile::Other => false,
        };
        if !is_free {
            written.left.push(path);
            continue;
        }
        fs::create_dir_all(folder)
            .with_context(|| format!("make the folder {}", folder.display()))?;
        // With what nobody sees as escapes: somebody looks at it before it is applied.
        let text = pretty(&manifest.to_string());
        replace(&path, &format!("{text}\n"))
            .with_context(|| format!("write {}", path.display()))?;
        written.count += 1;
    }
    Ok(written)
}

/// What stands where a file is to be written.
enum OldFile {
    None,
    Text(String),
    /// A link, which may lead anywhere, a folder, a pipe, or no text.
    Other,
}

fn old(path: &Path) -> OldFile {
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_file() => {
            fs::read_to_string(path).map_or(OldFile::Other, OldFile::Text)
        }
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => OldFile::None,
        Ok(_) | Err(_) => OldFile::Other,
    }
}

/// Writes a file as a whole, in the place of the one of this name and never through it: `toolfleet dev` may be reading the folder.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut new = tempfile::Builder::new()
        .prefix(".toolfleet-")
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(folder)?;
    new.write_all(text.as_bytes())?;
    new.persist(path)?;
    Ok(())
}

/// Whether a file has nothing that is not applied already, or is what would be written.
fn may_be_replaced(old: &str, applied: Option<&Manifest>, new: &Value) -> bool {
    let Ok(old) = parse(old) else {
        return false;
    };
    let same = |other: &Manifest| without_version(&old) == without_version(other);
    applied.is_some_and(same) || parse(&new.to_string()).is_ok_and(|new| same(&new))
}

/// A file of `toolfleet dev` keeps the version with which it began.
fn without_version(manifest: &Manifest) -> Value {
    let mut manifest = json!(manifest);
    manifest["version"] = Value::Null;
    manifest
}

#[cfg(test)]
mod tests {
    use fleet::{
        invisible::first_invisible,
        manifest::{AnyManifest, parse_any},
        mcp::discovered::compare,
    };

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
                "properties": {"p": {"type": "string", "description": hidden, "enum": ["b"]}}}})
        };
        let unfit = json!({"name": format!("{hostile}2"), "inputSchema": {"type": hostile}});
        let found = compare(&server, &[definition(hidden), unfit], &[], &[]);
        for one in &found {
            let line = lines(one);
            assert_eq!(first_invisible(&line), None, "{line:?}");
            assert!(!line.chars().any(char::is_control), "{line:?}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let written = write_all(folder.path(), &found, &[]).expect("written");
        assert_eq!(written.count, 1, "{found:?}");
        let mut fit = found.iter().filter(|one| one.manifest.is_some());
        let name = &fit.next().expect("one is fit").name;
        let path = folder.path().join(format!("{name}.json"));
        let text = fs::read_to_string(path).expect("a manifest");
        assert_eq!(first_invisible(&text), None, "{text}");
        assert!(text.len() < 100_000 && !text.chars().any(|one| one.is_control() && one != '\n'));
        let read = parse(&text).expect("a manifest");
        let property = &read.input_schema["properties"]["p"];
        assert_eq!(property["description"], "abc");
    }

    #[test]
    fn a_file_is_replaced_where_all_that_it_says_is_applied() {
        let text = "{kind: mcp_server, name: s, version: 1, transport: {stdio: {command: [x]}}}";
        let Ok(AnyManifest::McpServer(server)) = parse_any(text) else {
            panic!("it is a server");
        };
        let definition = |words: &str| json!({"name": "t", "description": words, "inputSchema": {"type": "object"}});
        let folder = tempfile::tempdir().expect("a folder");
        let into = folder.path().join("found");
        let first = compare(&server, &[definition("One.")], &[], &[]);
        assert_eq!(write_all(&into, &first, &[]).expect("written").count, 1);
        let path = into.join("s_t.json");
        let read = || parse(&fs::read_to_string(&path).expect("a file")).expect("a manifest");
        let mut applied = vec![read()];
        // Nothing is new: nothing is written, and no folder made.
        let same = compare(&server, &[definition("One.")], &applied, &[]);
        let none = folder.path().join("none");
        assert_eq!(write_all(&none, &same, &applied).expect("looked").count, 0);
        assert!(!none.exists());
        // `dev` counts versions by itself: the file's stays what it was.
        applied[0].version = 3;
        let second = compare(&server, &[definition("Two.")], &applied, &[]);
        for _again in 0..2 {
            let written = write_all(&into, &second, &applied).expect("written");
            assert_eq!((written.count, written.left.len()), (1, 0));
            assert_eq!((read().version, read().description.as_str()), (4, "Two."));
        }
        // What is no file of ours is nobody's to write through.
        let outside = folder.path().join("outside");
        let linked = folder.path().join("linked");
        fs::create_dir(&linked).expect("a folder");
        std::os::unix::fs::symlink(&outside, linked.join("s_t.json")).expect("a link");
        let written = write_all(&linked, &second, &applied).expect("looked");
        assert_eq!((written.count, written.left.len()), (0, 1));
        assert!(!outside.exists());
        let odd = folder.path().join("odd");
        fs::create_dir_all(odd.join("s_t.json")).expect("a folder");
        let written = write_all(&odd, &second, &applied).expect("looked");
        assert_eq!((written.count, written.left.len()), (0, 1));
        // What somebody has changed since is theirs.
        let mut own = json!(read());
        own["timeout"] = json!("7s");
        fs::write(&path, own.to_string()).expect("written");
        let third = compare(&server, &[definition("Three.")], &applied, &[]);
        let written = write_all(&into, &third, &applied).expect("looked");
        assert_eq!((written.count, written.left), (0, vec![path.clone()]));
        assert_eq!(read().description, "Two.");
    }
}
