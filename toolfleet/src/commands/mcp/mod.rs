//! `toolfleet mcp`: the fleet and the Model Context Protocol.

mod diff;
mod discover;
mod failed_look;
mod line;
mod list;
mod looked;
mod serve;
mod show;

use std::process::ExitCode;

use clap::Subcommand;

/// How `mcp diff` ends.
const DIFF_CODES: &str = "Exit codes: 0 all are what was applied, 1 some have changed or are gone, 69 nobody could look at the server";
/// What the lines of `mcp discover` say, and how it ends.
const WORDS: &str = "new: never applied; unchanged; changed: the server says something else than when it was applied, and its calls fail; \
    gone: applied, and the server does not have it any more; retired: taken away by toolfleet tools retire; unfit: cannot be a tool of the fleet

Exit codes: 0 looked and all is written, 1 a file was left alone, 69 nobody could look at the server";

/// What `mcp` can do.
#[derive(Debug, Subcommand)]
pub enum Mcp {
    /// Say which applied tools of an MCP server are not what they were, through a worker
    #[command(after_help = DIFF_CODES)]
    Diff(Box<diff::Diff>),
    /// Look at what an MCP server offers, through a worker, and write manifests for what is new or has changed; nothing is applied
    #[command(after_help = WORDS)]
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
