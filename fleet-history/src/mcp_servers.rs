//! The versions of MCP servers.

use fleet::{
    ids::{CallId, ServerName},
    store::StoreError,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use sqlx::PgPool;
use time::OffsetDateTime;

use crate::row::Row;

/// A row of `mcp_servers`, without the manifest.
#[derive(Debug, Clone, Deserialize)]
pub struct ListedMcpServer {
    /// Its name.
    pub server: String,
    /// The version.
    pub version: i32,
    /// How it is reached.
    pub transport: String,
    /// Whether what it says of effects counts.
    pub trust: String,
    /// What becomes of calls of changed tools.
    pub on_change: String,
    /// Whose workers reach it.
    pub queue: String,
    /// How many tools of the fleet are its, by their current versions.
    pub tools: i64,
    /// When it was applied.
    #[serde(with = "time::serde::rfc3339")]
    pub applied_at: OffsetDateTime,
    /// By whom.
    pub applied_by: String,
}

/// Versions of servers by name and number, at most 10,000: the current ones, or all.
///
/// # Errors
///
/// The view cannot be read.
pub async fn mcp_servers(
    pool: &PgPool,
    all: bool,
) -> Result<Vec<Row<ListedMcpServer>>, StoreError> {
    sqlx::query_scalar(
        "SELECT row_to_json(listed)::text FROM (
             SELECT server, version, current, transport, trust, on_change, queue,
                    (SELECT count(*) FROM toolfleet.tools t
                     WHERE t.current AND t.manifest->'executor'->'mcp'->>'server' = s.server) AS tools,
                    applied_at, applied_by
             FROM toolfleet.mcp_servers s
             WHERE current OR $1
             ORDER BY server, version
             LIMIT 10000) listed",
    )
    .bind(all)
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("list MCP servers", error))
}

/// A row of `mcp_servers` with the tools of the fleet that are its, each with the server's name for it and its pin.
#[derive(Debug, Clone, Deserialize)]
pub struct OfferingServer {
    /// Its name.
    pub server: String,
    /// The tools, JSON.
    pub tools: Box<RawValue>,
}

/// The servers in their current versions with the tools that are not retired, by name, at most 1,000.
///
/// # Errors
///
/// The view cannot be read.
pub async fn offering(pool: &PgPool) -> Result<Vec<Row<OfferingServer>>, StoreError> {
    sqlx::query_scalar(
        "WITH offered AS MATERIALIZED (
             SELECT tool, version, manifest->'executor'->'mcp' AS mcp FROM toolfleet.tools
             WHERE current AND retired_at IS NULL AND manifest->'executor'->'mcp' IS NOT NULL)
         SELECT row_to_json(listed)::text FROM (
             SELECT server, version, transport, trust, on_change, queue, applied_at, applied_by,
                    (SELECT coalesce(json_agg(json_build_object('tool', o.tool, 'version', o.version,
                                'named', o.mcp->>'tool', 'pin', o.mcp->>'pin') ORDER BY o.tool), '[]')
                     FROM offered o WHERE o.mcp->>'server' = s.server) AS tools
             FROM toolfleet.mcp_servers s
             WHERE current
             ORDER BY server
             LIMIT 1000) listed",
    )
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("list MCP servers with their tools", error))
}

/// The manifest of a server, JSON text: of this version, or of the current one.
///
/// # Errors
///
/// The view cannot be read.
pub async fn mcp_server(
    pool: &PgPool,
    server: &ServerName,
    version: Option<i32>,
) -> Result<Option<String>, StoreError> {
    sqlx::query_scalar(
        "SELECT manifest::text FROM toolfleet.mcp_servers
         WHERE server = $1 AND CASE WHEN $2::integer IS NULL THEN current ELSE version = $2 END",
    )
    .bind(server.as_str())
    .bind(version)
    .fetch_optional(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("read an MCP server", error))
}

/// The current manifests of the tools of a server, JSON text, by name: of those that are retired, or of the others.
///
/// # Errors
///
/// The view cannot be read.
pub async fn tools_of(
    pool: &PgPool,
    server: &ServerName,
    retired: bool,
) -> Result<Vec<String>, StoreError> {
    sqlx::query_scalar(
        "SELECT manifest::text FROM toolfleet.tools
         WHERE current AND manifest->'executor'->'mcp'->>'server' = $1 AND (retired_at IS NOT NULL) = $2
         ORDER BY tool LIMIT 10000",
    )
    .bind(server.as_str())
    .bind(retired)
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("read the tools of an MCP server", error))
}

/// What the call of a look found, JSON text; nothing where it has no result.
///
/// # Errors
///
/// The view cannot be read.
pub async fn found_by(pool: &PgPool, look: CallId) -> Result<Option<String>, StoreError> {
    let found: Option<Option<String>> =
        sqlx::query_scalar("SELECT result::text FROM toolfleet.calls WHERE call_id = $1")
            .bind(look.0)
            .fetch_optional(pool)
            .await
            .map_err(|error| StoreError::from_sqlx("read what a look found", error))?;
    Ok(found.flatten())
}

/// What the last attempt of a look came to, where it failed.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct LookFailure {
    /// The code of its failure.
    pub code: String,
    /// Its message; of an attempt that ended the call that for its caller, with what to do now.
    pub message: String,
}

/// What the last attempt of a look came to; nothing where none has failed.
///
/// # Errors
///
/// The view cannot be read.
pub async fn look_failure(pool: &PgPool, look: CallId) -> Result<Option<LookFailure>, StoreError> {
    sqlx::query_as(
        "SELECT error->>'code' AS code, error->>'message' AS message FROM toolfleet.attempts
         WHERE call_id = $1 AND error->>'code' IS NOT NULL AND error->>'message' IS NOT NULL
         ORDER BY number DESC LIMIT 1",
    )
    .bind(look.0)
    .fetch_optional(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("read why a look failed", error))
}
