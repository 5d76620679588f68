//! `toolfleet gateway`.

use std::process::ExitCode;

use anyhow::Context;
use fleet::process::{Settings, asked_to_stop, finish};
use gateway::Config;

/// Runs until it is told to stop.
pub(super) async fn run(config: Config) -> anyhow::Result<ExitCode> {
    let stopping = asked_to_stop(config.parent)?;
    // Other programs of this user then cannot read its environment and memory, which hold passwords.
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_dumpable(false).context("hide its memory from other programs")?;
    let settings = Settings {
        process: "gateway",
        telemetry: &config.telemetry,
        store: &config.store,
        bus: &config.bus,
        http: &config.http,
        checked: config.check(),
    };
    let (telemetry, listener) = settings.prepare().await?;
    let ran = Box::pin(gateway::run(config, None, listener, stopping)).await;
    finish(telemetry).await;
    ran?;
    Ok(ExitCode::SUCCESS)
}
