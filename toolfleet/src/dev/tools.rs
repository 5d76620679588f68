//! The folder of tool manifests: a new or changed file is applied, a wrong one is reported, and the others go on.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{bail, ensure};
use fleet::{ids::ToolName, manifest::ManifestProblem};
use sha2::{Digest, Sha256};
use tokio::time::{sleep, timeout};

use super::{hooks::DevHooks, screen::Screen};

/// Larger files are no manifests, and further files are not read.
const FILES_MAX: usize = 1_000;
const BYTES_MAX: u64 = 1024 * 1024;
/// How many names of other files are said.
const UNREAD_MAX: usize = 5;
/// How long one file may take to be applied.
const APPLY_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(500);
/// A file may fail for a reason that passes: it is tried again every so many polls.
const RETRY_POLLS: u32 = 10;

/// A watched folder.
pub(crate) struct ToolFolder {
    folder: PathBuf,
    database_url: String,
    /// The fleet to tell; `None` before its dispatchers are up, which read all tools when they start.
    nats_url: Option<String>,
    hooks: DevHooks,
    screen: Screen,
    seen: BTreeMap<PathBuf, FileState>,
    applied: BTreeSet<PathBuf>,
    /// Files whose present content is not applied, with the last message about them.
    failing: BTreeMap<PathBuf, String>,
    /// The last message about the folder.
    said: Option<String>,
}

/// The state of a file.
struct FileState {
    stamp: Stamp,
    /// It looked the same twice, so it is not being written.
    settled: bool,
    hash: Option<[u8; 32]>,
    /// The tool in it, if it is a manifest.
    tool: Option<ToolName>,
}

/// Changes with every write, however an editor writes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    changed_at: (i64, i64),
}

impl ToolFolder {
    pub(crate) fn new(
        folder: PathBuf,
        database_url: String,
        hooks: DevHooks,
        screen: Screen,
    ) -> Self {
        let (seen, applied, failing) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self {
            folder,
            database_url,
            nats_url: None,
            hooks,
            screen,
            seen,
            applied,
            failing,
            said: None,
        }
    }

    /// Applies every file, and names what else is in the folder.
    pub(crate) async fn apply_all(&mut self) {
        self.say_unread();
        // The first look sees the files, the second finds them settled.
        let mut found = self.look();
        found.extend(self.look());
        self.apply(found).await;
    }

    /// How many files are applied and how many are not, for people.
    pub(crate) fn summary(&self) -> String {
        let problems = match self.failing.len() {
            0 => String::new(),
            some => format!(", {some} with problems (see above)"),
        };
        format!(
            "{} applied{problems}; watching {}",
            self.applied.len(),
            self.folder.display()
        )
    }

    /// Applies changes, and tells the fleet at this NATS server; runs until it is dropped.
    pub(crate) async fn watch(mut self, nats_url: String) {
        self.nats_url = Some(nats_url);
        for poll in 1_u32.. {
            sleep(POLL).await;
            let mut changed = self.look();
            if poll % RETRY_POLLS == 0 || !changed.is_empty() {
                let settled =
                    |path: &&PathBuf| self.seen.get(*path).is_some_and(|seen| seen.settled);
                changed.extend(self.failing.keys().filter(settled).cloned());
                self.apply(changed).await;
            }
        }
    }

    /// The settled files whose content is new.
    fn look(&mut self) -> BTreeSet<PathBuf> {
        let present = match manifests(&self.folder) {
            Ok(present) => present,
            Err(reason) => {
                self.say_once(format!(
                    "tools: cannot read {}: {reason}",
                    self.folder.display()
                ));
                return BTreeSet::new();
            }
        };
        if present.len() > FILES_MAX {
            self.say_once(format!(
                "tools: only the first {FILES_MAX} of {} files are looked at",
                present.len()
            ));
        }
        self.forget_missing(&present);
        present
            .into_iter()
            .take(FILES_MAX)
            .filter_map(|(path, stamp)| self.is_new(&path, stamp).then_some(path))
            .collect()
    }

    /// Records how a file looks now; true when it is settled with a new content.
    fn is_new(&mut self, path: &Path, stamp: Stamp) -> bool {
        let Some(seen) = self.seen.get_mut(path).filter(|seen| seen.stamp == stamp) else {
            let before = self.seen.remove(path);
            let (hash, tool) = before.map_or((None, None), |seen| (seen.hash, seen.tool));
            self.seen.insert(
                path.to_path_buf(),
                FileState {
                    stamp,
                    settled: false,
                    hash,
                    tool,
                },
            );
            return false;
        };
        if std::mem::replace(&mut seen.settled, true) {
            return false;
        }
        // Applying an unreadable file reports the reason.
        let hash = hash(path).ok();
        let is_new = hash.is_none() || seen.hash != hash;
        if is_new {
            seen.tool = (self.hooks.tool_of)(path);
        }
        seen.hash = hash;
        is_new
    }

