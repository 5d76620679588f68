//! Why a question has no answer.

use std::{error::Error, time::Duration};

/// No answer came, or none that can be read.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No dispatcher listens there: nothing was accepted.
    #[error(
        "no dispatcher answers on {subject}; start one, or look at its /readyz and at the prefix and tenant of both"
    )]
    NoResponders {
        /// Where it was asked.
        subject: String,
    },
    /// The user lacks the permission for the question or its answer: nothing was accepted.
    #[error("NATS does not allow it: {what}")]
    Denied {
        /// What the server said.
        what: String,
    },
    /// No answer came in time. Whether the request was accepted is unknown, so only with its idempotency key is it safe to
    /// repeat.
    #[error("no answer within {} s", waited.as_secs())]
    NoAnswer {
        /// How long it was waited for.
        waited: Duration,
    },
    /// The connection was closed before the answer, and is not reopened. Whether the request was accepted is unknown.
    #[error("the connection was closed before the answer")]
    Closed,
    /// Too many requests of this client wait for answers; nothing was sent.
    #[error("{waiting} requests of this client wait for their answers already")]
    TooMany {
        /// How many.
        waiting: usize,
    },
    /// It could not be sent: it is larger than the server carries, or its subject is invalid.
    #[error("send the request")]
    Unsent(#[source] Box<dyn Error + Send + Sync>),
    /// The answer is not of the expected form.
    #[error("read the answer")]
    Unreadable(#[source] Box<dyn Error + Send + Sync>),
}

impl AskError {
    /// Whether the fleet may have accepted the request all the same.
    pub const fn may_be_taken(&self) -> bool {
        match self {
            Self::NoAnswer { .. } | Self::Closed | Self::Unreadable(_) => true,
            Self::NoResponders { .. }
            | Self::Denied { .. }
            | Self::TooMany { .. }
            | Self::Unsent(_) => false,
        }
    }
}
