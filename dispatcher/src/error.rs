//! Why a dispatcher cannot start, or had to stop.

use fleet::{bus::BusError, config::ConfigError, store::StoreError};

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
    /// A part of the process ended by itself, most likely by a panic. The process does not go on without it.
    #[error("a part of the process ended by itself")]
    PartEnded,
    /// The address for probes.
    #[error("http")]
    Http(#[from] std::io::Error),
}
