//! What the repository promises itself. Needs no servers, only the files.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/source.rs"]
mod source;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use fleet::{checkpoint::Checkpoint, wire::code::Code};

/// Lines of a source file at most; beyond that it has two subjects.
const LINES_MAX: usize = 500;
/// Tables of cases, which are one subject however long.
const MAY_BE_LONGER: [&str; 1] = ["fleet/src/manifest/parse/tests.rs"];
const CRATES: [&str; 10] = [
    "arguments",
    "fleet",
    "fleet-client",
    "fleet-history",
    "dispatcher",
    "worker",
    "gateway",
    "conformance",
    "toolfleet",
    "bench/load",
];
/// Crates without circles between their files, and without a type name that stands twice: `tidy/imports.rs` says what that is.
const WITHOUT_CIRCLES: [&str; 10] = CRATES;
/// Decisions: the same answer everywhere, because they ask no server.
const PURE: [&str; 26] = [
    "fleet/src/ids.rs",
    "fleet/src/call.rs",
    "fleet/src/state.rs",
    "fleet/src/outcome.rs",
    "fleet/src/retry.rs",
    "fleet/src/taken_back.rs",
    "fleet/src/obstacle.rs",
    "fleet/src/egress.rs",
    "fleet/src/retry",
    "fleet/src/ending",
    "fleet/src/delay.rs",
    "fleet/src/lease.rs",
    "fleet/src/hold.rs",
    "fleet/src/hold",
    "fleet/src/lost_writes.rs",
    "arguments/src",
    "fleet/src/arguments.rs",
    "fleet/src/manifest",
    "fleet/src/todo.rs",
    "fleet/src/wire",
    "fleet/src/tokens/text.rs",
    "fleet/src/tokens/row.rs",
    "fleet/src/tokens/cache.rs",
    "fleet/src/tokens/attempts.rs",
    "dispatcher/src/admission/decision.rs",
    "gateway/src/speaker",
];

#[test]
fn every_error_code_has_a_page_and_every_page_a_code() {
    let codes: BTreeSet<String> = Code::ALL.iter().map(ToString::to_string).collect();
    let pages: BTreeSet<String> = files_in("docs/errors")
        .iter()
        .filter_map(|page| page.strip_prefix("docs/errors/")?.strip_suffix(".md"))
        .filter(|page| *page != "README")
        .map(ToOwned::to_owned)
        .collect();
    assert_eq!(codes, pages);
    let list = read("docs/errors/README.md");
    for code in &codes {
        assert!(
            list.contains(&format!("({code}.md)")),
            "{code} is not in the list"
        );
    }
}

#[test]
fn every_checkpoint_has_a_row_and_every_row_a_checkpoint() {
    let points: Vec<&str> = Checkpoint::ALL.iter().map(|point| point.as_str()).collect();
    let map = read("ARCHITECTURE.md");
    let (_, table) = map.split_once("\n## Where it may stop\n").unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| "));
    let cells = rows.filter_map(|row| row.split('|').nth(2)).skip(1);
    let named: Vec<&str> = cells
        .map(|cell| cell.trim().trim_matches('`'))
        .filter(|name| !name.is_empty())
        .collect();
    assert_eq!(points, named, "in the order in which they are reached");
}

#[test]
fn sql_stands_in_the_ledger_alone() {
    let homes = [
        "fleet/src/store/",
        "toolfleet/src/servers/",
        // The documented views alone.
        "fleet-history/src/",
        // A table of the bench's own, and sizes.
        "bench/load/src/ledger.rs",
        // Of tools' databases, not of the ledger.
        "worker/src/executors/sql/",
    ];
    only_in(
        &homes,
        &["sqlx::query", "query_as(", "query_scalar(", ".execute(\""],
    );
}

#[test]
fn subjects_are_spelled_in_one_folder() {
    only_in(&["fleet/src/wire/"], &[".jobs.", ".v1.", ".done."]);
}

#[test]
fn pauses_are_computed_in_one_file() {
    only_in(&["fleet/src/delay.rs"], &["backoff::"]);
}

#[test]
fn decisions_ask_no_server() {
    for (file, code) in sources().into_iter().filter(|(file, _)| is_in(file, &PURE)) {
        for server in ["sqlx", "async_nats"] {
            assert!(!code.contains(server), "{file} knows {server}");
        }
    }
    for pure in PURE {
        assert!(root().join(pure).exists(), "{pure} is not there any more");
    }
}

#[test]
fn no_imports_go_in_circles() {
    for name in WITHOUT_CIRCLES {
        let circles = read_crate(name).circles();
        assert!(circles.is_empty(), "{name}: {circles:#?}");
    }
}

#[test]
fn no_type_name_stands_twice_in_a_crate() {
    for name in WITHOUT_CIRCLES {
        let doubled = read_crate(name).doubled_types();
        assert!(doubled.is_empty(), "{name}: {doubled:#?}");
    }
}

