//! What every long-lived process does before and after its run: settings, logs, the port, the signals, the exit code.

mod exit;
pub mod join;
mod outage;
mod parent;
pub mod probes;
pub(crate) mod start_error;

use async_nats::ServerAddr;
use secrecy::{ExposeSecret, SecretString};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

pub use self::{
    exit::{CONFIGURATION, FAILED, UNREACHABLE, exit_code, is_configuration, is_unreachable},
    start_error::StartError,
};
use crate::{
    bus::{BusError, login},
    config::{BusArgs, ConfigError, HttpArgs, ParentArgs, StoreArgs},
    explain::{Servers, explain},
    store::session::Postgres,
    telemetry::{self, FLUSH_MAX, Telemetry, TelemetryOptions},
};

/// The settings that every process has.
#[derive(Debug)]
pub struct Settings<'a> {
    /// The process: `dispatcher` or `worker`.
    pub process: &'static str,
    /// Logs and traces.
    pub telemetry: &'a TelemetryOptions,
    /// Where the ledger is.
    pub store: &'a StoreArgs,
    /// Where the bus is.
    pub bus: &'a BusArgs,
    /// Where probes and scrapers look.
    pub http: &'a HttpArgs,
    /// The result of the process's own check of its settings.
    pub checked: Result<(), ConfigError>,
}

impl Settings<'_> {
    /// Starts telemetry and binds the port, in this order, and only if every setting is right.
    ///
    /// # Errors
    ///
    /// All wrong settings at once, or what the system refuses.
    pub async fn prepare(self) -> Result<(Telemetry, TcpListener), StartError> {
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
        let address = self.http.http;
        let bound = async {
            let listener = TcpListener::bind(address).await?;
            let address = listener.local_addr()?;
            tracing::info!(%address, "listening");
            Ok(listener)
        };
        match bound.await {
            Ok(listener) => Ok((telemetry, listener)),
            Err(source) => Err(StartError::Bind { address, source }),
        }
    }
}

/// Waits until SIGTERM, Ctrl-C, or the end of the parent process. Signals count from the call on.
///
/// # Errors
///
/// The system does not allow signal handlers.
pub fn asked_to_stop(
    parent: ParentArgs,
) -> Result<impl Future<Output = ()> + Send + use<>, StartError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(StartError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(StartError::Signals)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("stopping: SIGTERM"),
            _ = interrupt.recv() => tracing::info!("stopping: Ctrl-C"),
            () = parent::gone(), if parent.parent_pipe => tracing::info!("stopping: the parent is gone"),
        }
    })
}

/// Sends the last spans, or gives them up.
pub async fn finish(telemetry: Telemetry) {
    let flushed = tokio::task::spawn_blocking(|| telemetry.shutdown());
    // It has its own bound; this one is for a collector whose name does not resolve.
    if tokio::time::timeout(2 * FLUSH_MAX, flushed).await.is_err() {
        tracing::warn!("the last spans did not reach the collector");
    }
}

/// The ledger, if the URL is valid. The driver would accept any scheme.
///
/// # Errors
///
/// It is not valid. The sentence does not contain it.
pub fn ledger(url: &SecretString, name: &str) -> Result<Postgres, ConfigError> {
    postgres_at("DATABASE_URL", url, name)
}

/// Checks that the URL in a setting is a Postgres URL.
///
/// # Errors
///
/// It is not. The sentence names the setting and does not contain the URL.
pub fn check_postgres_url(setting: &str, url: &SecretString) -> Result<(), ConfigError> {
    postgres_at(setting, url, "toolfleet").map(drop)
}

fn postgres_at(setting: &str, url: &SecretString, name: &str) -> Result<Postgres, ConfigError> {
    let schemes = ["postgres://", "postgresql://"];
    let fits = schemes
        .iter()
        .any(|scheme| url.expose_secret().starts_with(scheme));
    let postgres = fits.then(|| Postgres::new(url, name).ok()).flatten();
    postgres.ok_or_else(|| {
        let advice =
            "write postgres://user:password@host:port/database, with %40 for an @ in the password";
        ConfigError(vec![format!(
            "{setting} is not a postgres:// URL; {advice}"
        )])
    })
}

/// Checks that the bus's URL is one.
///
/// # Errors
///
/// It is not. The error does not contain it.
pub fn check_bus_url(bus: &BusArgs) -> Result<(), BusError> {
    // Its message may quote the URL. The client accepts a URL without a host, but it leads nowhere.
    let parsed = bus.nats_url.expose_secret().parse::<ServerAddr>().ok();
    let has_host = parsed.is_some_and(|address| !address.host().is_empty());
    has_host.then_some(()).ok_or(BusError::BadUrl)
}

/// Checks that the URLs are valid, as far as that is possible without a server. The sentences do not contain them.
pub fn check_urls(store: &StoreArgs, bus: &BusArgs) -> Vec<String> {
    let store = ledger(&store.database_url, "toolfleet").err();
    let store = store
        .map(|ConfigError(sentences)| sentences)
        .unwrap_or_default();
    let url = check_bus_url(bus).err();
    let url = url.map(|problem| explain(&problem, &Servers::default()).to_string());
    let login = login::check(bus);
    store.into_iter().chain(url).chain(login).collect()
}
