//! Settings that several processes share: flags with their environment variables, checked together at start.

use std::{net::SocketAddr, time::Duration};

use clap::Args;
use secrecy::SecretString;
use uuid::Uuid;

use crate::{ids::Prefix, manifest::parse_duration};

/// Where the ledger is.
#[derive(Debug, Clone, Args)]
pub struct StoreArgs {
    /// The PostgreSQL database (15 or newer), as `postgres://user:password@host:port/database`.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_parser = secret)]
    pub database_url: SecretString,
}

/// Where the bus is.
#[derive(Debug, Clone, Args)]
pub struct BusArgs {
    /// A NATS server (2.12.6 or newer, with JetStream), as `nats://user:password@host:port`; it names the rest of its cluster.
    #[arg(long, env = "NATS_URL", hide_env_values = true, default_value = "nats://127.0.0.1:4222", value_parser = secret)]
    pub nats_url: SecretString,
    /// The first token of every subject. Fleets with different prefixes do not see each other.
    #[arg(long, env = "TOOLFLEET_PREFIX", default_value = "toolfleet")]
    pub prefix: Prefix,
}

/// Where probes and scrapers find the process.
#[derive(Debug, Clone, Args)]
pub struct HttpArgs {
    /// Address of `/healthz`, `/readyz` and `/metrics`; port 0 lets the system pick one. Keep it off public networks.
    #[arg(long, env = "TOOLFLEET_HTTP", default_value = "127.0.0.1:0")]
    pub http: SocketAddr,
    /// How `/readyz` names this process, so that its parent can tell it from a stranger on the same port.
    #[arg(long, hide = true)]
    pub instance: Option<Uuid>,
}

/// For a process that stops when its parent is gone.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct ParentArgs {
    /// Drain and stop when standard input ends: the process that started this one is gone.
    #[arg(long, hide = true)]
    pub parent_pipe: bool,
}

/// All settings that cannot be used. The program exits with code 64.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct ConfigError(pub Vec<String>);

/// Reads a duration such as `30s`.
///
/// # Errors
///
/// A sentence that says what a duration looks like.
pub fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text)
}

/// Reads a secret, which is never printed.
///
/// # Errors
///
/// None.
pub fn secret(text: &str) -> Result<SecretString, std::convert::Infallible> {
    Ok(SecretString::from(text.to_owned()))
}
