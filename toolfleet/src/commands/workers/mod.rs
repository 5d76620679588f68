//! `toolfleet workers`: lists workers, and declares one gone.

mod fence;
mod list;

use std::process::ExitCode;

use clap::Subcommand;

/// What `workers` can do.
#[derive(Debug, Subcommand)]
pub enum Workers {
    /// List the workers that live, and the dead ones that are not fenced
    List(list::ListWorkers),
    /// Declare a worker gone, with everything it had started: then what it left in doubt can be settled as not applied
    Fence(fence::Fence),
}

impl Workers {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::List(list) => list.run().await,
            Self::Fence(fence) => fence.run().await,
        }
    }
}
