//! Manifest files: found, read within bounds, and their problems reported in one way.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    net::IpAddr,
    path::{Path, PathBuf},
};

use fleet::{
    egress::Egress,
    explain::chain,
    ids::Prefix,
    manifest::{
        AnyManifest, ExecutorSpec, Manifest, ManifestProblem, McpServer, McpTransport, parse_any,
    },
    mcp::is_for_operators,
    wire::subjects::Subjects,
};

use crate::commands::{plain::plain, usage::UsageError};

/// Larger files are no manifests. A manifest's own limit is lower, and has its own message.
const BYTES_MAX: u64 = 1024 * 1024;
const FILES_MAX: usize = 1_000;

/// A file, and its manifest or problems.
pub(crate) struct ManifestFile<M = Manifest> {
    pub(super) path: PathBuf,
    pub(super) manifest: Result<M, Vec<ManifestProblem>>,
}

/// The files of a command, each kind in the order in which they were read.
pub(super) struct ManifestFiles {
    /// Those of tools, and those that cannot be read.
    pub(super) tools: Vec<ManifestFile>,
    /// Those of MCP servers.
    pub(super) servers: Vec<ManifestFile<McpServer>>,
}

/// Reads every file, and every manifest of every folder, in the order given and by name within a folder.
pub(super) fn read_all(paths: &[PathBuf]) -> anyhow::Result<ManifestFiles> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let found = manifests(path).map_err(|problem| {
            anyhow::Error::new(problem).context(format!("read the folder {}", path.display()))
        })?;
        if found.is_empty() {
            let sentence = format!("{} has no *.yaml, *.yml or *.json", path.display());
            return Err(UsageError(sentence).into());
        }
        files.extend(found);
    }
    if files.len() > FILES_MAX {
        let sentence = format!(
            "{} files are too many; give at most {FILES_MAX}",
            files.len()
        );
        return Err(UsageError(sentence).into());
    }
    let (mut tools, mut servers) = (Vec::new(), Vec::new());
    for path in files {
        match text(&path).and_then(|text| parse_any(&text)) {
            Ok(AnyManifest::McpServer(server)) => servers.push(ManifestFile {
                path,
                manifest: Ok(*server),
            }),
            Ok(AnyManifest::Tool(tool)) => tools.push(ManifestFile {
                path,
                manifest: Ok(*tool),
            }),
            Err(problems) => tools.push(ManifestFile {
                path,
                manifest: Err(problems),
            }),
        }
    }
    refuse_duplicates(
        &mut tools,
        |tool| tool.name.to_string(),
        |tool, other| ManifestProblem::duplicate(&tool.name, other),
    );
    refuse_duplicates(
        &mut servers,
        |server| server.name.to_string(),
        |server, other| ManifestProblem::duplicate_server(&server.name, other),
    );
    Ok(ManifestFiles { tools, servers })
}

/// A tool has one file: with two, their names would decide which one is applied. Both are reported. So has a server.
fn refuse_duplicates<M>(
    files: &mut [ManifestFile<M>],
    name: impl Fn(&M) -> String,
    problem: impl Fn(&M, &str) -> ManifestProblem,
) {
    let mut homes: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for file in files.iter() {
        if let Ok(manifest) = &file.manifest {
            let homes = homes.entry(name(manifest)).or_default();
            homes.push(file.path.clone());
        }
    }
    for file in files {
        let Ok(manifest) = &file.manifest else {
            continue;
        };
        let mut others = homes[&name(manifest)].iter();
        if let Some(other) = others.find(|other| !is_same(other, &file.path)) {
            let problem = problem(manifest, &other.display().to_string());
            file.manifest = Err(vec![problem]);
        }
    }
}

/// Whether two paths lead to the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    one == other
        || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// Reads one file; an error of reading is a problem like others.
pub(crate) fn read(path: &Path) -> Result<AnyManifest, Vec<ManifestProblem>> {
    parse_any(&text(path)?)
}

/// The text of one file.
pub(super) fn text(path: &Path) -> Result<String, Vec<ManifestProblem>> {
    let whole_file = |message: String| {
        vec![ManifestProblem {
            path: String::new(),
            message,
        }]
    };
    // Opening a pipe would wait for its writer.
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Err(whole_file(
            "cannot be read: it is not a regular file".to_owned(),
        ));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|problem| whole_file(format!("cannot be read: {}", chain(&problem))))?;
    String::from_utf8(bytes)
        .map_err(|_not_text| whole_file("the file is not UTF-8 text".to_owned()))
}

/// Refuses tools that are called as those of the fleet are that look at MCP servers: only operators could call them.
pub(super) fn refuse_own_names(files: &mut [ManifestFile]) {
    for file in files {
        let own = file.manifest.as_ref().ok();
        if own.is_some_and(|manifest| is_for_operators(manifest.name.as_str())) {
            file.manifest = Err(vec![ManifestProblem {
                path: "/name".to_owned(),
                message: "mcp_discover and names that begin with mcp_discover_ are the fleet's own; write another name"
                    .to_owned(),
            }]);
        }
    }
}

/// Refuses tools whose subject is one of the fleet's own with this prefix.
pub(super) fn refuse_own_subjects(files: &mut [ManifestFile], prefix: &Prefix) {
    let subjects = Subjects::new(prefix.clone());
    for file in files {
        let own = file.manifest.as_ref().ok();
        if let Some(problem) = own.and_then(|manifest| own_subject(manifest, &subjects)) {
            file.manifest = Err(vec![problem]);
        }
    }
}