    fn forget_missing(&mut self, present: &BTreeMap<PathBuf, Stamp>) {
        let missing: Vec<PathBuf> = self
            .seen
            .keys()
            .filter(|path| !present.contains_key(*path))
            .cloned()
            .collect();
        for path in missing {
            let tool = self.seen.remove(&path).and_then(|seen| seen.tool);
            self.failing.remove(&path);
            if self.applied.remove(&path) {
                let name = name(&path);
                let tool = tool.as_ref().map_or("NAME", ToolName::as_str);
                self.screen.line(&format!(
                    "tools: {name} is gone, and its tool is still offered; to end that: \
                     toolfleet tools retire {tool} --note WHY"
                ));
            }
        }
    }

    /// Applies these files; again while one succeeds, because one may need another.
    async fn apply(&mut self, mut pending: BTreeSet<PathBuf>) {
        let mut problems = BTreeMap::new();
        loop {
            let waiting = pending.len();
            for path in std::mem::take(&mut pending) {
                match self.apply_one(&path).await {
                    Ok(mut lines) => {
                        problems.remove(&path);
                        if self.failing.remove(&path).is_some() && lines.is_empty() {
                            lines.push("fine again, and applied as it is".to_owned());
                        }
                        for line in lines {
                            self.screen.line(&format!("tools: {}: {line}", name(&path)));
                        }
                        self.applied.insert(path);
                    }
                    Err(problem) => {
                        problems.insert(path.clone(), format!("{problem:#}"));
                        pending.insert(path);
                    }
                }
            }
            if pending.is_empty() || pending.len() == waiting {
                break;
            }
        }
        for (path, problem) in problems {
            if self.failing.get(&path) != Some(&problem) {
                self.screen
                    .line(&format!("tools: {} is not applied: {problem}", name(&path)));
            }
            self.failing.insert(path, problem);
        }
    }

    async fn apply_one(&self, path: &Path) -> anyhow::Result<Vec<String>> {
        let bytes = fs::metadata(path)?.len();
        ensure!(
            bytes <= BYTES_MAX,
            "it has {bytes} bytes, a manifest at most {BYTES_MAX}"
        );
        if let Some(problem) = self.twin(path) {
            bail!(problem.message);
        }
        match timeout(
            APPLY_MAX,
            (self.hooks.apply_tools)(
                self.database_url.clone(),
                self.nats_url.clone(),
                path.to_path_buf(),
            ),
        )
        .await
        {
            Ok(lines) => lines,
            Err(_) => bail!("it took longer than {APPLY_MAX:?}"),
        }
    }

    /// Another file has the same tool: only the person knows which of them is meant.
    fn twin(&self, path: &Path) -> Option<ManifestProblem> {
        let tool = self.seen.get(path)?.tool.as_ref()?;
        let (other, _) = self
            .seen
            .iter()
            .find(|(other, seen)| *other != path && seen.tool.as_ref() == Some(tool))?;
        Some(ManifestProblem::duplicate(tool, &name(other)))
    }

    /// Names what stands beside the manifests: one with another ending, or in a subfolder, is not found otherwise.
    fn say_unread(&self) {
        // A folder that cannot be read is said by the first look.
        let unread = unread(&self.folder).unwrap_or_default();
        if unread.is_empty() {
            return;
        }
        let more = match unread.len().saturating_sub(UNREAD_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named: Vec<&str> = unread.iter().take(UNREAD_MAX).map(String::as_str).collect();
        self.screen.line(&format!(
            "tools: not read: {}{more}; manifests are the *.yaml, *.yml and *.json of the folder itself",
            named.join(", ")
        ));
    }

    fn say_once(&mut self, text: String) {
        if self.said.as_ref() != Some(&text) {
            self.screen.line(&text);
            self.said = Some(text);
        }
    }
}

/// Hidden files are none: editors keep drafts there.
fn is_hidden(path: &Path) -> bool {
    name(path).starts_with('.')
}

fn is_manifest(path: &Path) -> bool {
    let known = path
        .extension()
        .is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|one| extension == *one));
    known && !is_hidden(path)
}

/// What is in a folder beside its manifests and hidden files, by name; a folder's name ends with a slash.
fn unread(folder: &Path) -> io::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && !is_hidden(&path) {
            found.insert(format!("{}/", name(&path)));
        } else if !is_manifest(&path) && !is_hidden(&path) {
            found.insert(name(&path));
        }
    }
    Ok(found)
}

/// The manifests of a folder.
fn manifests(folder: &Path) -> io::Result<BTreeMap<PathBuf, Stamp>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // A file may be removed between the listing and this.
        let Ok(metadata) = fs::metadata(&path) else {
            continue;
        };
        if metadata.is_file() && is_manifest(&path) {
            let changed_at = (metadata.ctime(), metadata.ctime_nsec());
            found.insert(
                path,
                Stamp {
                    inode: metadata.ino(),
                    bytes: metadata.len(),
                    changed_at,
                },
            );
        }
    }
    Ok(found)
}

fn hash(path: &Path) -> io::Result<[u8; 32]> {
    let mut content = Vec::new();
    File::open(path)?
        .take(BYTES_MAX)
        .read_to_end(&mut content)?;
    Ok(Sha256::digest(&content).into())
}

fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests;
