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
mod tests {
    use std::{
        io::Write,
        sync::{Arc, Mutex},
    };

    use super::*;

    /// Applies every text after those that it needs: `needs: <file>` must have been applied before.
    static APPLIED: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

    fn hooks() -> DevHooks {
        DevHooks {
            migrate: |_| Box::pin(async { Ok(()) }),
            worker_died: |_, _| Box::pin(async { Ok(Vec::new()) }),
            fence: |_, _| Box::pin(async { Ok(()) }),
            tool_of: |path| {
                let text = fs::read_to_string(path).ok()?;
                text.strip_prefix("tool: ")?.trim().parse().ok()
            },
            apply_tools: |database_url, _nats_url, path| {
                Box::pin(async move {
                    let text = fs::read_to_string(&path)?;
                    ensure!(!text.contains("invalid"), "effect is missing");
                    let mut applied = APPLIED.lock().unwrap();
                    if let Some(needed) = text.strip_prefix("needs: ") {
                        let needed = (database_url.clone(), needed.to_owned());
                        ensure!(applied.contains(&needed), "its probe is not there");
                    }
                    applied.push((database_url, name(&path)));
                    if text == "applied before" {
                        return Ok(Vec::new());
                    }
                    Ok(vec![format!("version of {} bytes", text.len())])
                })
            },
        }
    }

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Paper {
        fn take(&self) -> String {
            String::from_utf8(std::mem::take(&mut self.0.lock().unwrap())).unwrap()
        }
    }

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn watched(folder: &Path) -> (ToolFolder, Paper) {
        let (paper, url) = (Paper::default(), folder.display().to_string());
        (
            ToolFolder::new(
                folder.to_path_buf(),
                url,
                hooks(),
                Screen::new(paper.clone()),
            ),
            paper,
        )
    }

    #[tokio::test]
    async fn what_needs_another_tool_is_applied_after_it_and_problems_do_not_stop_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("a.yaml", "needs: z.json");
        write("b.yml", "invalid");
        write("z.json", "tool");
        write("notes.txt", "invalid");
        write("c.YAML", "invalid");
        write(".draft.yaml", "invalid");
        fs::create_dir(folder.path().join("more")).unwrap();
        let (mut tools, paper) = watched(folder.path());
        tools.apply_all().await;
        let said = paper.take();
        assert!(
            said.contains("tools: a.yaml: version of")
                && said.contains("tools: z.json: version of"),
            "{said}"
        );
        assert!(
            said.contains("tools: b.yml is not applied: effect is missing"),
            "{said}"
        );
        assert!(
            said.contains("tools: not read: c.YAML, more/, notes.txt; manifests are"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 4, "{said}");
        assert!(
            tools.summary().starts_with("2 applied, 1 with problems"),
            "{}",
            tools.summary()
        );
    }

    #[tokio::test]
    async fn only_a_settled_new_content_is_applied() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yaml");
        fs::write(&file, "one").unwrap();
        let (mut tools, paper) = watched(folder.path());
        tools.apply_all().await;
        assert_eq!(paper.take(), "tools: a.yaml: version of 3 bytes\n");
        assert!(tools.look().is_empty());

        fs::write(&file, "inval").unwrap();
        assert!(tools.look().is_empty(), "it may still be being written");
        fs::write(&file, "three").unwrap();
        assert!(tools.look().is_empty());
        let settled = tools.look();
        assert_eq!(settled.len(), 1);
        tools.apply(settled).await;
        assert_eq!(paper.take(), "tools: a.yaml: version of 5 bytes\n");

        // Saved again without a change.
        fs::remove_file(&file).unwrap();
        fs::write(&file, "three").unwrap();
        assert!(tools.look().is_empty() && tools.look().is_empty() && tools.look().is_empty());
        fs::remove_file(&file).unwrap();
        assert!(tools.look().is_empty());
        assert!(paper.take().contains("a.yaml is gone"));
    }

    #[tokio::test]
    async fn two_files_with_one_tool_wait_until_one_of_them_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("a.yaml", "tool: look");
        write("b.yaml", "tool: look");
        let (mut tools, paper) = watched(folder.path());
        tools.apply_all().await;
        let said = paper.take();
        assert!(
            said.contains("a.yaml is not applied: the tool look is in b.yaml too"),
            "{said}"
        );
        assert!(
            said.contains("b.yaml is not applied: the tool look is in a.yaml too"),
            "{said}"
        );

        fs::remove_file(folder.path().join("a.yaml")).unwrap();
        assert!(tools.look().is_empty());
        let waiting: BTreeSet<PathBuf> = tools.failing.keys().cloned().collect();
        tools.apply(waiting).await;
        assert_eq!(paper.take(), "tools: b.yaml: version of 10 bytes\n");

        // The applied file keeps its tool, and a copy of it is not applied.
        write("c.yaml", "tool: look");
        assert!(tools.look().is_empty());
        let found = tools.look();
        tools.apply(found).await;
        let said = paper.take();
        assert!(
            said.contains("c.yaml is not applied: the tool look is in b.yaml too"),
            "{said}"
        );
    }

    #[tokio::test]
    async fn a_problem_is_said_once_and_again_only_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yaml");
        fs::write(&file, "needs: b.yaml").unwrap();
        let (mut tools, paper) = watched(folder.path());
        tools.apply_all().await;
        assert!(paper.take().contains("its probe is not there"));
        tools.apply(BTreeSet::from([file.clone()])).await;
        assert_eq!(paper.take(), "");
        fs::write(&file, "invalid").unwrap();
        tools.apply(BTreeSet::from([file.clone()])).await;
        assert!(paper.take().contains("effect is missing"));
    }

    #[tokio::test]
    async fn a_mended_file_is_said_to_be_fine_and_a_lost_one_how_to_end_its_tool() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yaml");
        fs::write(&file, "tool: look").unwrap();
        let (mut tools, paper) = watched(folder.path());
        tools.apply_all().await;
        fs::write(&file, "invalid").unwrap();
        tools.apply(BTreeSet::from([file.clone()])).await;
        assert!(paper.take().contains("a.yaml is not applied"));

        // As it was before: there is no version to speak of.
        fs::write(&file, "applied before").unwrap();
        tools.apply(BTreeSet::from([file.clone()])).await;
        assert_eq!(
            paper.take(),
            "tools: a.yaml: fine again, and applied as it is\n"
        );
        tools.apply(BTreeSet::from([file.clone()])).await;
        assert_eq!(paper.take(), "");

        fs::remove_file(&file).unwrap();
        assert!(tools.look().is_empty());
        let said = paper.take();
        assert!(
            said.contains("a.yaml is gone") && said.contains("toolfleet tools retire look --note"),
            "{said}"
        );
    }
}
