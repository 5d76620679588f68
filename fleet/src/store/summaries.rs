//! Summaries of the beginnings of conversations, by the hash of what they stand for. Each statement is its own.

use std::time::Duration;

use sqlx::{PgConnection, PgPool, Row as _};

use super::{StoreError, answer::listen};
use crate::ids::{Label, ToolName};

/// The longest summary, in bytes.
pub const TEXT_MAX: usize = 65_536;
/// For how long one is kept that nobody uses, where the history has no end, and at most, in days.
const DAYS_KEPT: u64 = 30;
/// The most rows that one statement deletes.
const ROWS_MAX: i32 = 5_000;

/// A summary that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptSummary {
    /// Which of the hashes it was found by.
    pub place: usize,
    /// What it says.
    pub text: String,
}

/// The summary of the last one of these hashes that has one, for the tool and tenant.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn longest(
    pool: &PgPool,
    tenant: &Label,
    tool: &ToolName,
    hashes: &[[u8; 32]],
) -> Result<Option<KeptSummary>, StoreError> {
    let doing = "look for a summary";
    let hashes: Vec<&[u8]> = hashes.iter().map(<[u8; 32]>::as_slice).collect();
    let looking = sqlx::query(
        "WITH found AS ( \
             SELECT a.place, s.tenant, s.tool, s.hash, s.text, s.used_at \
             FROM unnest($3::bytea[]) WITH ORDINALITY a (hash, place) \
             JOIN toolfleet.summaries s ON s.tenant = $1 AND s.tool = $2 AND s.hash = a.hash \
             ORDER BY a.place DESC LIMIT 1 \
         ), used AS ( \
             UPDATE toolfleet.summaries s SET used_at = now() FROM found f \
             WHERE s.tenant = f.tenant AND s.tool = f.tool AND s.hash = f.hash AND f.used_at < now() - interval '1 hour' \
         ) \
         SELECT place, text FROM found",
    )
    .bind(tenant.as_str())
    .bind(tool.as_str())
    .bind(hashes)
    .fetch_optional(pool);
    let row = listen(looking)
        .await
        .map_err(|error| StoreError::from_sqlx(doing, error))?;
    let Some(row) = row else { return Ok(None) };
    let read = || {
        let place: i64 = row.try_get("place")?;
        Ok(KeptSummary {
            place: usize::try_from(place - 1).unwrap_or_default(),
            text: row.try_get("text")?,
        })
    };
    read()
        .map(Some)
        .map_err(|error: sqlx::Error| StoreError::unreadable(doing, error))
}

/// Keeps a summary. One that another worker has kept meanwhile stays, and is what is returned: both go on from the same text.
///
/// # Errors
///
/// Postgres does not answer, or the text is empty or longer than [`TEXT_MAX`].
pub async fn keep(
    pool: &PgPool,
    tenant: &Label,
    tool: &ToolName,
    hash: &[u8; 32],
    text: &str,
) -> Result<String, StoreError> {
    let keeping = sqlx::query_scalar(
        "INSERT INTO toolfleet.summaries AS s (tenant, tool, hash, text) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (tenant, tool, hash) DO UPDATE SET used_at = greatest(s.used_at, excluded.used_at) \
         RETURNING s.text",
    )
    .bind(tenant.as_str())
    .bind(tool.as_str())
    .bind(hash.as_slice())
    .bind(text)
    .fetch_one(pool);
    listen(keeping)
        .await
        .map_err(|error| StoreError::from_sqlx("keep a summary", error))
}

/// Deletes a step of those that nobody has used for as long as the history is kept, 30 days at most; whether there may be more.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn drop_old(
    connection: &mut PgConnection,
    retention: Option<Duration>,
) -> Result<bool, StoreError> {
    let most = Duration::from_secs(DAYS_KEPT * 86_400);
    let kept = retention.map_or(most, |retention| retention.min(most));
    let dropped: i64 =
        sqlx::query_scalar("SELECT toolfleet.drop_summaries(now() - $1 * interval '1 second', $2)")
            .bind(i64::try_from(kept.as_secs()).unwrap_or(i64::MAX))
            .bind(ROWS_MAX)
            .fetch_one(connection)
            .await
            .map_err(|error| StoreError::from_sqlx("forget summaries", error))?;
    Ok(dropped >= i64::from(ROWS_MAX))
}
