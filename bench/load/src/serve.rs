//! `toolfleet bench-worker`: a worker with the tools of the bench in it, otherwise what `toolfleet worker` is.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;
use fleet::{
    config::ConfigError,
    explain::chain,
    process::{Settings, asked_to_stop, finish},
};
use worker::guard;

use crate::{effects::Effects, tools};

/// The flags: those of a worker, and the folder for effects.
#[derive(Debug, clap::Args)]
pub struct BenchWorker {
    /// The folder for the ledger of effects.
    #[arg(long, value_name = "DIR")]
    effects: PathBuf,
    #[command(flatten)]
    config: worker::Config,
}

impl BenchWorker {
    /// Runs until it is asked to stop.
    ///
    /// # Errors
    ///
    /// As a worker's: it cannot start, or go on.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let Self {
            effects,
            mut config,
        } = self;
        let stopping = asked_to_stop(config.parent)?;
        guard::adopt_orphans().context("become the heir of orphaned tools")?;
        config.guard_program = Some(guard::THIS_PROGRAM.into());
        let noted = Effects::open(&effects).map_err(|problem| {
            ConfigError(vec![format!(
                "--effects is {}, where no ledger of effects can be opened: {}; name a folder of this user's own",
                effects.display(),
                chain(&problem)
            )])
        })?;
        let settings = Settings {
            process: "worker",
            telemetry: &config.telemetry,
            store: &config.store,
            bus: &config.bus,
            http: &config.http,
            checked: config.check_with_folder(),
        };
        let (telemetry, listener) = settings.prepare().await?;
        let serving = tools::builder(&noted).serve(config, listener, stopping);
        let ran = Box::pin(serving).await;
        finish(telemetry).await;
        ran?;
        Ok(ExitCode::SUCCESS)
    }
}
