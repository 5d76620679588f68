//! The controls that hold now, every change of one that was ever made, and what keeps calls from running.

use fleet::store::StoreError;
use serde::Deserialize;
use serde_json::Value;
use sqlx::PgPool;
use time::OffsetDateTime;

use crate::row::Row;

/// What a control is about, as rows of both views have it.
#[derive(Debug, Clone, Deserialize)]
pub struct ListedScope {
    /// Its kind.
    pub kind: String,
    /// A tool.
    pub tool: Option<String>,
    /// A queue.
    pub queue: Option<String>,
    /// A tenant.
    pub tenant: Option<String>,
    /// JSON pointer into the arguments.
    pub pointer: Option<String>,
    /// The value there.
    pub value: Option<Value>,
    /// What it is about besides calls.
    pub subject: Option<String>,
    /// What it does there.
    pub setting: Value,
}

/// A row of `controls`.
#[derive(Debug, Clone, Deserialize)]
pub struct ListedControl {
    /// Its id.
    pub control_id: i64,
    /// What it is about.
    #[serde(flatten)]
    pub scope: ListedScope,
    /// Who set it.
    pub actor: String,
    /// Why.
    pub note: String,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub set_at: OffsetDateTime,
    /// When it is over by itself.
    #[serde(with = "time::serde::rfc3339::option")]
    pub expires_at: Option<OffsetDateTime>,
    /// Calls that wait for it; at most 100,000 are counted. None where no call waits for its kind, and in the answer to a change.
    #[serde(default)]
    pub waiting: Option<i64>,
}

/// A row of `control_log`.
#[derive(Debug, Clone, Deserialize)]
pub struct ControlChange {
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// `set`, `changed`, `unset`, `expired`, or `purged` where kept answers were taken away.
    pub change: String,
    /// Of which control.
    pub control_id: i64,
    /// What it was about.
    #[serde(flatten)]
    pub scope: ListedScope,
    /// Who did it.
    pub actor: String,
    /// Why.
    pub note: String,
}

/// The controls that hold, in the order in which they were set; at most 1,000, for there are no more.
///
/// # Errors
///
/// The view cannot be read.
pub async fn controls(pool: &PgPool) -> Result<Vec<Row<ListedControl>>, StoreError> {
    sqlx::query_scalar(
        "SELECT row_to_json(listed)::text FROM (
             SELECT * FROM toolfleet.controls ORDER BY control_id LIMIT 1000) listed",
    )
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("list controls", error))
}

/// The name of the limit to which a tool's newest version keeps; none where it has no rate limit.
///
/// # Errors
///
/// The view cannot be read.
pub async fn limit_of(pool: &PgPool, tool: &str) -> Result<Option<String>, StoreError> {
    sqlx::query_scalar("SELECT name FROM toolfleet.limits WHERE $1 = ANY (tools) LIMIT 1")
        .bind(tool)
        .fetch_optional(pool)
        .await
        .map_err(|error| StoreError::from_sqlx("read the limits", error))
}

/// Whether there is a limit with this name, and whether tools share it; `None`: there is none.
///
/// # Errors
///
/// The view cannot be read.
pub async fn is_shared(pool: &PgPool, limit: &str) -> Result<Option<bool>, StoreError> {
    sqlx::query_scalar("SELECT bool_or(shared_by = 'share') FROM toolfleet.limits WHERE name = $1")
        .bind(limit)
        .fetch_one(pool)
        .await
        .map_err(|error| StoreError::from_sqlx("read the limits", error))
}

/// What keeps calls from running just now without anybody's having said it, or longer than anybody may have meant it.
#[derive(Debug, Clone, Deserialize)]
pub struct Standstill {
    /// Which kind.
    #[serde(flatten)]
    pub cause: StandstillCause,
    /// How many calls wait for it; at most 100,000 are counted.
    pub waiting: Option<i64>,
}

/// Why calls wait.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum StandstillCause {
    /// A limit that tools share has no numbers, so none of them starts.
    NoNumbers {
        /// The limit.
        name: String,
    },
    /// A remote has closed a limit.
    Closed {
        /// The limit.
        name: String,
        /// Of which tenant, where each has its own.
        tenant: Option<String>,
        /// Until when.
        #[serde(with = "time::serde::rfc3339")]
        until: OffsetDateTime,
    },
    /// A breaker is open.
    Breaker {
        /// Of this tool.
        name: String,
        /// And this target.
        target: String,
    },
    /// A pause lets calls wait.
    Pause {
        /// Which.
        control_id: i64,
        /// Since when.
        #[serde(with = "time::serde::rfc3339")]
        since: OffsetDateTime,
    },
}

/// What keeps calls from running and an operator should look at; at most 100 of each kind.
///
/// Limits without numbers and open breakers for which calls wait, limits that a remote has closed for more than a minute from now,
/// and pauses that are an hour old and hold calls.
///
/// # Errors
///
/// A view cannot be read.
pub async fn standstills(pool: &PgPool) -> Result<Vec<Row<Standstill>>, StoreError> {
    sqlx::query_scalar(
        "SELECT row_to_json(n)::text FROM (
             SELECT 'no_numbers' AS cause, l.name, w.waiting
             FROM toolfleet.limits l
             CROSS JOIN LATERAL (
                 SELECT count(*) AS waiting FROM (
                     SELECT FROM toolfleet.calls c WHERE c.held AND c.held_why = 'limit' AND c.tool = ANY (l.tools) LIMIT 100000) c) w
             WHERE l.calls IS NULL AND w.waiting > 0 LIMIT 100) n
         UNION ALL
         SELECT row_to_json(c)::text FROM (
             SELECT 'closed' AS cause, l.name, l.tenant, l.closed_until AS until FROM toolfleet.limits l
             WHERE l.closed_until > clock_timestamp() + interval '1 minute' ORDER BY l.closed_until DESC LIMIT 100) c
         UNION ALL
         SELECT row_to_json(b)::text FROM (
             SELECT 'breaker' AS cause, b.tool AS name, b.target, b.waiting FROM toolfleet.breakers b
             WHERE coalesce(b.forced, b.state) <> 'closed' AND b.waiting > 0 LIMIT 100) b
         UNION ALL
         SELECT row_to_json(p)::text FROM (
             SELECT 'pause' AS cause, p.control_id, p.set_at AS since, p.waiting FROM toolfleet.controls p
             WHERE p.kind = 'pause' AND p.setting #>> '{}' = 'wait' AND p.set_at < clock_timestamp() - interval '1 hour'
               AND p.waiting > 0 ORDER BY p.set_at LIMIT 100) p",
    )
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("look for what keeps calls from running", error))
}

/// The newest changes, the newest first.
///
/// # Errors
///
/// The view cannot be read.
pub async fn control_log(pool: &PgPool, limit: i64) -> Result<Vec<Row<ControlChange>>, StoreError> {
    sqlx::query_scalar(
        "SELECT row_to_json(listed)::text FROM (
             SELECT * FROM toolfleet.control_log ORDER BY rev DESC LIMIT $1) listed",
    )
    .bind(limit)
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("read the log of controls", error))
}
