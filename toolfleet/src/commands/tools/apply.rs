//! `toolfleet tools apply`.

use std::{path::PathBuf, process::ExitCode};

use fleet::{
    config::{BusArgs, EgressArgs, StoreArgs},
    ids::ToolName,
    manifest::{Manifest, ManifestProblem, McpServer, lint},
    store::{
        StoreError, askers, retire,
        tools::{
            Applied, apply, breaker_forced, fallback_unfit, named_twice, preview_unfit, probe_unfit,
        },
        unknown_tools::unknown_tools,
        workers,
    },
};
use serde_json::{Value, json};
use sqlx::PgConnection;

use super::{
    bell,
    files::{self, ManifestFile, ManifestFiles},
    servers::{self, AppliedServer},
    verdict::word,
};
use crate::commands::{actor::user_at_host, connect, output, words};

/// What `tools apply` is told.
#[derive(Debug, clap::Args)]
pub struct Apply {
    /// Manifest files, or folders of them; if one has a problem, none is applied, and warnings of `tools lint` are counted
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Who applies them, as the history will say; user@host without it
    #[arg(long, value_name = "NAME", default_value_t = user_at_host(), hide_default_value = true, value_parser = words::name)]
    by: String,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    bus: BusArgs,
    #[command(flatten)]
    egress: EgressArgs,
    /// Print JSON: an array with an object per file
    #[arg(long)]
    json: bool,
}

