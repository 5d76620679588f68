//! `toolfleet control only`.

use std::process::ExitCode;

use fleet::{ids::InterceptorName, store::controls::ControlKind};

use super::change::ChangeFlags;

/// What `control only` is told.
#[derive(Debug, clap::Args)]
pub struct OnlyThese {
    /// The interceptors that remain, separated by commas; the mandatory ones remain in any case
    #[arg(
        required = true,
        value_name = "NAME,…",
        value_delimiter = ',',
        num_args = 1
    )]
    interceptors: Vec<InterceptorName>,
    #[command(flatten)]
    change: ChangeFlags,
}

impl OnlyThese {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let setting = serde_json::to_string(&self.interceptors)?;
        self.change.set(ControlKind::Only, None, &setting).await
    }
}
