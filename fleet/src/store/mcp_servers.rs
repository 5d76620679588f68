//! Versions of MCP servers: immutable rows, of which the newest of each server counts.

use sha2::{Digest, Sha256};
use sqlx::{PgConnection, PgPool};

use super::{StoreError, answer::listen, tools::Applied};
use crate::{canonical, ids::ServerName, manifest::McpServer};

/// The most servers of a fleet that its processes know.
const SERVERS_MAX: i64 = 1_000;

/// Applies one manifest of a server: [`Applied::Created`], [`Applied::Unchanged`] or [`Applied::Conflict`].
///
/// A version that is there is only read. One autocommit statement writes; guard: the version is new. It locks the fleet's row, so that
/// a process that has read a number has read all that was applied before it.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn apply(
    connection: &mut PgConnection,
    server: &McpServer,
    by: &str,
) -> Result<Applied, StoreError> {
    let doing = "apply an MCP server";
    let value =
        serde_json::to_value(server).map_err(|error| StoreError::unreadable(doing, error))?;
    let text = canonical::to_text(&value);
    let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    let there = |stored: Vec<u8>| {
        if stored == hash {
            Applied::Unchanged
        } else {
            Applied::Conflict
        }
    };
    if let Some(stored) = stored(&mut *connection, server).await? {
        return Ok(there(stored));
    }
    let created = sqlx::query(
        "WITH moved AS ( \
             UPDATE toolfleet.fleet SET mcp_rev = mcp_rev + 1 \
             WHERE NOT EXISTS (SELECT FROM toolfleet.mcp_server_versions WHERE server = $1 AND version = $2) \
             RETURNING mcp_rev) \
         INSERT INTO toolfleet.mcp_server_versions (server, version, manifest, manifest_hash, applied_by) \
         SELECT $1, $2, $3::json, $4, $5 FROM moved \
         ON CONFLICT (server, version) DO NOTHING",
    )
    .bind(server.name.as_str())
    .bind(server.version)
    .bind(&text)
    .bind(&hash[..])
    .bind(by)
    .execute(&mut *connection)
    .await
    .map_err(|error| StoreError::from_sqlx(doing, error))?;
    if created.rows_affected() == 1 {
        return Ok(Applied::Created);
    }
    let stored = stored(connection, server).await?;
    Ok(stored.map_or(Applied::Conflict, there))
}

/// The hash of the version that is there.
async fn stored(
    connection: &mut PgConnection,
    server: &McpServer,
) -> Result<Option<Vec<u8>>, StoreError> {
    let sql = "SELECT manifest_hash FROM toolfleet.mcp_server_versions WHERE server = $1 AND version = $2";
    sqlx::query_scalar(sql)
        .bind(server.name.as_str())
        .bind(server.version)
        .fetch_optional(connection)
        .await
        .map_err(|error| StoreError::from_sqlx("apply an MCP server", error))
}

/// Which of these servers were never applied, in their order.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn unknown(
    connection: &mut PgConnection,
    servers: &[&ServerName],
) -> Result<Vec<ServerName>, StoreError> {
    if servers.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = servers.iter().map(|server| server.as_str()).collect();
    let known: Vec<String> = sqlx::query_scalar(
        "SELECT DISTINCT server FROM toolfleet.mcp_server_versions WHERE server = ANY ($1)",
    )
    .bind(&names)
    .fetch_all(connection)
    .await
    .map_err(|error| StoreError::from_sqlx("look for MCP servers", error))?;
    let is_unknown = |server: &&&ServerName| !known.iter().any(|known| known == server.as_str());
    Ok(servers
        .iter()
        .filter(is_unknown)
        .map(|server| (*server).clone())
        .collect())
}

/// A tool that is of another queue than its server.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct ToolElsewhere {
    /// The tool.
    pub tool: String,
    /// Whose workers run it.
    pub queue: String,
    /// Its server.
    pub server: String,
    /// Whose workers look at that.
    pub server_queue: String,
}

/// The tools of these servers that are of another queue than their server, by name, at most 1,000: the newest version of each that is not
/// retired, beside the newest of the server. Only reads.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn elsewhere(
    connection: &mut PgConnection,
    servers: &[&ServerName],
) -> Result<Vec<ToolElsewhere>, StoreError> {
    if servers.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = servers.iter().map(|server| server.as_str()).collect();
    sqlx::query_as(
        "SELECT t.tool, t.queue, s.server, s.queue AS server_queue FROM ( \
             SELECT DISTINCT ON (server) server, coalesce(manifest->>'queue', 'default') AS queue \
             FROM toolfleet.mcp_server_versions WHERE server = ANY ($1) ORDER BY server, version DESC) s \
         JOIN ( \
             SELECT DISTINCT ON (tool) tool, version, coalesce(manifest->>'queue', 'default') AS queue, \
                    manifest->'executor'->'mcp'->>'server' AS server \
             FROM toolfleet.tool_versions ORDER BY tool, version DESC) t ON t.server = s.server AND t.queue <> s.queue \
         WHERE NOT EXISTS (SELECT FROM toolfleet.tool_retirements r WHERE r.tool = t.tool AND r.version >= t.version) \
         ORDER BY t.tool LIMIT 1000",
    )
    .bind(&names)
    .fetch_all(connection)
    .await
    .map_err(|error| StoreError::from_sqlx("look for tools of other queues", error))
}

/// The newest version of each server: its manifest, JSON text.
///
/// # Errors
///
/// Postgres does not answer, or this role may not read it.
pub async fn newest(pool: &PgPool) -> Result<Vec<String>, StoreError> {
    listen(
        sqlx::query_scalar(
            "SELECT DISTINCT ON (server) manifest::text FROM toolfleet.mcp_server_versions \
             ORDER BY server, version DESC LIMIT $1",
        )
        .bind(SERVERS_MAX)
        .fetch_all(pool),
    )
    .await
    .map_err(|error| StoreError::from_sqlx("read MCP servers", error))
}
