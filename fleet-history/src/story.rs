//! Everything about one call: its row, its attempts, its moves, as the views have them at one moment.

use std::collections::BTreeMap;

use fleet::{ids::CallId, store::StoreError};
use serde::Deserialize;
use serde_json::value::RawValue;
use sqlx::{PgPool, Postgres, QueryBuilder};
use time::OffsetDateTime;

use crate::{attempts_max, row::Row};

/// The columns of a call, each as the JSON of its value.
pub type CallColumns = BTreeMap<String, Box<RawValue>>;

/// How many attempts and how many moves a story has at most: so many of the first, and so many of the last.
pub const ATTEMPTS: (i64, i64) = (20, 80);
/// As [`ATTEMPTS`].
pub const EVENTS: (i64, i64) = (100, 400);

/// One call's story, with at most [`ATTEMPTS`] and [`EVENTS`].
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
    /// How many rows `attempts` has of it.
    pub attempts_in_all: i64,
    /// How many rows `call_events` has of it.
    pub events_in_all: i64,
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
        "SELECT row_to_json(c)::text AS call, a.told AS attempts, a.in_all AS attempts_in_all, e.told AS events, e.in_all AS events_in_all, ",
    );
    attempts_max::write(&mut statement, "c");
    statement.push(" AS attempts_max FROM toolfleet.calls c");
    for (name, view, order, shown) in [
        ("a", "attempts", "number, late", ATTEMPTS),
        ("e", "call_events", "revision", EVENTS),
    ] {
        both_ends(&mut statement, call, (name, view, order), shown);
    }
    statement
        .push(" WHERE c.call_id = ")
        .push_bind(call.0)
        .build_query_as()
        .fetch_optional(pool)
        .await
        .map_err(|error| StoreError::from_sqlx("read a call", error))
}

/// Appends the first and the last rows that a view has of the call in this order, and how many it has.
fn both_ends(
    statement: &mut QueryBuilder<Postgres>,
    call: CallId,
    (name, view, order): (&str, &str, &str),
    (first, last): (i64, i64),
) {
    statement
        .push(format_args!(
            " CROSS JOIN LATERAL (
                 SELECT coalesce(json_agg(of_all.found ORDER BY place) FILTER (WHERE place <= {first} OR place > of_all.in_all - {last}), '[]')::text
                            AS told,
                        count(*) AS in_all
                 FROM (SELECT found, row_number() OVER (ORDER BY {order}) AS place, count(*) OVER () AS in_all
                       FROM toolfleet.{view} found WHERE call_id = "
        ))
        .push_bind(call.0)
        .push(format_args!(") of_all) {name}"));
}
