//! `toolfleet mcp show`.

use std::process::ExitCode;

use anyhow::bail;
use fleet::{config::StoreArgs, ids::ServerName};
use fleet_history::mcp_servers::mcp_server;

use crate::commands::{connect, output};

/// What `mcp show` is told.
#[derive(Debug, clap::Args)]
pub struct ShowServer {
    /// The server's name
    server: ServerName,
    /// The version; the current one without it
    #[arg(long = "version", value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    server_version: Option<i32>,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON on one line
    #[arg(long)]
    json: bool,
}

impl ShowServer {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let pool = connect::reader(&self.store).await?;
        let found = mcp_server(&pool, &self.server, self.server_version).await?;
        let Some(manifest) = found else {
            match self.server_version {
                Some(version) => bail!("MCP server {} has no version {version}", self.server),
                None => bail!(
                    "there is no MCP server {}; `toolfleet mcp list` says which there are",
                    self.server
                ),
            }
        };
        output::print_text(&manifest, self.json)?;
        Ok(ExitCode::SUCCESS)
    }
}
