//! NATS: the bell. It decides nothing; whatever it loses, the sweep finds in Postgres.

pub mod backlog;
pub mod connect;
pub mod drift;
pub mod events;
pub mod excess;
pub mod kept;
pub mod login;
pub mod malformed;
pub mod orphans;
pub mod prefix;
pub mod publish;
pub mod pull;
mod refusal;
pub mod rights;
pub mod stranded;
pub mod topology;
pub mod watermark;

use crate::owner::ForeignLedger;

/// What can go wrong with NATS.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// No server answered in time.
    #[error("{doing}: NATS did not answer")]
    Unavailable {
        /// What the process was doing.
        doing: &'static str,
        /// The cause, where the client has one.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The user's permissions do not allow it.
    #[error("{doing}: NATS does not allow it: {what}")]
    Denied {
        /// What the process was doing.
        doing: &'static str,
        /// What the server said.
        what: String,
    },
    /// The server is too old, or lacks JetStream.
    #[error("{0}")]
    UnfitServer(String),
    /// The URL cannot be read.
    #[error("NATS_URL is not a nats:// URL")]
    BadUrl,
    /// Files with which it should log in cannot be used, or not together.
    #[error("{}", .0.join("; "))]
    BadLogin(Vec<String>),
    /// Another ledger's watermark is stored for the prefix.
    #[error(transparent)]
    ForeignLedger(Box<ForeignLedger>),
    /// The stored watermark cannot be read: it may be another ledger's, written by a later release.
    #[error(
        "stream {stream} keeps which ledger the prefix belongs to, and what lies there cannot be read: use the release that wrote \
         it, or another --prefix (TOOLFLEET_PREFIX); where no other ledger uses this prefix, empty the stream (nats stream purge \
         {stream})"
    )]
    UnreadableWatermark {
        /// The stream's name.
        stream: String,
        /// Why it cannot be read.
        source: serde_json::Error,
    },
}

impl BusError {
    /// The error of a failed request, and its cause.
    pub fn unavailable(
        doing: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Unavailable {
            doing,
            source: Some(source.into()),
        }
    }
}
