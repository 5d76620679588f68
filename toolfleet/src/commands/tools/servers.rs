//! Manifests of MCP servers among those of tools.

use std::{collections::BTreeSet, path::Path};

use fleet::{
    ids::{QueueName, ServerName, ToolName},
    manifest::{ExecutorSpec, Manifest, ManifestProblem, McpServer},
    store::{StoreError, mcp_servers, tools::Applied},
};
use serde_json::{Value, json};
use sqlx::PgConnection;

use super::{files::ManifestFile, verdict::word};
use crate::commands::output;

/// What became of a manifest of a server.
pub(crate) struct AppliedServer<'a> {
    /// Where it stands.
    pub(crate) file: &'a Path,
    /// The manifest.
    pub(crate) server: &'a McpServer,
    /// The result.
    pub(crate) applied: Applied,
}

impl AppliedServer<'_> {
    /// Whether it was refused.
    pub(crate) fn is_refused(&self) -> bool {
        !matches!(self.applied, Applied::Created | Applied::Unchanged)
    }

    /// A line for people.
    pub(crate) fn line(&self) -> String {
        let (name, version) = (&self.server.name, self.server.version);
        let hint = if self.is_refused() {
            ": this version is there with other content; raise the version"
        } else {
            ""
        };
        format!(
            "mcp server {name} version {version}: {}{hint}",
            word(self.applied)
        )
    }

    /// A row for programs.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "file": self.file.display().to_string(), "mcp_server": self.server.name,
            "version": self.server.version, "result": word(self.applied),
        })
    }
}

/// Applies them one after the other.
pub(super) async fn apply_all<'a>(
    files: &'a [ManifestFile<McpServer>],
    connection: &mut PgConnection,
    by: &str,
) -> Result<Vec<AppliedServer<'a>>, StoreError> {
    let mut done = Vec::new();
    for file in files {
        if let Ok(server) = &file.manifest {
            done.push(AppliedServer {
                file: &file.path,
                server,
                applied: mcp_servers::apply(connection, server, by).await?,
            });
        }
    }
    Ok(done)
}

/// The fleet's own tools that look at what these servers offer, one for each queue.
pub(super) fn discoverers(files: &[ManifestFile<McpServer>]) -> Vec<Manifest> {
    let servers = files.iter().filter_map(|file| file.manifest.as_ref().ok());
    let queues: BTreeSet<&QueueName> = servers.map(|server| &server.queue).collect();
    queues.into_iter().map(worker::discoverer_of).collect()
}

/// Refuses tools of servers that were never applied and that none of the files has: their calls would wait for ever. Whether there
/// are such.
pub(super) async fn refuse_unknown(
    files: &mut [ManifestFile],
    servers: &[ManifestFile<McpServer>],
    connection: &mut PgConnection,
) -> Result<bool, StoreError> {
    let named: Vec<&ServerName> = files
        .iter()
        .filter_map(|file| server_of(file.manifest.as_ref().ok()?))
        .collect();
    let unknown = mcp_servers::unknown(connection, &named).await?;
    let here = |name: &ServerName| {
        let mut servers = servers
            .iter()
            .filter_map(|file| file.manifest.as_ref().ok());
        servers.any(|server| server.name == *name)
    };
    let mut are_some = false;
    for file in files {
        let server = file.manifest.as_ref().ok().and_then(server_of);
        let Some(server) = server.filter(|name| unknown.contains(name) && !here(name)) else {
            continue;
        };
        let message = format!(
            "no MCP server {server} was ever applied; correct the name, or apply its manifest before or together with this one"
        );
        file.manifest = Err(vec![ManifestProblem {
            path: "/executor/mcp/server".to_owned(),
            message,
        }]);
        are_some = true;
    }
    Ok(are_some)
}

/// The name of a warning, by which scripts find it.
const OTHER_QUEUE: &str = "mcp_queue_differs";

fn other_queue(tool: &str, queue: &str, server: &str, server_queue: &str) -> String {
    format!(
        "{OTHER_QUEUE}: {tool} runs on the workers of the queue {queue}, and toolfleet mcp discover asks those of {server_queue}, the queue of its MCP \
         server {server}; write queue: {server_queue}, or have the workers of {queue} reach the server too: its program or its address, and its secrets"
    )
}

/// Reports which of these tools, and which tools of these servers, are of another queue than their server. That is no mistake where the
/// workers of both reach it.
pub(super) async fn name_elsewhere(
    tools: &[&Manifest],
    servers: &[AppliedServer<'_>],
    connection: &mut PgConnection,
) -> Result<(), StoreError> {
    let are_there: Vec<&ServerName> = servers
        .iter()
        .filter(|done| !done.is_refused())
        .map(|done| &done.server.name)
        .collect();
    let named = tools
        .iter()
        .filter_map(|manifest| Some((&manifest.name, server_of(manifest)?)));
    let named: Vec<(&ToolName, &ServerName)> = named.collect();
    let mut asked: Vec<&ServerName> = named.iter().map(|(_, server)| *server).collect();
    asked.extend(&are_there);
    for one in mcp_servers::elsewhere(connection, &asked).await? {
        let is_ours = named.iter().any(|(tool, _)| tool.as_str() == one.tool)
            || are_there.iter().any(|server| server.as_str() == one.server);
        if is_ours {
            output::warn(&other_queue(
                &one.tool,
                &one.queue,
                &one.server,
                &one.server_queue,
            ));
        }
    }
    Ok(())
}

/// What `tools lint` says of a tool whose server is among these files and of another queue.
pub(super) fn elsewhere(
    manifest: &Manifest,
    servers: &[ManifestFile<McpServer>],
) -> Option<ManifestProblem> {
    let name = server_of(manifest)?;
    let mut known = servers
        .iter()
        .filter_map(|file| file.manifest.as_ref().ok());
    let server = known.find(|server| server.name == *name)?;
    (server.queue != manifest.queue).then(|| ManifestProblem {
        path: "/queue".to_owned(),
        message: other_queue(
            manifest.name.as_str(),
            manifest.queue.as_str(),
            name.as_str(),
            server.queue.as_str(),
        ),
    })
}

fn server_of(manifest: &Manifest) -> Option<&ServerName> {
    match &manifest.executor {
        ExecutorSpec::Mcp(spec) => Some(&spec.server),
        _other => None,
    }
}
