//! The tokens of clients over HTTP: what each allows, who made it, and whether it holds. Without hashes, which only gateways read.

use fleet::store::StoreError;
use serde::Deserialize;
use sqlx::PgPool;
use time::OffsetDateTime;

use crate::row::Row;

/// A row of `tokens`.
#[derive(Debug, Clone, Deserialize)]
pub struct ListedToken {
    /// Its id, the second part of its text.
    pub token_id: String,
    /// Whose it is.
    pub name: String,
    /// Its tenant; `*`: every tenant.
    pub tenant: String,
    /// What it is good for; a newer release may have other words.
    pub scopes: Vec<String>,
    /// The tools that it may call.
    pub tools: Vec<String>,
    /// `live`, `expired` or `revoked`.
    pub state: String,
    /// Why it was made.
    pub note: String,
    /// Who made it.
    pub created_by: String,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it is over by itself.
    #[serde(with = "time::serde::rfc3339::option")]
    pub expires_at: Option<OffsetDateTime>,
    /// When it was revoked.
    #[serde(with = "time::serde::rfc3339::option")]
    pub revoked_at: Option<OffsetDateTime>,
    /// By whom.
    pub revoked_by: Option<String>,
    /// Why.
    pub revoke_note: Option<String>,
}

/// The tokens that hold, or all that ever were, the newest first; at most 1,000.
///
/// # Errors
///
/// The view cannot be read.
pub async fn tokens(pool: &PgPool, all: bool) -> Result<Vec<Row<ListedToken>>, StoreError> {
    sqlx::query_scalar(
        "SELECT row_to_json(listed)::text FROM (
             SELECT * FROM toolfleet.tokens WHERE $1 OR state = 'live' ORDER BY created_at DESC, token_id LIMIT 1000) listed",
    )
    .bind(all)
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("list tokens", error))
}