fn own_subject(manifest: &Manifest, subjects: &Subjects) -> Option<ManifestProblem> {
    let ExecutorSpec::Nats(spec) = &manifest.executor else {
        return None;
    };
    subjects.is_own(&spec.subject).then(|| ManifestProblem {
        path: "/executor/nats/subject".to_owned(),
        message:
            "the fleet itself speaks on this subject; write the service's own, such as weather.get"
                .to_owned(),
    })
}

/// Refuses HTTP and chat tools that name an address to which the workers' requests may not go.
pub(super) fn refuse_forbidden_addresses(files: &mut [ManifestFile], egress: &Egress) {
    for file in files {
        let manifest = file.manifest.as_ref().ok();
        if let Some(problem) = manifest.and_then(|manifest| forbidden_address(manifest, egress)) {
            file.manifest = Err(vec![problem]);
        }
    }
}

/// The same of MCP servers.
pub(super) fn refuse_forbidden_servers(files: &mut [ManifestFile<McpServer>], egress: &Egress) {
    for file in files {
        let Ok(server) = &file.manifest else {
            continue;
        };
        let McpTransport::Http { url, .. } = &server.transport else {
            continue;
        };
        if let Some(address) = egress.forbidden_literal(url) {
            let problem = no_public_address("/transport/http/url", address);
            file.manifest = Err(vec![problem]);
        }
    }
}

fn no_public_address(path: &str, address: IpAddr) -> ManifestProblem {
    ManifestProblem {
        path: path.to_owned(),
        message: format!(
            "{address} is not a public address, and workers with WORKER_EGRESS=public send nothing there; write the \
             service's public name, or name the address in WORKER_EGRESS_ALLOW, here and for the workers"
        ),
    }
}

fn forbidden_address(manifest: &Manifest, egress: &Egress) -> Option<ManifestProblem> {
    match &manifest.executor {
        ExecutorSpec::Http(spec) => {
            let address = egress.forbidden_literal(&spec.url)?;
            Some(no_public_address("/executor/http/url", address))
        }
        ExecutorSpec::Chat(spec) => {
            let mut routes = spec.routes.iter().enumerate();
            routes.find_map(|(index, route)| {
                let address = egress.forbidden_literal(&route.url)?;
                let path = format!("/executor/chat/routes/{index}/url");
                Some(no_public_address(&path, address))
            })
        }
        ExecutorSpec::Process(_)
        | ExecutorSpec::Nats(_)
        | ExecutorSpec::Sql(_)
        | ExecutorSpec::Mcp(_)
        | ExecutorSpec::Native(_)
        | ExecutorSpec::Client(_)
        | ExecutorSpec::Own(_) => None,
    }
}

/// Each problem as `file:pointer: message`.
pub(crate) fn sentences(file: &str, problems: &[ManifestProblem]) -> Vec<String> {
    let sentence = |problem: &ManifestProblem| {
        let place = [file, &problem.path]
            .into_iter()
            .filter(|part| !part.is_empty());
        let place = place.collect::<Vec<_>>().join(":");
        let gap = if place.is_empty() { "" } else { ": " };
        plain(&format!("{place}{gap}{}", problem.message))
    };
    problems.iter().map(sentence).collect()
}

/// The manifests of a folder, without hidden files: editors keep drafts there.
fn manifests(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let known = |extension: &str| path.extension().is_some_and(|found| found == extension);
        let hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if ["yaml", "yml", "json"].into_iter().any(known) && !hidden && path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use fleet::manifest::parse;

    use super::*;

    #[test]
    fn a_folder_gives_its_manifests_by_name_and_no_drafts() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.yaml", "a.json", "c.yml", ".d.yaml", "notes.txt"] {
            fs::write(folder.path().join(name), "{").unwrap();
        }
        fs::create_dir(folder.path().join("e.yaml")).unwrap();
        let files = read_all(&[folder.path().to_path_buf()]).unwrap();
        let names: Vec<_> = files
            .tools
            .iter()
            .map(|file| file.path.file_name().unwrap())
            .collect();
        assert_eq!(names, ["a.json", "b.yaml", "c.yml"]);
    }

    #[test]
    fn a_tool_may_not_speak_where_the_fleet_does() {
        let manifest = |subject: &str| {
            let text = format!(
                "{{name: t, version: 1, description: d, effect: read, input_schema: {{type: object}}, \
                 executor: {{nats: {{subject: {subject}}}}}}}"
            );
            parse(&text).expect("a manifest")
        };
        let subjects = Subjects::new("acme".parse().expect("a prefix"));
        assert!(own_subject(&manifest("acme.v1.x.admin.settle"), &subjects).is_some());
        assert!(own_subject(&manifest("acme2.translate"), &subjects).is_none());
        assert!(own_subject(&manifest("toolfleet.x"), &subjects).is_none());
    }

    #[test]
    fn what_cannot_be_read_is_a_problem_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing.yaml");
        assert!(
            read(&missing).unwrap_err()[0]
                .message
                .starts_with("cannot be read: ")
        );
        let binary = folder.path().join("binary.yaml");
        fs::write(&binary, [0xff, 0xfe]).unwrap();
        let problems = read(&binary).unwrap_err();
        assert_eq!(
            sentences("binary.yaml", &problems),
            ["binary.yaml: the file is not UTF-8 text"]
        );
        let named = ManifestProblem {
            path: "/name".to_owned(),
            message: "bad\u{1b}".to_owned(),
        };
        assert_eq!(
            sentences("a.yaml", std::slice::from_ref(&named)),
            ["a.yaml:/name: bad\\u{1b}"]
        );
        assert_eq!(sentences("", &[named]), ["/name: bad\\u{1b}"]);
    }
}
