//! `toolfleet control set`.

use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use fleet::{ids::InterceptorName, modes::InterceptMode, store::controls::ControlKind};

use super::change::ChangeFlags;

/// What `control set` is told.
#[derive(Debug, clap::Args)]
pub struct SetMode {
    /// The interceptor, from `toolfleet control interceptors`, or a brake of the engine: `rate_limit`, `breaker`, `retry_budget`,
    /// `repeat_cap`, `learned_timeout`, `cache`, `fallback`, `large_result`, `delegation`, `tool_selection`, `todo`, `context`,
    /// `log`
    interceptor: InterceptorName,
    /// What it says holds; is counted and not done; or it is not asked
    #[arg(value_parser = PossibleValuesParser::new(InterceptMode::ALL.iter().map(|mode| mode.as_str())))]
    mode: String,
    #[command(flatten)]
    change: ChangeFlags,
}

impl SetMode {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let setting = serde_json::to_string(&self.mode)?;
        let subject = Some(self.interceptor.as_str());
        self.change.set(ControlKind::Mode, subject, &setting).await
    }
}
