//! Real servers, started for one person or one test run: Postgres and nats-server.
//!
//! `find` says where the programs are, `process` is what both have in common, `place` is where a cluster
//! may lie when we are root, `cluster` creates it, `tools` makes room for sql tools in it; `postgres` and `nats` start one server each and wait until it answers.
//! Every wait is bounded, and an error quotes the last lines of the server's own log.

mod cluster;
pub mod find;
pub mod nats;
pub mod place;
pub mod postgres;
pub mod process;
pub mod tools;

use std::{io, net::TcpListener, path::PathBuf, time::Duration};

use uuid::Uuid;

pub use nats::{Nats, NatsOptions};
pub use postgres::{Postgres, PostgresOptions};

/// A server that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The program is not on this machine, or too old.
    #[error("{0}")]
    Program(String),
    /// A file, folder or process could not be prepared.
    #[error("{doing}")]
    Prepare {
        /// What was being done, with the path.
        doing: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Another program has the port that was asked for.
    #[error(
        "port {port} of 127.0.0.1 ({option}) is taken; end what listens there, or name another port; 0 takes a free one"
    )]
    PortTaken {
        /// Which option asked for it.
        option: &'static str,
        /// The port.
        port: u16,
    },
    /// This user may not have the port that was asked for.
    #[error("this user may not listen on port {port} ({option}); name a port above 1023")]
    PortDenied {
        /// Which option asked for it.
        option: &'static str,
        /// The port.
        port: u16,
    },
    /// The data folder is in a state that only its owner can judge.
    #[error("{0}")]
    Data(String),
    /// The server ended instead of starting.
    #[error("{server} ended while starting ({status}); its log {} says:\n{tail}", log.display())]
    Ended {
        /// Which server.
        server: String,
        /// How it ended.
        status: String,
        /// Its log file.
        log: PathBuf,
        /// The last lines of its log.
        tail: String,
    },
    /// The server runs but does not answer.
    #[error("{server} did not answer within {waited:?} ({last}); its log {} says:\n{tail}", log.display())]
    Silent {
        /// Which server.
        server: String,
        /// How long we waited.
        waited: Duration,
        /// What the last try came to.
        last: String,
        /// Its log file.
        log: PathBuf,
        /// The last lines of its log.
        tail: String,
    },
    /// The server answers, but a statement that prepares it failed.
    #[error("{doing}")]
    Database {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: sqlx::Error,
    },
}

impl ServerError {
    /// Another program has its port.
    pub(crate) fn is_port_taken(&self) -> bool {
        // nats-server and Postgres, whose messages are in English.
        matches!(self, Self::Ended { tail, .. } if tail.to_lowercase().contains("address already in use"))
    }

    pub(crate) fn prepare(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        |source| Self::Prepare { doing, source }
    }
}

/// Ports on 127.0.0.1 that were free a moment ago, all different.
///
/// They lie below the range from which the kernel serves outgoing connections: a client that reconnects to a
/// port of that range while its server restarts can be given that very port, and the server never gets it back.
///
/// # Errors
///
/// No port can be bound.
pub fn free_ports(count: usize) -> Result<Vec<u16>, ServerError> {
    const LOWEST: u128 = 20_000;
    const HIGHEST: u128 = 32_767;
    const TRIES_MAX: usize = 1_000;

    let candidates =
        (0..TRIES_MAX).map(|_| LOWEST + Uuid::new_v4().as_u128() % (HIGHEST - LOWEST + 1));
    let candidates =
        candidates.map(|port| u16::try_from(port).expect("the range ends below 65,536"));
    // Held together until all are found, so that they differ.
    let bound = candidates
        .filter_map(|port| TcpListener::bind(("127.0.0.1", port)).ok())
        .take(count);
    let bound: Vec<TcpListener> = bound.collect();
    if bound.len() < count {
        let problem =
            format!("no {count} ports between {LOWEST} and {HIGHEST} are free on 127.0.0.1");
        return Err(ServerError::Data(problem));
    }
    let ports: io::Result<Vec<u16>> = bound
        .iter()
        .map(|one| Ok(one.local_addr()?.port()))
        .collect();
    ports.map_err(ServerError::prepare("find a free port on 127.0.0.1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ_and_leave_outgoing_connections_theirs() {
        let mut ports = free_ports(50).unwrap();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 50);
        assert!(ports.iter().all(|port| (20_000..32_768).contains(port)));
    }
}
