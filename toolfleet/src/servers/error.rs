//! Why a server cannot be started.

use std::{io, path::PathBuf, time::Duration};

/// A server that cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The program is not on this machine, or too old.
    #[error("{0}")]
    Program(String),
    /// A file, folder or process could not be prepared.
    #[error("{doing}")]
    Prepare {
        /// What the process was doing, with the path.
        doing: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Another program has the port that the option names.
    #[error(
        "port {port} of 127.0.0.1 ({option}) is taken; end what listens there, or name another port; 0 takes a free one"
    )]
    PortTaken {
        /// The option.
        option: &'static str,
        /// The port.
        port: u16,
    },
    /// This user may not have the port that the option names.
    #[error("this user may not listen on port {port} ({option}); name a port above 1023")]
    PortDenied {
        /// The option.
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
        /// How long this process waited.
        waited: Duration,
        /// The error of the last try.
        last: String,
        /// Its log file.
        log: PathBuf,
        /// The last lines of its log.
        tail: String,
    },
    /// The server answers, but a statement that prepares it failed.
    #[error("{doing}")]
    Database {
        /// What the process was doing.
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
