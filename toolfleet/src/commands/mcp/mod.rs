//! `toolfleet mcp`: the fleet and the Model Context Protocol.

mod diff;
mod discover;
mod list;
mod looked;
mod serve;
mod show;

use std::process::ExitCode;

use clap::Subcommand;

/// What `mcp` can do.
#[derive(Debug, Subcommand)]
pub enum Mcp {
    /// Say which applied tools of an MCP server are not what they were, through a worker; exit code 1 when there are some
    Diff(Box<diff::Diff>),
    /// Look at what an MCP server offers, through a worker, and write manifests for what is new or has changed; nothing is applied
    Discover(Box<discover::Discover>),
    /// List the MCP servers that were applied
    List(list::ListServers),
    /// Serve the tools of the fleet to the program that starts this, over standard input and output
    Serve(Box<serve::Serve>),
    /// Show the manifest of an MCP server
    Show(show::ShowServer),
}

impl Mcp {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Diff(diff) => Box::pin(diff.run()).await,
            Self::Discover(discover) => Box::pin(discover.run()).await,
            Self::List(list) => list.run().await,
            Self::Serve(serve) => serve.run().await,
            Self::Show(show) => show.run().await,
        }
    }
}
