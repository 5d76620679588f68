//! What a worker keeps of a server that it has asked: which revision it speaks, its session, and a pin for each of its tools.

use std::collections::HashMap;

use fleet::{
    manifest::{McpSpec, OnChange},
    mcp::pin::Pin,
    outcome::ToolFailure,
    said,
    wire::{code::Code, message::Message},
};
use reqwest::header::HeaderValue;
use tokio::time::Instant;

use super::{
    definition::ToolDefinition, headers::MirroredArguments, list::KeptTools, message::Revision,
};

/// What a server is.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) greeting: Greeting,
    tools: KnownTools,
    pub(super) listed_at: Instant,
}

/// Which revision a server speaks, and its session, if it has one.
#[derive(Debug, Clone)]
pub(super) struct Greeting {
    pub(super) revision: Revision,
    pub(super) session: Option<HeaderValue>,
}

/// What is known of each tool, by the server's name for it.
#[derive(Debug, Default)]
pub(super) struct KnownTools(HashMap<String, KnownTool>);

#[derive(Debug)]
struct KnownTool {
    /// `None`: what the server says of it cannot be read.
    pin: Option<Pin>,
    mirrored: Result<MirroredArguments, String>,
}

impl KeptTools for KnownTools {
    fn keep(&mut self, definition: &ToolDefinition<'_>) {
        let Some(name) = definition.name() else {
            return;
        };
        let value = definition.value();
        let tool = KnownTool {
            pin: value.as_ref().map(Pin::of),
            mirrored: match &value {
                Some(value) => MirroredArguments::of(&value["inputSchema"]),
                None => Ok(MirroredArguments::default()),
            },
        };
        self.0.insert(name, tool);
    }
}

impl Greeting {
    /// Of a server of the newer revision.
    pub(super) const fn modern() -> Self {
        Self {
            revision: Revision::Modern,
            session: None,
        }
    }
}

impl Connection {
    /// Of what a server has just said of its tools.
    pub(super) fn of(greeting: Greeting, tools: KnownTools) -> Self {
        Self {
            greeting,
            tools,
            listed_at: Instant::now(),
        }
    }

    /// The tool of a call, where the server still says what it said when that was applied.
    ///
    /// # Errors
    ///
    /// It does not: `tool_changed`, and nothing was started.
    pub(super) fn tool(
        &self,
        spec: &McpSpec,
        on_change: OnChange,
    ) -> Result<&MirroredArguments, ToolFailure> {
        let server = &spec.server;
        let changed = |what: Message| Err(ToolFailure::new(Code::ToolChanged, what));
        let Some(tool) = self.tools.0.get(&spec.tool) else {
            return changed(said!(
                "the MCP server {server} has no such tool any more",
                "MCP 服务器 {server} 已经没有这个工具"
            ));
        };
        let Some(pin) = &tool.pin else {
            return changed(said!(
                "what the MCP server {server} says of this tool is too large or nested too deep",
                "MCP 服务器 {server} 对这个工具的描述过大或嵌套过深"
            ));
        };
        let is_same_shape = spec.shape.as_ref() == Some(&pin.shape);
        if pin.whole != spec.pin && !(on_change == OnChange::Warn && is_same_shape) {
            return changed(said!(
                "the MCP server {server} says something else of this tool than when it was applied",
                "MCP 服务器 {server} 对这个工具的描述与应用时不同"
            ));
        }
        if pin.whole != spec.pin {
            tracing::warn!(%server, tool = spec.tool, "the MCP server describes a tool in other words than when it was applied");
        }
        tool.mirrored.as_ref().map_err(|why| {
            let what = said!(
                "the MCP server {server} defines this tool in a way that cannot be called: {why}",
                "MCP 服务器 {server} 对这个工具的定义无法调用：{why}"
            );
            ToolFailure::new(Code::ToolGone, what)
        })
    }
}
