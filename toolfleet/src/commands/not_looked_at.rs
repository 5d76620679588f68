//! The error of a look at an MCP server that did not come about.

use fleet::ids::ServerName;

/// Nobody could look at the server.
#[derive(Debug, thiserror::Error)]
#[error("{server} was not looked at: {why}; {advice}")]
pub(super) struct NotLookedAt {
    pub(super) server: ServerName,
    /// What happened.
    pub(super) why: String,
    /// What the person at the terminal can do.
    pub(super) advice: String,
}