impl Apply {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let mut manifests = Vec::new();
        let ManifestFiles {
            tools: mut files,
            mut servers,
        } = files::read_all(&self.paths)?;
        let egress = self.egress.egress();
        files::refuse_own_names(&mut files);
        files::refuse_own_subjects(&mut files, &self.bus.prefix);
        files::refuse_forbidden_addresses(&mut files, &egress);
        files::refuse_forbidden_servers(&mut servers, &egress);
        let unfit_servers = servers.iter().any(|file| file.manifest.is_err());
        if unfit_servers || files.iter().any(|file| file.manifest.is_err()) {
            return self.refuse(&files, &servers);
        }
        let mut connection = connect::writer(&self.store.database_url).await?;
        let are_misspelt = refuse_misspelt(&mut files, &mut connection).await?;
        if servers::refuse_unknown(&mut files, &servers, &mut connection).await? || are_misspelt {
            return self.refuse(&files, &servers);
        }
        // Before the tools, which name them.
        let done_servers = servers::apply_all(&servers, &mut connection, &self.by).await?;
        for file in &files {
            if let Ok(manifest) = &file.manifest {
                manifests.push((file.path.display().to_string(), manifest));
            }
        }
        let built_in = worker::built_in_of(manifests.iter().map(|(_, manifest)| *manifest));
        manifests.extend(built_in.iter().map(|tool| (BUILT_IN.to_owned(), tool)));
        let discoverers = servers::discoverers(&servers);
        manifests.extend(discoverers.iter().map(|tool| (BUILT_IN.to_owned(), tool)));
        manifests.sort_by_key(|(_, manifest)| manifest.turn());
        let mut done = Vec::new();
        let ended = self.apply_all(&manifests, &mut connection, &mut done).await;
        let mut results = done.iter().map(|(.., applied)| applied);
        let is_new = |applied: &Applied| *applied == Applied::Created;
        if results.any(is_new) || done_servers.iter().any(|done| is_new(&done.applied)) {
            bell::ring(&self.bus).await;
        }
        self.print(&done, &done_servers)?;
        hint(&done);
        if ended.is_ok() {
            name_retired(&done, &mut connection).await?;
            name_unguarded(&done, &mut connection).await?;
            name_let_down(&done, &mut connection).await?;
            name_unknown(&done, &mut connection).await?;
            let tools: Vec<&Manifest> = done.iter().filter(is_there).map(|done| done.1).collect();
            servers::name_elsewhere(&tools, &done_servers, &mut connection).await?;
        }
        if ended.is_err() && !done.is_empty() {
            output::warn("not everything was applied");
        }
        ended?;
        let refused = done.iter().any(|(.., applied)| {
            matches!(
                applied,
                Applied::Conflict
                    | Applied::ProbeUnfit
                    | Applied::PreviewUnfit(_)
                    | Applied::LimitNamedTwice
                    | Applied::BreakerForced
                    | Applied::FallbackUnfit(_)
            )
        });
        let refused = refused || done_servers.iter().any(AppliedServer::is_refused);
        Ok(ExitCode::from(u8::from(refused)))
    }

    async fn apply_all<'a>(
        &self,
        manifests: &'a [(String, &'a Manifest)],
        connection: &mut PgConnection,
        done: &mut Vec<Done<'a>>,
    ) -> Result<(), StoreError> {
        for (path, manifest) in manifests {
            let applied = apply(connection, manifest, &self.by).await?;
            done.push((path, manifest, applied));
        }
        Ok(())
    }

    /// Reports everything that is wrong with the files; nothing was applied.
    fn refuse(
        &self,
        files: &[ManifestFile],
        servers: &[ManifestFile<McpServer>],
    ) -> anyhow::Result<ExitCode> {
        let wrong = files
            .iter()
            .filter_map(|file| Some((&file.path, file.manifest.as_ref().err()?)));
        let wrong_servers = servers
            .iter()
            .filter_map(|file| Some((&file.path, file.manifest.as_ref().err()?)));
        let wrong: Vec<_> = wrong
            .chain(wrong_servers)
            .map(|(path, found)| (path.display().to_string(), found))
            .collect();
        if self.json {
            let rows = wrong.iter().map(|(path, found)| {
                let found: Vec<Value> = found
                    .iter()
                    .map(|problem| json!({"path": problem.path, "message": problem.message}))
                    .collect();
                json!({"file": path, "result": "invalid", "problems": found})
            });
            output::print_json(&rows.collect::<Value>())?;
        } else {
            for (path, found) in &wrong {
                for sentence in files::sentences(path, found) {
                    output::print(&sentence)?;
                }
            }
            output::warn("nothing was applied");
        }
        Ok(ExitCode::FAILURE)
    }

    fn print(&self, done: &[Done<'_>], servers: &[AppliedServer<'_>]) -> anyhow::Result<()> {
        if self.json {
            let servers = servers.iter().map(AppliedServer::to_json);
            let row = |(path, manifest, applied): &Done<'_>| json!({"file": path, "tool": manifest.name, "version": manifest.version, "result": word(*applied)});
            output::print_json(&servers.chain(done.iter().map(row)).collect::<Value>())?;
            return Ok(());
        }
        for server in servers {
            output::print(&server.line())?;
        }
        for (_path, manifest, applied) in done {
            let hint = match applied {
                Applied::Conflict => {
                    ": this version is there with other content; raise the version".to_owned()
                }
                Applied::ProbeUnfit => format!(": {}", probe_unfit(manifest)),
                Applied::PreviewUnfit(unfit) => {
                    format!(": {}", preview_unfit(manifest, *unfit))
                }
                Applied::LimitNamedTwice => format!(": {}", named_twice(manifest)),
                Applied::BreakerForced => format!(": {}", breaker_forced(manifest)),
                Applied::FallbackUnfit(unfit) => {
                    format!(": {}", fallback_unfit(manifest, *unfit))
                }
                Applied::Created | Applied::Unchanged => String::new(),
            };
            let (tool, version, word) = (&manifest.name, manifest.version, word(*applied));
            output::print(&format!("{tool} version {version}: {word}{hint}"))?;
        }
        Ok(())
    }
}

