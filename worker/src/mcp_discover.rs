//! The fleet's own tool that looks at what an MCP server offers: `mcp_discover`.
//!
//! It is applied together with the first server of a queue, for the workers of that queue reach the server. An ordinary read: what was
//! looked at, when and by whom is in the history.

use std::time::Duration;

use fleet::{
    call::{Effect, Language},
    ids::{QueueName, ServerName},
    manifest::{ExecutorSpec, Manifest},
    mcp::discover_name,
    outcome::ToolFailure,
    secrets::Secrets,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use tokio::time::Instant;

use crate::{
    executors::mcp::McpExecutor,
    tool::{self, Settings, Tool, ToolContext, ToolError},
};

/// Looks at what MCP servers offer.
pub(crate) struct McpDiscover(Option<(McpExecutor, Secrets)>);

impl McpDiscover {
    /// Over the servers that this executor reaches, with these secrets.
    pub(crate) const fn over(executor: McpExecutor, secrets: Secrets) -> Self {
        Self(Some((executor, secrets)))
    }
}

/// What it is asked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Discovering {
    /// The name of the MCP server, as it was applied.
    #[schemars(length(min = 1, max = 32))]
    server: String,
}

/// What the server says of its tools.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Discovered {
    /// Each as the server defines it, without what is not pinned; one that cannot be read is its name, if that can be, and the reason.
    #[schemars(with = "Vec<Value>")]
    tools: Vec<Box<RawValue>>,
}

impl Tool for McpDiscover {
    type Args = Discovering;
    type Output = Discovered;
    const NAME: &'static str = "mcp_discover";
    const VERSION: i32 = 1;
    const EFFECT: Effect = Effect::Read;
    const DESCRIPTION: &'static str = "Asks an MCP server that was applied which tools it has, and returns the definition of each as the server writes it. \
         Nothing of it can be called before somebody has applied it. For operators: toolfleet mcp discover.";

    fn settings(&self) -> Settings {
        Settings::default()
            .queue("default")
            .output_limit(Manifest::OUTPUT_LIMIT_MAX)
            .field("visibility", "unlisted")
            .without_output_schema()
    }

    async fn call(
        &self,
        asked: Discovering,
        context: ToolContext,
    ) -> Result<Discovered, ToolError> {
        let unknown = || {
            ToolError::business(
                "there is no such MCP server: toolfleet mcp list says which there are",
            )
            .with_code("not_found")
        };
        let server: ServerName = asked.server.parse().map_err(|_no_name| unknown())?;
        let (executor, secrets) = self.0.as_ref().ok_or_else(unknown)?;
        let until = Instant::now() + context.remaining();
        let tenant = context.tenant().parse().ok();
        let found = tokio::select! {
            found = executor.discover(&server, secrets, &tenant, until) => found,
            () = context.cancelled() => return Err(ToolError::not_started("the attempt had to end")),
        };
        let tools = found.map_err(|failure| not_looked_at(&failure, context.language()))?;
        Ok(Discovered { tools })
    }
}

/// Why the server was not looked at. Who has to mend something first is told at once.
fn not_looked_at(failure: &ToolFailure, language: Language) -> ToolError {
    let what = failure.message.told(language);
    if failure.needs_operator() {
        return ToolError::business(what);
    }
    let not_started = ToolError::not_started(what);
    match failure.retry_after_ms {
        Some(pause) => not_started.with_retry_after(Duration::from_millis(pause)),
        None => not_started,
    }
}

/// The manifest of the fleet's own tool `mcp_discover` for the servers of this queue: whoever applies a server applies it too.
///
/// # Panics
///
/// Never: the manifest is a constant.
pub fn discoverer_of(queue: &QueueName) -> Manifest {
    let manifest = tool::manifest::manifest(&McpDiscover(None)).expect("our own manifest is valid");
    debug_assert!(matches!(manifest.executor, ExecutorSpec::Native(_)));
    Manifest {
        name: discover_name(queue),
        queue: queue.clone(),
        ..manifest
    }
}
