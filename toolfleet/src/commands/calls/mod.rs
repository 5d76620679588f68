//! `toolfleet calls`: the history, read from the documented views.

mod list;
mod show;

use std::process::ExitCode;

use clap::Subcommand;

/// What `calls` can do.
#[derive(Debug, Subcommand)]
pub enum Calls {
    /// List calls, the newest first
    List(list::List),
    /// Show everything about one call: its row, its attempts, its moves
    Show(show::Show),
}

impl Calls {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::List(list) => list.run().await,
            Self::Show(show) => show.run().await,
        }
    }
}
