//! What `dev` says and applies of a folder of manifests.

use std::{
    io::Write,
    sync::{Arc, Mutex},
};

use super::*;

/// Applies every text after those that it needs: `needs: <file>` must have been applied before.
static APPLIED: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

fn hooks() -> DevHooks {
    DevHooks {
        token: |_url, _kept| Box::pin(async { Ok(String::new()) }),
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
        said.contains("tools: a.yaml: version of") && said.contains("tools: z.json: version of"),
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
