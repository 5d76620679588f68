//! `toolfleet worker`.

use std::process::ExitCode;

use anyhow::Context;
use fleet::process::{Settings, asked_to_stop, finish};
use worker::{Config, guard};

/// Runs until it is told to stop and its attempts have ended.
pub(super) async fn run(mut config: Config) -> anyhow::Result<ExitCode> {
    let stopping = asked_to_stop(config.parent)?;
    // Before the first tool: this process must inherit what a killed guard leaves behind.
    guard::adopt_orphans().context("become the heir of orphaned tools")?;
    config.guard_program = Some(guard::THIS_PROGRAM.into());
    let settings = Settings {
        process: "worker",
        telemetry: &config.telemetry,
        store: &config.store,
        bus: &config.bus,
        http: &config.http,
        checked: config.check_with_folder(),
    };
    let (telemetry, listener) = settings.prepare().await?;
    let ran = Box::pin(worker::run(config, listener, stopping)).await;
    finish(telemetry).await;
    ran?;
    Ok(ExitCode::SUCCESS)
}
