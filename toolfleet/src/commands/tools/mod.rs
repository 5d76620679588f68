//! `toolfleet tools`: manifests in, definitions out.

mod apply;
pub(super) mod bell;
mod check;
pub(super) mod files;
mod lint;
mod list;
mod retire;
pub(super) mod servers;
mod show;
mod timeout;
mod verdict;

use std::process::ExitCode;

use clap::Subcommand;

/// What `tools` can do.
#[derive(Debug, Subcommand)]
pub enum Tools {
    /// Apply manifests; a version never changes, so other content under the same version is refused
    Apply(apply::Apply),
    /// Have arguments looked at as those of a call; nothing is stored, and arguments that are refused end with exit code 1
    Check(check::CheckTool),
    /// Check manifests without a server: problems end with exit code 1, warnings do not
    Lint(lint::Lint),
    /// List the tools
    List(list::ListTools),
    /// Take a tool out of use: it is no longer offered, and new calls are refused; open calls go on. A newer version offers it again
    Retire(retire::Retire),
    /// Show a tool: its manifest, or its definition for a model
    Show(show::ShowTool),
}

impl Tools {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Apply(apply) => Box::pin(apply.run()).await,
            Self::Check(check) => Box::pin(check.run()).await,
            Self::Lint(lint) => lint.run(),
            Self::List(list) => list.run().await,
            Self::Retire(retire) => retire.run().await,
            Self::Show(show) => show.run().await,
        }
    }
}
