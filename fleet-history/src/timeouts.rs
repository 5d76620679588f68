//! Learned timeouts of one version of a tool.

use fleet::{ids::ToolName, store::StoreError};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use time::OffsetDateTime;

/// What is known of a version's timeout.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KnownTimeout {
    /// The last look at its run times; `None`: there was none.
    pub look: Option<TimeoutLook>,
    /// The latest changes, newest first, at most 20.
    pub changes: Vec<TimeoutChange>,
}

/// A row of `current_timeouts`.
#[derive(Debug, Clone, Serialize, Deserialize, sqlx::FromRow)]
pub struct TimeoutLook {
    /// The timeout that was learned; `None`: the initial one holds.
    pub timeout_ms: Option<i64>,
    /// When the run times were looked at last.
    #[serde(with = "time::serde::rfc3339")]
    pub looked_at: OffsetDateTime,
    /// Attempts that might have taken as long as the timeout.
    pub samples: i64,
    /// Those of them that took longer.
    pub longer: i64,
    /// What 95 of 100 took at most; 0 without samples.
    pub p95_ms: i64,
    /// What 99 of 100 took at most.
    pub p99_ms: i64,
}

/// A row of `learned_timeouts`.
#[derive(Debug, Clone, Serialize, Deserialize, sqlx::FromRow)]
pub struct TimeoutChange {
    /// When it was changed.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// The timeout.
    pub timeout_ms: i64,
    /// The one before.
    pub before_ms: i64,
    /// Why: `cut_off`, `slower`, `faster`, or a word of a newer release.
    pub why: String,
    /// As in [`TimeoutLook`].
    pub samples: i64,
    /// As in [`TimeoutLook`].
    pub longer: i64,
    /// As in [`TimeoutLook`].
    pub p95_ms: i64,
    /// As in [`TimeoutLook`].
    pub p99_ms: i64,
}

/// What is known of a version's timeout.
///
/// # Errors
///
/// The views cannot be read.
pub async fn known_timeout(
    pool: &PgPool,
    tool: &ToolName,
    version: i32,
) -> Result<KnownTimeout, StoreError> {
    let failed = |error| StoreError::from_sqlx("read a learned timeout", error);
    let look = sqlx::query_as(
        "SELECT timeout_ms, looked_at, samples, longer, p95_ms, p99_ms FROM toolfleet.current_timeouts \
         WHERE tool = $1 AND version = $2",
    );
    let look = look.bind(tool.as_str()).bind(version);
    let look = look.fetch_optional(pool).await.map_err(failed)?;
    let changes = sqlx::query_as(
        "SELECT at, timeout_ms, before_ms, why, samples, longer, p95_ms, p99_ms FROM toolfleet.learned_timeouts \
         WHERE tool = $1 AND version = $2 ORDER BY at DESC LIMIT 20",
    );
    let changes = changes.bind(tool.as_str()).bind(version);
    let changes = changes.fetch_all(pool).await.map_err(failed)?;
    Ok(KnownTimeout { look, changes })
}
