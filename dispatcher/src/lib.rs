//! The dispatcher: accept, validate, commit, publish, answer; and the sweep.

mod config;

pub use config::Config;
use fleet::{bus::BusError, config::ConfigError, store::StoreError};
use tokio::net::TcpListener;

/// Why a dispatcher cannot start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The settings do not fit together.
    #[error("bad configuration")]
    Config(#[from] ConfigError),
    /// Postgres.
    #[error("ledger")]
    Store(#[from] StoreError),
    /// NATS.
    #[error("bus")]
    Bus(#[from] BusError),
    /// The address for probes.
    #[error("http")]
    Http(#[from] std::io::Error),
}

/// Runs a dispatcher until `shutdown` is done.
///
/// # Errors
///
/// It cannot start; once it runs it waits for whatever is missing.
pub async fn run(
    _config: Config,
    _listener: TcpListener,
    _shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    unimplemented!()
}
