//! The ledger in Postgres: the only folder with SQL, one file for each verb.
//!
//! Writes that move a call go through the lanes of [`ledger`]: single autocommit statements over arrays, on connections outside
//! any pool, never cancelled; rows that arrive while one is in flight share the next. Reads, and writes that may simply be
//! repeated, use a pool with one statement each and never `begin`: a dropped `begin` leaves an open transaction behind in the
//! pool (sqlx 0.9), and what is written in it is lost.

use std::io;

use sqlx::postgres::PgRow;
pub use sqlx::{PgConnection, PgPool};

pub use self::decision::DecisionError;

pub mod accept;
mod answer;
pub mod answer_files;
pub mod answers;
pub mod approvals;
pub mod arguments;
pub mod askers;
pub mod attempt_files;
pub mod awaiting;
pub mod breakers;
pub mod bulk_retries;
pub mod cancel;
pub mod claim;
mod columns;
pub mod complete;
pub mod controls;
pub mod conversations;
mod decision;
pub mod expiry;
pub mod figures;
pub mod file_keys;
pub mod files;
pub mod followers;
pub mod health;
mod history_indexes;
pub mod hot_tables;
pub mod interceptors;
pub mod keys;
pub mod lane;
pub mod late;
pub mod ledger;
pub mod limited;
pub mod locks;
pub mod look;
pub mod marks;
pub mod mcp_servers;
pub mod migrate;
pub mod model_calls;
pub mod model_spend;
pub mod open_counts;
pub mod park;
pub mod pauses;
pub mod policies;
pub mod postpone;
pub mod probe;
pub mod quarantine;
pub mod read;
pub mod referents;
pub mod release;
pub mod renumber;
pub mod reservations;
pub mod results;
pub mod retire;
pub mod rights;
pub mod schema;
pub mod server_check;
pub mod session;
pub mod settle;
pub mod snapshot;
pub mod stand_ins;
pub mod starts;
mod statement;
pub mod summaries;
pub mod sweep;
pub mod takeover;
pub mod timeouts;
pub mod todos;
pub mod token_secrets;
pub mod tokens;
pub mod tool_role;
pub mod tools;
pub mod transaction;
pub mod under_way;
pub mod unknown_tools;
mod waits;
pub mod walk;
pub mod watermark;
pub mod workers;

/// An error of Postgres. Being fenced is not one of them: it is a normal answer.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached, or the connection broke: whether a write was done is unknown.
    #[error("{doing}: Postgres did not answer")]
    Unavailable {
        /// What the process was doing.
        doing: &'static str,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
    /// It answered with an error: nothing was changed.
    #[error("{doing}: Postgres refused")]
    Refused {
        /// What the process was doing.
        doing: &'static str,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
    /// It was never sent, or the server cannot do it just now: nothing was changed.
    #[error("{doing}: the ledger is not reachable")]
    NotSent {
        /// What the process was doing.
        doing: &'static str,
    },
    /// A row contains something that this version of the program does not know.
    #[error("{doing}: {what}")]
    Unreadable {
        /// What the process was doing.
        doing: &'static str,
        /// What is not understood.
        what: String,
    },
    /// The URL cannot be read.
    #[error("it is not a postgres:// URL")]
    BadUrl,
    /// The server may lose what it commits, is not the one that takes writes, or has lost writes.
    #[error("Postgres is not safe to write to: {0}")]
    UnsafeServer(String),
    /// The schema is older or newer than this program.
    #[error("{0}")]
    UnknownSchema(String),
}

impl StoreError {
    /// Sorts a driver error by whether the server answered.
    pub fn from_sqlx(doing: &'static str, source: sqlx::Error) -> Self {
        if answered(&source) {
            Self::Refused { doing, source }
        } else {
            Self::Unavailable { doing, source }
        }
    }

    /// Whether the server did not answer, or could not be reached.
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// Whether the same statement may succeed a moment later.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::NotSent { .. } | Self::UnsafeServer(_) => true,
            Self::Refused { source, .. } => passes(source),
            Self::Unreadable { .. } | Self::BadUrl | Self::UnknownSchema(_) => false,
        }
    }

    /// Whether the server ended a statement because it ran for too long.
    pub fn took_too_long(&self) -> bool {
        let Self::Refused { source, .. } = self else {
            return false;
        };
        let answer = source.as_database_error();
        answer.is_some_and(|answer| answer.code().as_deref() == Some("57014"))
    }

    /// A lane has heard no answer: whether the row was written is unknown. What broke its connection is in the lane's own log.
    pub(super) fn no_answer(doing: &'static str) -> Self {
        let source = sqlx::Error::Io(io::Error::other("the connection of its lane broke"));
        Self::Unavailable { doing, source }
    }

    pub(crate) fn unreadable(doing: &'static str, what: impl std::fmt::Display) -> Self {
        Self::Unreadable {
            doing,
            what: what.to_string(),
        }
    }
}

/// Reads every row.
fn read_all<T, All: FromIterator<T>>(
    doing: &'static str,
    rows: &[PgRow],
    read: impl FnMut(&PgRow) -> Result<T, sqlx::Error>,
) -> Result<All, StoreError> {
    rows.iter()
        .map(read)
        .collect::<Result<_, _>>()
        .map_err(|error| StoreError::unreadable(doing, error))
}

/// Whether the server answered with an error.
///
/// For a single autocommit statement that proves that nothing was changed. A shutdown or a lost connection (classes 57P and 08)
/// proves nothing, even when it arrives as an answer.
pub fn answered(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(answer) => !answer
            .code()
            .is_some_and(|code| code.starts_with("57P") || code.starts_with("08")),
        _ => false,
    }
}

/// Whether the server answered that it cannot do it just now, whatever the statement.
///
/// A lock that is held, a deadlock, a full disk, no memory, no time, a server that takes no writes for a while. The same
/// statement may succeed a moment later.
pub fn passes(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(answer) = error else {
        return false;
    };
    answer.code().is_some_and(|code| {
        ["40", "53", "58", "25006", "55P03", "57014"]
            .iter()
            .any(|class| code.starts_with(class))
    })
}
