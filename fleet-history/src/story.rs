//! Everything about one call: its row, its attempts, its moves, as the views have them at one moment.

use std::collections::BTreeMap;

use fleet::{ids::CallId, store::StoreError};
use serde::Deserialize;
use serde_json::value::RawValue;
use sqlx::{PgPool, QueryBuilder};
use time::OffsetDateTime;

use crate::{attempts_max, row::Row};

/// The columns of a call, each as the JSON of its value.
pub type CallColumns = BTreeMap<String, Box<RawValue>>;

/// One call's story, with at most 100 attempts and 500 moves.
#[derive(Debug, sqlx::FromRow)]
pub struct Story {
    /// A row of `calls`.
    pub call: Row<CallColumns>,
    /// Rows of `attempts`, by number.
    pub attempts: Row<Vec<Attempt>>,
    /// Rows of `call_events`, by revision.
    pub events: Row<Vec<CallEvent>>,
    /// How many attempts its tool allows.
    pub attempts_max: Option<i32>,
}

/// A row of `attempts`.
#[derive(Debug, Clone, Deserialize)]
pub struct Attempt {
    /// From 1.
    pub number: i32,
    /// Its worker.
    pub worker: Option<String>,
    /// When it began.
    #[serde(with = "time::serde::rfc3339::option")]
    pub started_at: Option<OffsetDateTime>,
    /// When it ended; absent while it runs.
    #[serde(with = "time::serde::rfc3339::option")]
    pub finished_at: Option<OffsetDateTime>,
    /// How it ended.
    pub outcome: Option<String>,
    /// What is known of its effect.
    pub effect: Option<String>,
    /// Whether its outcome came after the attempt had been given up.
    pub late: bool,
    /// What went wrong.
    pub error: Option<AttemptError>,
    /// When its worker was proven gone.
    #[serde(default, with = "time::serde::rfc3339::option")]
    pub worker_fenced_at: Option<OffsetDateTime>,
    /// By whom.
    pub worker_fenced_by: Option<String>,
}

/// What went wrong in an attempt.
#[derive(Debug, Clone, Deserialize)]
pub struct AttemptError {
    /// The stable code.
    pub code: Option<String>,
}

/// A row of `call_events`: a move of the call, or a remark on it.
#[derive(Debug, Clone, Deserialize)]
pub struct CallEvent {
    /// The row's revision after it.
    pub revision: Option<i32>,
    /// When it happened.
    #[serde(with = "time::serde::rfc3339::option")]
    pub at: Option<OffsetDateTime>,
    /// The state before.
    pub from_state: Option<String>,
    /// The state after.
    pub to_state: String,
    /// The author.
    pub actor: String,
    /// The reason, as a word.
    pub reason: String,
    /// What the author added.
    pub details: Option<EventDetails>,
}

/// What the author of a move or remark added.
#[derive(Debug, Clone, Deserialize)]
pub struct EventDetails {
    /// Of a settlement: how the author knows.
    pub note: Option<String>,
    /// Of a cancellation: why.
    pub reason: Option<String>,
    /// In a postponement: what the worker lacked.
    pub why: Option<String>,
    /// Of a settlement: something of its attempts may have been alive.
    #[serde(default)]
    pub by_time_only: bool,
    /// Of an end with a kept answer: the call that had got it.
    pub from: Option<String>,
}

/// One call's story; `None` if there is no such call.
///
/// # Errors
///
/// The views cannot be read.
pub async fn story(pool: &PgPool, call: CallId) -> Result<Option<Story>, StoreError> {
    let mut statement = QueryBuilder::new(
        "SELECT row_to_json(c)::text AS call,
                (SELECT coalesce(json_agg(a ORDER BY a.number, a.late), '[]')::text
                 FROM (SELECT * FROM toolfleet.attempts WHERE call_id = $1 ORDER BY number LIMIT 100) a) AS attempts,
                (SELECT coalesce(json_agg(e ORDER BY e.revision), '[]')::text
                 FROM (SELECT * FROM toolfleet.call_events WHERE call_id = $1 ORDER BY revision LIMIT 500) e) AS events, ",
    );
    attempts_max::write(&mut statement, "c");
    statement.push(" AS attempts_max FROM toolfleet.calls c WHERE c.call_id = ");
    statement
        .push_bind(call.0)
        .build_query_as()
        .fetch_optional(pool)
        .await
        .map_err(|error| StoreError::from_sqlx("read a call", error))
}
