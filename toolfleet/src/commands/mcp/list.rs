//! `toolfleet mcp list`.

use std::process::ExitCode;

use fleet::config::StoreArgs;
use fleet_history::{
    instant,
    mcp_servers::{ListedMcpServer, mcp_servers},
};

use crate::commands::{connect, output};

/// What `mcp list` is told.
#[derive(Debug, clap::Args)]
pub struct ListServers {
    /// Every version, not only the current one of each server
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON: an array with an object per version, without its manifest, with the number of tools of the server
    #[arg(long)]
    json: bool,
}

impl ListServers {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let pool = connect::reader(&self.store).await?;
        let rows = mcp_servers(&pool, self.all).await?;
        let headings = [
            "SERVER",
            "VERSION",
            "TRANSPORT",
            "TRUST",
            "ON CHANGE",
            "QUEUE",
            "TOOLS",
            "APPLIED",
            "BY",
        ];
        output::print_rows(&rows, self.json, &headings, cells)
    }
}

fn cells(server: ListedMcpServer) -> Vec<String> {
    vec![
        server.server,
        server.version.to_string(),
        server.transport,
        server.trust,
        server.on_change,
        server.queue,
        server.tools.to_string(),
        instant(server.applied_at),
        server.applied_by,
    ]
}
