//! Which open calls a look reads: all behind one, or certain ones.
//!
//! An index has an entry for each version of a row that some snapshot may still see. While one is held, a look at all that is
//! behind a call reads every call that has ended since, too; a look at certain ones does not.

use sqlx::{Postgres, postgres::PgArguments, query::Query};
use uuid::Uuid;

use crate::ids::CallId;

/// Rows looked at by one step of a pass.
pub const STEP_ROWS: i64 = 2_000;

/// Which open calls a look reads.
#[derive(Debug, Clone, Copy)]
pub enum CallsPart<'a> {
    /// Those behind this one, in the order of their ids; `None`: from the first. Rows of ended calls that a held snapshot keeps
    /// are read too.
    Behind(Option<CallId>),
    /// These and nothing else, whatever lies between them; at most [`STEP_ROWS`].
    Among(&'a [CallId]),
}

impl CallsPart<'_> {
    /// The predicate on `call_id`; its parameter is `$2`.
    pub(super) const fn predicate(self) -> &'static str {
        match self {
            Self::Behind(_) => "> $2",
            Self::Among(_) => "= ANY($2)",
        }
    }

    pub(super) fn bind<'q>(
        self,
        query: Query<'q, Postgres, PgArguments>,
    ) -> Query<'q, Postgres, PgArguments> {
        match self {
            Self::Behind(cursor) => query.bind(cursor.map_or(Uuid::nil(), |id| id.0)),
            Self::Among(calls) => query.bind(calls.iter().map(|call| call.0).collect::<Vec<_>>()),
        }
    }
}
