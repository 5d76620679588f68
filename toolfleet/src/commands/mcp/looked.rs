//! What an MCP server says of its tools, beside those that are applied: a call of the fleet's own tool that looks.

use std::time::Duration;

use anyhow::{Context, bail};
use fleet::{
    config::{BusArgs, StoreArgs},
    ids::ServerName,
    manifest::{Manifest, McpServer},
    mcp::{
        discover_name,
        discovered::{FoundTool, compare},
        operators,
    },
    wire::headers::Prefer,
};
use fleet_client::{Options, calls::Submission};
use fleet_history::mcp_servers::{mcp_server, tools_of};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::commands::{
    ask::{advice, unanswered},
    connect,
    not_looked_at::NotLookedAt,
};

/// How long it may take: what the tool's own timeout is, and a little.
const PATIENCE: Duration = Duration::from_secs(40);

/// Which server is looked at, and by whom.
#[derive(Debug, clap::Args)]
pub(super) struct Look {
    /// The server's name
    pub(super) server: ServerName,
    #[command(flatten)]
    bus: BusArgs,
    #[command(flatten)]
    store: StoreArgs,
}

/// What came of a look.
pub(super) struct Seen {
    /// Every tool of the server, and every one that it had.
    pub(super) found: Vec<FoundTool>,
    /// The manifests that are applied.
    pub(super) applied: Vec<Manifest>,
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    result: Option<Discovered>,
    #[serde(default)]
    error: Option<Value>,
    state: Option<String>,
}

#[derive(Deserialize)]
struct Discovered {
    tools: Vec<Value>,
}

impl Look {
    /// Has a worker of the server's queue look, and compares what it says with what is applied.
    ///
    /// # Errors
    ///
    /// There is no such server; it was not looked at ([`NotLookedAt`]); Postgres or NATS is away.
    pub(super) async fn look(&self) -> anyhow::Result<Seen> {
        let pool = connect::reader(&self.store).await?;
        let name = &self.server;
        let Some(manifest) = mcp_server(&pool, name, None).await? else {
            bail!(
                "there is no MCP server {name}; apply its manifest first, and see `toolfleet mcp list`"
            );
        };
        let server: McpServer = serde_json::from_str(&manifest)
            .context("read a manifest that another version of this program applied")?;
        let client = connect::client(&self.bus).await?;
        let submission = Submission {
            tenant: operators(),
            tool: discover_name(&server.queue),
            args: json!({ "server": name }).to_string().into(),
            options: Options {
                deadline: Some(PATIENCE),
                prefer: Some(Prefer::Wait(PATIENCE)),
                ..Options::default()
            },
        };
        let answer = client
            .submit(submission)
            .await
            .map_err(|problem| unanswered(problem, advice(false)))?;
        let envelope: Envelope = answer.read()?;
        let Some(Discovered { tools }) = envelope.result else {
            let said = envelope
                .error
                .as_ref()
                .and_then(|error| error["message"].as_str());
            let why = said.map_or_else(
                || {
                    let state = envelope.state.as_deref().unwrap_or("of an unknown state");
                    let queue = &server.queue;
                    format!("the call is {state}; is there a worker of the queue {queue}?")
                },
                str::to_owned,
            );
            let server = name.clone();
            return Err(NotLookedAt { server, why }.into());
        };
        let manifests = async |retired| {
            let texts = tools_of(&pool, name, retired).await?;
            let manifests = texts
                .iter()
                .filter_map(|text| serde_json::from_str(text).ok());
            Ok::<_, anyhow::Error>(manifests.collect::<Vec<Manifest>>())
        };
        let (applied, retired) = (manifests(false).await?, manifests(true).await?);
        let found = compare(&server, &tools, &applied, &retired);
        Ok(Seen { found, applied })
    }
}
