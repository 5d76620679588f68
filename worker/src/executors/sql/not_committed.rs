//! Why an attempt on a database did not reach its `COMMIT`, and how far it came.

use fleet::{manifest::RowBounds, wire::message::Message};

/// How far an attempt came. Where there is no answer, the outcome follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nothing of the tool was sent.
    Before,
    /// The statement was sent, `COMMIT` was not.
    Statement,
    /// `COMMIT` was sent.
    Commit,
}

/// Why an attempt did not end with its `COMMIT`.
#[derive(Debug)]
pub enum NotCommitted {
    /// There is no connection. Nothing was sent.
    NoConnection(NoConnection),
    /// The server answered with an error, so the transaction is gone.
    Refused(ServerRefusal),
    /// The connection broke, or the data on it made no sense.
    Lost,
    /// The answer is too large; nothing was committed.
    TooLarge(Message),
    /// The answer cannot be kept: a sentence; nothing was committed.
    Unusable(Message),
    /// The call is no longer this attempt's. Nothing was committed, and nothing may be.
    Taken,
    /// A tool may not run this statement: a sentence for its author. It was not run.
    Flaw(Message),
    /// An argument cannot be a parameter: a sentence for the caller. Nothing was run.
    Argument(Message),
    /// It returned or changed another number of rows than its manifest expects; nothing was committed.
    Unexpected {
        /// How many it expects.
        expected: RowBounds,
        /// How many there were.
        rows: u64,
    },
    /// It was told to stop between two steps. Nothing was committed.
    Cut,
}

impl NotCommitted {
    /// Whether the tables have changed since the statement was prepared: "cached plan must not change result type".
    pub(super) fn is_stale(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.sqlstate == "0A000")
    }

    /// Whether the session is over with it.
    pub(super) const fn ends_session(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.is_fatal,
            Self::Lost => true,
            _others => false,
        }
    }

    /// Whether the tables may have changed since the statement was checked. To check it again costs a dozen trips, so not where
    /// other transactions or the server's own state were in the way.
    pub(super) fn may_be_news(&self) -> bool {
        const OLD: [&str; 8] = ["08", "23", "40", "53", "55", "57", "58", "P0001"];
        match self {
            Self::Refused(refusal) => !OLD.iter().any(|class| refusal.sqlstate.starts_with(class)),
            Self::Flaw(_) => true,
            Self::NoConnection(_)
            | Self::Lost
            | Self::TooLarge(_)
            | Self::Unusable(_)
            | Self::Taken
            | Self::Argument(_)
            | Self::Unexpected { .. }
            | Self::Cut => false,
        }
    }
}

/// Why there is no connection: nothing has been sent.
#[derive(Debug)]
pub enum NoConnection {
    /// It cannot be opened.
    Unreachable(Message),
    /// This machine lacks the resources to open it.
    NoResources(Message),
    /// Its role has a right that no tool may have.
    Role(String),
}

/// A server's error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerRefusal {
    /// Five characters; the first two are its class.
    pub sqlstate: String,
    /// One line.
    pub message: String,
    /// Whether the server ended the session, and not only the statement.
    pub is_fatal: bool,
    /// The constraint that was violated.
    pub constraint: Option<String>,
}
