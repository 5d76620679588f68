//! Keys: the call that a tenant's idempotency key names.

use std::collections::HashMap;

use sqlx::{PgPool, Row as _};
use time::OffsetDateTime;

use super::{StoreError, read::answer, read_all};
use crate::ids::{CallId, Label};

/// The call that a key names.
#[derive(Debug, Clone)]
pub struct KeyRow {
    /// The call.
    pub call_id: CallId,
    /// The tool it was used with.
    pub tool: String,
    /// The version that took the call.
    pub tool_version: i32,
    /// Hash of the canonical arguments.
    pub args_hash: Vec<u8>,
    /// Hash of the arguments as they were sent.
    pub original_hash: Vec<u8>,
    /// Whether its call has been terminal for longer than the key lives.
    pub lapsed: bool,
    /// Whether a policy wants to know in which runs and sessions it was asked for.
    pub is_watched: bool,
    /// When the call was accepted; `None`: the call is in no table any more.
    pub accepted_at: Option<OffsetDateTime>,
}

/// The call that a tenant's key names. The key of a call in doubt never lapses, nor the key of a call that cannot be found.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn find_key(
    pool: &PgPool,
    tenant: &Label,
    key_hash: &[u8; 32],
) -> Result<Option<KeyRow>, StoreError> {
    let mut found = find_keys(pool, tenant, &[*key_hash]).await?;
    Ok(found.remove(key_hash))
}

/// The same for many keys at once; keys without a call are left out.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn find_keys(
    pool: &PgPool,
    tenant: &Label,
    key_hashes: &[[u8; 32]],
) -> Result<HashMap<[u8; 32], KeyRow>, StoreError> {
    let doing = "look keys up";
    let hashes: Vec<&[u8]> = key_hashes.iter().map(|hash| &hash[..]).collect();
    let reading = sqlx::query(
        "SELECT k.key_hash, k.call_id, k.tool, k.tool_version, k.args_hash, k.original_hash, \
                toolfleet.key_lapsed(k.call_id) AS lapsed, \
                coalesce(k.tool = ANY ((SELECT f.watched_tools FROM toolfleet.fleet f)::text[]), false) AS is_watched, \
                toolfleet.accepted_at(k.call_id) AS accepted_at \
         FROM toolfleet.idempotency_keys k \
         WHERE k.tenant = $1 AND k.key_hash = ANY($2)",
    )
    .bind(tenant.as_str())
    .bind(hashes)
    .fetch_all(pool);
    let rows = answer(doing, reading).await?;
    read_all(doing, &rows, |row| {
        let hash: Vec<u8> = row.try_get("key_hash")?;
        let hash = hash
            .try_into()
            .map_err(|_other_length| sqlx::Error::Decode("a key's hash has 32 bytes".into()))?;
        let key = KeyRow {
            call_id: CallId(row.try_get("call_id")?),
            tool: row.try_get("tool")?,
            tool_version: row.try_get("tool_version")?,
            args_hash: row.try_get("args_hash")?,
            original_hash: row.try_get("original_hash")?,
            lapsed: row.try_get("lapsed")?,
            is_watched: row.try_get("is_watched")?,
            accepted_at: row.try_get("accepted_at")?,
        };
        Ok((hash, key))
    })
}
