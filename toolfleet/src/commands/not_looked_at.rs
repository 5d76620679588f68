//! The error of a look at an MCP server that did not come about.

use fleet::ids::ServerName;

/// Nobody could look at the server.
#[derive(Debug, thiserror::Error)]
#[error("{server} was not looked at: {why}")]
pub(super) struct NotLookedAt {
    pub(super) server: ServerName,
    pub(super) why: String,
}
