//! What a worker keeps of a server that it has asked: which revision it speaks, its session, and a pin for each of its tools.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, PoisonError},
};

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

/// The most changes of a server's tools that the log has.
const SAID_MAX: usize = 1_000;

/// The tools whose change was let through and is in the log, each with its pin.
#[derive(Debug, Default)]
pub(super) struct SaidChanges(Mutex<BTreeSet<(String, String)>>);

impl SaidChanges {
    /// Whether there is still to be a line about it.
    fn is_news(&self, tool: &str, pin: &Pin) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.len() < SAID_MAX && said.insert((tool.to_owned(), pin.whole.clone()))
    }
}

impl KeptTools for KnownTools {
    fn keep(&mut self, definition: &ToolDefinition<'_>) {
        let Some(name) = definition.name() else {
            return;
        };
        // What is listed twice is nothing that anybody has looked at.
        let is_listed_twice = self.0.contains_key(&name);
        let value = definition.value().filter(|_| !is_listed_twice);
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

    /// Whether the server says something else of the tool than what was applied.
    pub(super) fn has_changed(&self, spec: &McpSpec, on_change: OnChange) -> bool {
        let tool = self.tools.0.get(&spec.tool);
        let pin = tool.and_then(|tool| tool.pin.as_ref());
        pin.is_none_or(|pin| !is_let_through(pin, spec, on_change))
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
        said: &SaidChanges,
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
        if !is_let_through(pin, spec, on_change) {
            return changed(said!(
                "the MCP server {server} says something else of this tool than when it was applied",
                "MCP 服务器 {server} 对这个工具的描述与应用时不同"
            ));
        }
        if pin.whole != spec.pin && said.is_news(&spec.tool, pin) {
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

/// Whether calls of a tool with this pin go out.
fn is_let_through(pin: &Pin, spec: &McpSpec, on_change: OnChange) -> bool {
    let is_same_shape = spec.shape.as_ref() == Some(&pin.shape);
    pin.whole == spec.pin || (on_change == OnChange::Warn && is_same_shape)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_has_one_line() {
        let said = SaidChanges::default();
        let pin = |words: &str| Pin::of(&json!({"name": "a", "description": words}));
        assert!(said.is_news("a", &pin("x")) && !said.is_news("a", &pin("x")));
        assert!(said.is_news("a", &pin("y")) && said.is_news("b", &pin("x")));
        for number in 0..2 * SAID_MAX {
            said.is_news("a", &pin(&number.to_string()));
        }
        assert!(!said.is_news("a", &pin("z")), "there is a bound");
    }
}
