//! Why a process cannot start.

use crate::{config::ConfigError, telemetry::TelemetryError};

/// Why a process cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its settings are wrong.
    #[error("bad configuration")]
    Config(#[from] ConfigError),
    /// Its logs or traces cannot be set up.
    #[error("telemetry")]
    Telemetry(#[from] TelemetryError),
    /// Its port is not free.
    #[error("bind TOOLFLEET_HTTP {address}")]
    Bind {
        /// The address that was asked for.
        address: std::net::SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The system does not let it hear signals.
    #[error("listen for signals")]
    Signals(#[source] std::io::Error),
}
