//! What an MCP server says of its tools, beside those that are applied: a call of the fleet's own tool that looks.

use std::time::Duration;

use anyhow::{Context, bail};
use fleet::{
    config::{BusArgs, StoreArgs},
    ids::{CallId, ServerName},
    manifest::{Manifest, McpServer},
    mcp::{
        discover_name,
        discovered::{FoundTool, compare},
        operators,
    },
    store::PgPool,
    wire::{code::Code, headers::Prefer},
};
use fleet_client::{Options, calls::Submission};
use fleet_history::mcp_servers::{found_by, look_failure, mcp_server, tools_of};
use serde::Deserialize;
use serde_json::{Value, json};

use super::failed_look::FailedLook;
use crate::commands::{ask::unanswered, connect};

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
    call_id: Option<CallId>,
    #[serde(default)]
    result: Option<Value>,
    #[serde(default)]
    error: Option<LookError>,
    #[serde(default)]
    state: String,
}

#[derive(Deserialize)]
struct LookError {
    code: String,
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
    /// There is no such server; it was not looked at ([`NotLookedAt`](crate::commands::not_looked_at::NotLookedAt)); Postgres or
    /// NATS is away.
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
            .map_err(|problem| unanswered(problem, "ask again: a look changes nothing"))?;
        let Discovered { tools } = found(&server, &pool, answer.read()?).await?;
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

/// What the answer has, or the ledger where it is too large for a message of NATS.
async fn found(
    server: &McpServer,
    pool: &PgPool,
    envelope: Envelope,
) -> anyhow::Result<Discovered> {
    let (call, state) = (envelope.call_id, envelope.state.as_str());
    if state == "succeeded" {
        let doing = "read what the look found";
        let kept = match (envelope.result, call) {
            (Some(result), _) => return serde_json::from_value(result).context(doing),
            (None, Some(call)) => found_by(pool, call).await?,
            (None, None) => None,
        };
        let kept = kept.context("the look succeeded, and nobody has what it found")?;
        return serde_json::from_str(&kept).context(doing);
    }
    let attempt = match call {
        Some(call) => look_failure(pool, call).await?,
        None => None,
    };
    let failed = FailedLook {
        server,
        call,
        state,
        code: envelope
            .error
            .and_then(|error| error.code.parse::<Code>().ok()),
        attempt,
    };
    Err(failed.told().into())
}