/// Refuses files whose policies name tools that were never applied and that none of the files has: what is misspelt in `never_after`
/// would forbid nothing, and in `after` everything. Whether there are such.
async fn refuse_misspelt(
    files: &mut [ManifestFile],
    connection: &mut PgConnection,
) -> Result<bool, StoreError> {
    let here = files.iter().filter_map(|file| file.manifest.as_ref().ok());
    let here: Vec<ToolName> = here.map(|manifest| manifest.name.clone()).collect();
    let mut are_some = false;
    for file in files {
        let Ok(manifest) = &file.manifest else {
            continue;
        };
        let unknown = unknown_tools(connection, manifest).await?;
        let unknown = unknown.iter().filter(|one| one.is_of_policy());
        let unknown = unknown.map(|one| &one.tool);
        let unknown = unknown.filter(|tool| !here.contains(tool));
        let problems: Vec<ManifestProblem> = unknown.map(misspelt).collect();
        if !problems.is_empty() {
            file.manifest = Err(problems);
            are_some = true;
        }
    }
    Ok(are_some)
}

fn misspelt(tool: &ToolName) -> ManifestProblem {
    ManifestProblem {
        path: "/policy".to_owned(),
        message: format!(
            "it names {tool}, and no such tool was ever applied; correct the name, or apply that tool before or together with this one"
        ),
    }
}

/// Reports what a model may not understand of each new version; the version is applied all the same.
fn hint(done: &[Done<'_>]) {
    let new = done
        .iter()
        .filter(|(.., applied)| *applied == Applied::Created);
    for (path, manifest, _) in new {
        let warnings = lint(manifest).len();
        if warnings > 0 {
            let count = if warnings == 1 { "thing" } else { "things" };
            output::warn(&format!(
                "{path}: {warnings} {count} that a model may get wrong; `toolfleet tools lint {path}` says what to write instead"
            ));
        }
    }
}

/// Reports which of these versions exist and are retired: applying one again does not undo a retirement.
async fn name_retired(done: &[Done<'_>], connection: &mut PgConnection) -> anyhow::Result<()> {
    for (_path, manifest, _) in done {
        let (tool, version) = (&manifest.name, manifest.version);
        let retired = retire::of_version(connection, tool, Some(version)).await?;
        if let Some(up_to) = retired.map(|retired| retired.version) {
            output::warn(&format!(
                "{tool} version {version} is retired: apply a version above {up_to} to offer the tool again"
            ));
        }
    }
    Ok(())
}

fn is_there((.., applied): &&Done<'_>) -> bool {
    matches!(applied, Applied::Created | Applied::Unchanged)
}

/// Reports which of these tools no worker can run now, because none has an interceptor that they demand.
async fn name_unguarded(done: &[Done<'_>], connection: &mut PgConnection) -> anyhow::Result<()> {
    for (_path, manifest, applied) in done {
        let is_there = matches!(applied, Applied::Created | Applied::Unchanged);
        if !is_there || manifest.interceptors.is_empty() {
            continue;
        }
        let (tool, queue) = (&manifest.name, &manifest.queue);
        let lacking =
            workers::without_interceptors(connection, queue, &manifest.interceptors).await?;
        if !lacking.is_empty() {
            let names = lacking.join(", ");
            output::warn(&format!(
                "{tool}: no live worker of the queue {queue} has the interceptor {names}, so its calls wait; \
                 start workers whose program adds it, and let no others pull the queue"
            ));
        }
    }
    Ok(())
}

/// Reports which tools name one of these and cannot ask it as it is now.
async fn name_let_down(done: &[Done<'_>], connection: &mut PgConnection) -> anyhow::Result<()> {
    for (_path, manifest, applied) in done {
        if !matches!(applied, Applied::Created | Applied::Unchanged) {
            continue;
        }
        for one in askers::let_down(connection, manifest).await? {
            output::warn(&one.sentence(manifest));
        }
    }
    Ok(())
}

/// Reports which tools these versions name that were never applied: their files may come later.
async fn name_unknown(done: &[Done<'_>], connection: &mut PgConnection) -> anyhow::Result<()> {
    for (_path, manifest, _) in done.iter().filter(is_there) {
        for unknown in unknown_tools(connection, manifest).await? {
            output::warn(&unknown.sentence(manifest));
        }
    }
    Ok(())
}

/// What stands in the place of the file of a tool of the fleet's own.
const BUILT_IN: &str = "(built in)";

/// A file, its manifest, and the result.
type Done<'a> = (&'a str, &'a Manifest, Applied);