/// What a library for the edges may know: the words and the servers, and nothing of who stands at their other end.
#[test]
fn libraries_for_the_edges_know_neither_dispatcher_nor_worker() {
    for name in ["fleet-client", "fleet-history", "gateway"] {
        let manifest = read(&format!("{name}/Cargo.toml"));
        let known: Vec<&str> = manifest.lines().map(str::trim).collect();
        assert!(
            known.contains(&"fleet.workspace = true"),
            "{name}: {known:?}"
        );
        for other in ["dispatcher", "worker", "toolfleet"] {
            let knows = |line: &&str| {
                line.starts_with(&format!("{other}.")) || line.starts_with(&format!("{other} "))
            };
            assert!(!known.iter().any(knows), "{name} knows {other}");
        }
    }
}

#[test]
fn no_source_file_is_too_long_to_be_read_at_once() {
    for crate_name in CRATES.iter().chain(&["tests"]) {
        for file in files_in(&format!("{crate_name}/src")) {
            let lines = read(&file).lines().count();
            let may = MAY_BE_LONGER.contains(&file.as_str());
            assert!(lines <= LINES_MAX || may, "{file} has {lines} lines");
        }
    }
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut broken = Vec::new();
    for page in files_in("").iter().filter(|file| file.ends_with(".md")) {
        let folder = Path::new(page).parent().expect("a file lies in a folder");
        let text = read(page);
        for link in text.split("](").skip(1) {
            let target = link.split(')').next().unwrap_or_default();
            let path = target.split('#').next().unwrap_or_default();
            if !path.is_empty() && !path.contains("://") && !root().join(folder).join(path).exists()
            {
                broken.push(format!("{page}: {target}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn files_that_are_mentioned_exist() {
    let mut missing = Vec::new();
    for file in files_in("") {
        let ends: &[&str] = match Path::new(&file)
            .extension()
            .and_then(|ending| ending.to_str())
        {
            Some("md" | "sql") => &[".rs", ".md", ".sql", ".json", ".py", ".yaml"],
            Some("rs") => &[".rs"],
            _ => continue,
        };
        let text = read(&file);
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "_/.-".contains(c)));
        for word in words.map(|word| word.trim_end_matches('.')) {
            let ours = CRATES
                .iter()
                .chain(&["tests", "docs", "migrations", "schemas", "examples"]);
            let is_path = ends.iter().any(|end| word.ends_with(end))
                && ours.into_iter().any(|folder| {
                    word.strip_prefix(folder)
                        .is_some_and(|rest| rest.starts_with('/'))
                });
            let here = root().join(&file).with_file_name(word);
            if is_path && !root().join(word).exists() && !here.exists() {
                missing.push(format!("{file}: {word}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Every line of code outside these homes is free of these words; comments and tests may speak of them.
fn only_in(homes: &[&str], words: &[&str]) {
    for (file, code) in sources() {
        for word in words.iter().filter(|_| !is_in(&file, homes)) {
            assert!(!code.contains(word), "{file} contains {word:?}");
        }
    }
    let at_home = |(file, code): &(String, String)| is_in(file, homes) && code.contains(words[0]);
    assert!(
        sources().iter().any(at_home),
        "nobody uses {:?} any more",
        words[0]
    );
}

fn is_in(file: &str, places: &[&str]) -> bool {
    places.iter().any(|place| file.starts_with(place))
}

/// The crates' sources without their comments and inline tests.
fn sources() -> Vec<(String, String)> {
    let files = CRATES
        .iter()
        .flat_map(|one| files_in(&format!("{one}/src")));
    let rust = files.filter(|file| file.ends_with(".rs") && !file.ends_with("/tests.rs"));
    rust.map(|file| {
        let text = read(&file);
        let (code, _) = text
            .split_once("#[cfg(test)]\nmod tests {")
            .unwrap_or((&text, ""));
        let lines = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let code = lines.collect::<Vec<_>>().join("\n");
        (file, code)
    })
    .collect()
}

fn read_crate(name: &str) -> imports::Crate {
    let src = format!("{name}/src/");
    let files = files_in(&format!("{name}/src")).into_iter();
    let rust = files.filter(|file| file.ends_with(".rs"));
    imports::Crate::read(rust.map(|file| {
        let text = read(&file);
        (file.replace(&src, ""), text)
    }))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|reason| panic!("{file}: {reason}"))
}

/// Every file below a folder, as paths from the root; without what is built, what begins with a dot, and the sources of
/// others.
fn files_in(folder: &str) -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_str().unwrap().to_owned();
            let path = folder.join(&name);
            let is_foreign = matches!(
                name.as_ref(),
                "target" | "__pycache__" | "node_modules" | "vendor"
            );
            if name.starts_with('.') || is_foreign {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else {
                files.push(path.to_str().unwrap().to_owned());
            }
        }
    }
    files.sort();
    files
}
