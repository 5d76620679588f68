//! Why a gateway cannot start, or had to stop.

use std::{io, net::SocketAddr};

use fleet::{bus::BusError, config::ConfigError, store::StoreError};
use fleet_client::AskError;

/// Why a gateway cannot start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The settings do not fit together.
    #[error("bad configuration")]
    Config(#[from] ConfigError),
    /// Postgres.
    #[error("views")]
    Store(#[from] StoreError),
    /// NATS.
    #[error("bus")]
    Bus(#[from] BusError),
    /// NATS has closed the connection.
    #[error("inbox")]
    Inbox(#[from] AskError),
    /// Its port is not free.
    #[error("bind GATEWAY_LISTEN {address}")]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A part of the process ended by itself, most likely by a panic. The process does not go on without it.
    #[error("a part of the process ended by itself")]
    PartEnded,
}
