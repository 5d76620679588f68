//! Why nothing is heard of the stream of events.

use fleet::bus::kept::ApiRefusal;
use fleet_client::AskError;

/// Why nothing is heard of the stream.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unheard {
    /// There is no connection.
    #[error("there is no connection to NATS")]
    Away,
    /// There was none in between.
    #[error("the connection to NATS is a new one")]
    Reconnected,
    /// The server does not answer.
    #[error("ask for the stream of events")]
    NoAnswer(#[from] AskError),
    /// It refuses.
    #[error("read the stream of events")]
    Refused(#[from] ApiRefusal),
    /// It delivers nothing more, or has left something out.
    #[error("the consumer of events is broken: {0}")]
    Broken(&'static str),
}
