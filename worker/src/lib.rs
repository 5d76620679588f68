//! The worker: deliver, gate, claim, ack, execute, complete, reply.

mod config;
pub mod executors;
pub mod guard;

pub use config::Config;
use fleet::{bus::BusError, config::ConfigError, store::StoreError};
use tokio::net::TcpListener;

/// Why a worker cannot start, or had to stop.
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
    /// The address for probes, or the program itself.
    #[error("system")]
    System(#[from] std::io::Error),
    /// HTTP tools cannot be run here.
    #[error("http tools")]
    Http(#[from] executors::http::HttpExecutorError),
}

/// Runs a worker until `shutdown` is done and what it runs has ended.
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
