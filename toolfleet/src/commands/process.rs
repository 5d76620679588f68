//! What a dispatcher and a worker have in common around their run: settings, logs, the port, the signals.

use std::process::ExitCode;

use anyhow::Context;
use fleet::{
    config::{BusArgs, ConfigError, HttpArgs, ParentArgs, StoreArgs},
    telemetry::{self, FLUSH_MAX, Telemetry, TelemetryOptions},
};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use super::connect::check_urls;
use crate::dev::parent_gone;

/// The settings of a process that are the same for both kinds.
pub(super) struct Settings<'a> {
    pub(super) process: &'static str,
    pub(super) telemetry: &'a TelemetryOptions,
    pub(super) store: &'a StoreArgs,
    pub(super) bus: &'a BusArgs,
    pub(super) http: &'a HttpArgs,
    /// What the process itself says about its settings.
    pub(super) checked: Result<(), ConfigError>,
}

impl Settings<'_> {
    /// Starts telemetry and binds the port, in this order and only if nothing at all is wrong with the settings.
    pub(super) async fn prepare(self) -> anyhow::Result<(Telemetry, TcpListener)> {
        let mut wrong = check_urls(self.store, self.bus);
        if let Err(ConfigError(sentences)) = self.checked {
            wrong.extend(sentences);
        }
        let telemetry = match telemetry::start(self.process, self.telemetry) {
            Ok(telemetry) if wrong.is_empty() => telemetry,
            Ok(_started) => return Err(ConfigError(wrong).into()),
            Err(problem) if wrong.is_empty() => return Err(problem.into()),
            Err(problem) => {
                wrong.push(telemetry::report(&problem));
                return Err(ConfigError(wrong).into());
            }
        };
        let listener = TcpListener::bind(self.http.http)
            .await
            .with_context(|| format!("bind TOOLFLEET_HTTP {}", self.http.http))?;
        let address = listener.local_addr().context("ask for the bound address")?;
        tracing::info!(%address, "listening");
        Ok((telemetry, listener))
    }
}

/// Waits until SIGTERM, Ctrl-C, or the end of whoever started us. Signals count from the call on.
pub(super) fn asked_to_stop(parent: ParentArgs) -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for Ctrl-C")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("stopping: SIGTERM"),
            _ = interrupt.recv() => tracing::info!("stopping: Ctrl-C"),
            () = parent_gone(), if parent.parent_pipe => tracing::info!("stopping: the parent is gone"),
        }
    })
}

/// Ends a run: the last spans leave, or are given up.
pub(super) async fn finish(
    telemetry: Telemetry,
    ran: Result<(), impl Into<anyhow::Error>>,
) -> anyhow::Result<ExitCode> {
    let flushed = tokio::task::spawn_blocking(|| telemetry.shutdown());
    // It bounds itself; this bound is for a collector's name that does not resolve.
    if tokio::time::timeout(2 * FLUSH_MAX, flushed).await.is_err() {
        tracing::warn!("the last spans did not reach the collector");
    }
    ran.map(|()| ExitCode::SUCCESS).map_err(Into::into)
}
