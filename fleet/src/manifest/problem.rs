//! What is wrong with a manifest.

use crate::ids::{ServerName, ToolName};

/// One thing that is wrong with a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestProblem {
    /// JSON pointer to the field; empty for the whole file.
    pub path: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl ManifestProblem {
    /// The tool of this file is in another file too, so the names of the files would decide which one is applied.
    pub fn duplicate(tool: &ToolName, other: &str) -> Self {
        let remedy = "keep one of the two files, or give one of the tools another name";
        Self::new(
            "/name",
            format!("the tool {tool} is in {other} too: {remedy}"),
        )
    }

    /// The same of an MCP server.
    pub fn duplicate_server(server: &ServerName, other: &str) -> Self {
        let remedy = "keep one of the two files, or give one of the servers another name";
        Self::new(
            "/name",
            format!("the MCP server {server} is in {other} too: {remedy}"),
        )
    }

    pub(super) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }
}

/// Problems in the order in which they were found.
#[derive(Default)]
pub(super) struct Problems {
    pub(super) found: Vec<ManifestProblem>,
}

impl Problems {
    pub(super) fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.found.push(ManifestProblem::new(path, message));
    }
}
