//! Why a worker cannot start, or had to stop.

use fleet::{
    bus::BusError, config::ConfigError, explain::Located, fencing::FencingError, store::StoreError,
};

use crate::executors::{http::HttpExecutorError, registry::ExecutorStartError};

/// Why a worker cannot start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The settings do not fit together.
    #[error("bad configuration")]
    Config(#[from] ConfigError),
    /// Postgres.
    #[error("ledger")]
    Store(#[from] StoreError),
    /// Postgres, as sql tools reach it.
    #[error("the database of sql tools")]
    Tools(#[source] Located),
    /// NATS.
    #[error("bus")]
    Bus(#[from] BusError),
    /// A part of the process ended by itself, most likely by a panic. The process does not go on without it.
    #[error("a part of the process ended by itself")]
    PartEnded,
    /// Its lock cannot be made.
    #[error("lock")]
    Lock(#[from] FencingError),
    /// The address for probes, or the machine's name.
    #[error("system")]
    System(#[from] std::io::Error),
    /// HTTP tools cannot be run here.
    #[error("http tools")]
    Http(#[from] HttpExecutorError),
    /// An executor cannot be started.
    #[error(transparent)]
    Executor(#[from] ExecutorStartError),
}
