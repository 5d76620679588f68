//! The interceptors of workers' programs: who has them, and what they did.

use fleet::store::StoreError;
use serde::Deserialize;
use sqlx::PgPool;
use time::OffsetDateTime;

use crate::row::Row;

/// A row of `interceptors`.
#[derive(Debug, Clone, Deserialize)]
pub struct ListedInterceptor {
    /// Its name.
    pub name: String,
    /// Its place; none where no live worker has it.
    pub order: Option<i32>,
    /// Whether no operator may switch it off.
    pub mandatory: Option<bool>,
    /// `open` or `closed`.
    pub fails: Option<String>,
    /// How many live workers have it.
    pub workers: i64,
    /// Whether these say different things of it.
    pub differ: bool,
    /// Live workers without it that pull a queue of one that has it, by name.
    pub lacking: Vec<String>,
    /// Calls that it was asked about.
    pub calls: i64,
    /// Calls that it refused.
    pub refused: i64,
    /// Calls that it let wait.
    pub waited: i64,
    /// Answers that it changed.
    pub changed: i64,
    /// Calls that it answered, which only a cache does.
    pub answered: i64,
    /// Hooks that failed.
    pub errors: i64,
    /// The time that its hooks took per call, in milliseconds.
    pub mean_ms: Option<f64>,
    /// The last error.
    pub last_error: Option<String>,
    /// When that was.
    #[serde(with = "time::serde::rfc3339::option")]
    pub last_error_at: Option<OffsetDateTime>,
    /// What operators have said of it.
    pub modes: Vec<ListedMode>,
}

/// What operators have said of an interceptor.
#[derive(Debug, Clone, Deserialize)]
pub struct ListedMode {
    /// `enforce`, `observe` or `off`.
    pub mode: String,
    /// In calls of this tool; none: of every tool.
    pub tool: Option<String>,
    /// In calls of this tenant; none: of every tenant.
    pub tenant: Option<String>,
}

/// All of them, by their place; at most 1,000.
///
/// # Errors
///
/// The view cannot be read.
pub async fn interceptors(pool: &PgPool) -> Result<Vec<Row<ListedInterceptor>>, StoreError> {
    sqlx::query_scalar(
        "SELECT row_to_json(listed)::text FROM (
             SELECT * FROM toolfleet.interceptors ORDER BY \"order\" NULLS LAST, name LIMIT 1000) listed",
    )
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("list interceptors", error))
}
