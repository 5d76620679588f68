//! MCP servers as the ledger has them.

use std::{collections::HashMap, sync::Arc};

use crate::{ids::ServerName, manifest::McpServer};

/// Those that this program can read; the others are logged and left out.
pub(super) fn read(texts: &[String]) -> HashMap<ServerName, Arc<McpServer>> {
    let mut servers = HashMap::new();
    for text in texts {
        match serde_json::from_str::<McpServer>(text) {
            Ok(server) => drop(servers.insert(server.name.clone(), Arc::new(server))),
            Err(error) => tracing::warn!(
                %error,
                "an MCP server cannot be read by this program and is left out"
            ),
        }
    }
    servers
}
