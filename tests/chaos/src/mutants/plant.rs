//! Mistakes in the product's sources are made in a copy of the tree: the product has no line of them.
//!
//! All of them are in one copy, so it is built once. Each asks, by its mutant's name, whether this process is told to make
//! it. A piece that is changed must occur exactly once, or planting ends and names it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use super::ALL;

/// A change of a source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    /// From the root of the repository.
    pub(super) file: &'static str,
    pub(super) find: &'static str,
    pub(super) replace: &'static str,
}

/// How a copy asks, and how its programs know that they can.
const COMMON: [Source; 2] = [
    Source {
        file: "fleet/src/lib.rs",
        find: "\npub mod call;\n",
        replace: "\npub mod call;\npub mod mutant;\n",
    },
    Source {
        file: "tests/chaos/src/mutants/mod.rs",
        find: "const PLANTED: bool = false;",
        replace: "const PLANTED: bool = true;",
    },
];
/// A source that a copy has besides.
const ASKED: (&str, &str) = (
    concat!("fleet/src/", "mutant.rs"),
    include_str!("../../mutants/mutant.rs"),
);
/// What no copy has: what is built, fetched or kept by others.
const NOT_COPIED: [&str; 5] = [".git", ".tools", ".toolfleet", "node_modules", "target"];

/// The sources that a copy has otherwise than the tree at `root`.
pub(super) fn planted(root: &Path) -> Result<BTreeMap<&'static str, String>> {
    let mut sources = BTreeMap::from([(ASKED.0, ASKED.1.to_owned())]);
    let of_mutants = ALL.iter().flat_map(|mutant| mutant.sources);
    for Source {
        file,
        find,
        replace,
    } in COMMON.iter().chain(of_mutants).copied()
    {
        let text = match sources.remove(file) {
            Some(text) => text,
            None => fs::read_to_string(root.join(file)).with_context(|| format!("read {file}"))?,
        };
        let times = text.matches(find).count();
        ensure!(
            times == 1,
            "{file} has {times} times what is changed: {find}"
        );
        sources.insert(file, text.replace(find, replace));
    }
    Ok(sources)
}

/// Makes the copy, or brings it up to date; what has not changed is not written, so that little is built anew.
pub(crate) fn plant(into: &Path) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let planted = planted(&root)?;
    let mut files = BTreeSet::new();
    find_files(&root, Path::new(""), &mut files)?;
    files.extend(planted.keys().map(PathBuf::from));
    for file in &files {
        let text = match planted.iter().find(|(name, _)| Path::new(name) == file) {
            Some((_, text)) => text.clone().into_bytes(),
            None => fs::read(root.join(file)).with_context(|| file.display().to_string())?,
        };
        let copy = into.join(file);
        if fs::read(&copy).is_ok_and(|there| there == text) {
            continue;
        }
        fs::create_dir_all(copy.parent().unwrap_or(into))?;
        fs::write(&copy, text).with_context(|| copy.display().to_string())?;
    }
    let mut there = BTreeSet::new();
    find_files(into, Path::new(""), &mut there)?;
    for gone in there.difference(&files) {
        fs::remove_file(into.join(gone))?;
    }
    Ok(())
}

fn find_files(root: &Path, folder: &Path, files: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        let kind = entry.file_type()?;
        if NOT_COPIED.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        if kind.is_dir() {
            find_files(root, &path, files)?;
        } else if kind.is_file() {
            files.insert(path);
        }
    }
    Ok(())
}
