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
    pub(super) async fn look(&self) -> anyhow::Result<Vec<FoundTool>> {
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
            let queue = &server.queue;
            let said = envelope
                .error
                .as_ref()
                .and_then(|error| error["message"].as_str());
            match (said, envelope.state) {
                (Some(said), _) => bail!("{name} was not looked at: {said}"),
                (None, state) => bail!(
                    "{name} was not looked at: the call is {}; is there a worker of the queue {queue}?",
                    state.as_deref().unwrap_or("of an unknown state")
                ),
            }
        };
        let applied = tools_of(&pool, name).await?;
        let applied: Vec<Manifest> = applied
            .iter()
            .filter_map(|text| serde_json::from_str(text).ok())
            .collect();
        Ok(compare(&server, &tools, &applied))
    }
}
