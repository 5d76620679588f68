//! The versions of tools.

use fleet::{ids::ToolName, store::StoreError};
use serde::Deserialize;
use serde_json::value::RawValue;
use sqlx::{PgExecutor, PgPool};
use time::OffsetDateTime;

use crate::row::Row;

/// A row of `tools`, without the manifest.
#[derive(Debug, Clone, Deserialize)]
pub struct ListedTool {
    /// Its name.
    pub tool: String,
    /// The version.
    pub version: i32,
    /// Its effect class.
    pub effect: String,
    /// The kind of its executor.
    pub executor: String,
    /// Its queue.
    pub queue: String,
    /// Whether its calls need keys.
    pub key: String,
    /// How many of its attempts run at a time over the fleet.
    pub concurrency: Option<i32>,
    /// How many of its attempts start in a time, as its manifest says it.
    #[serde(default)]
    pub rate_limit: Option<serde_json::Value>,
    /// When it was applied.
    #[serde(with = "time::serde::rfc3339")]
    pub applied_at: OffsetDateTime,
    /// By whom.
    pub applied_by: String,
    /// When it was retired.
    #[serde(with = "time::serde::rfc3339::option")]
    pub retired_at: Option<OffsetDateTime>,
}

/// Tool versions by name and number, at most 10,000: the current ones, or all.
///
/// # Errors
///
/// The view cannot be read.
pub async fn tools(pool: &PgPool, all: bool) -> Result<Vec<Row<ListedTool>>, StoreError> {
    sqlx::query_scalar(
        "SELECT row_to_json(listed)::text FROM (
             SELECT tool, version, current, effect,
                    (SELECT json_object_keys(manifest->'executor') LIMIT 1) AS executor, queue,
                    coalesce(manifest->>'key',
                             CASE WHEN effect IN ('once', 'transaction') THEN 'required' ELSE 'optional' END) AS key,
                    concurrency, manifest->'rate_limit' AS rate_limit, schema_hash, applied_at, applied_by, retired_at, retired_by, retired_note
             FROM toolfleet.tools
             WHERE current OR $1
             ORDER BY tool, version
             LIMIT 10000) listed",
    )
    .bind(all)
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("list tools", error))
}

/// How calls of a tool are shown to who follows them.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct PresentedTool {
    /// Its name.
    pub tool: String,
    /// As what kind of item.
    pub presents: Option<String>,
    /// Whether at all.
    pub visibility: Option<String>,
    /// Whether its answer is the assistant's.
    pub is_final: bool,
    /// Whether callers' programs run it.
    pub is_clients: bool,
    /// The language of what it says.
    pub language: Option<String>,
    /// Whether some of its arguments or of its answer are not to be seen.
    pub is_sensitive: bool,
}

/// How calls of these tools are shown, by their current versions; nothing of those that do not exist.
///
/// # Errors
///
/// The view cannot be read.
pub async fn presented(pool: &PgPool, names: &[String]) -> Result<Vec<PresentedTool>, StoreError> {
    sqlx::query_as(
        "SELECT tool, coalesce(manifest->'executor'->'client'->>'presents', manifest->>'presents') AS presents,
                manifest->>'visibility' AS visibility, coalesce(manifest->>'final', 'false') = 'true' AS is_final,
                manifest->'executor'->'client' IS NOT NULL AS is_clients, manifest->>'language' AS language,
                manifest->'sensitive' IS NOT NULL AS is_sensitive
         FROM toolfleet.tools
         WHERE current AND tool = ANY($1)",
    )
    .bind(names)
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("look for how tools are shown", error))
}

/// The versions of these tools whose calls tell their session nothing.
///
/// # Errors
///
/// The view cannot be read.
pub async fn hidden(pool: &PgPool, names: &[&str]) -> Result<Vec<(String, i32)>, StoreError> {
    sqlx::query_as(
        "SELECT tool, version FROM toolfleet.tools
         WHERE tool = ANY($1) AND manifest->>'visibility' = 'hidden'",
    )
    .bind(names)
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("look for hidden tools", error))
}

/// A tool whose newest version callers' programs run themselves.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct ClientTool {
    /// Its name.
    pub tool: String,
    /// Its queue, which nobody pulls for it.
    pub queue: String,
}

/// The tools that callers' programs run, at most 10,000.
///
/// # Errors
///
/// The view cannot be read.
pub async fn client_tools(pool: &PgPool) -> Result<Vec<ClientTool>, StoreError> {
    sqlx::query_as(
        "SELECT tool, queue FROM toolfleet.tools
         WHERE current AND manifest->'executor'->'client' IS NOT NULL
         ORDER BY tool LIMIT 10000",
    )
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("list the tools of callers' programs", error))
}

/// A version of a tool.
#[derive(Debug, sqlx::FromRow)]
pub struct ToolVersion {
    /// Its number.
    pub version: i32,
    /// The manifest, as it was applied.
    pub manifest: String,
    /// When it was retired; with [`ToolVersion::retired_by`] and [`ToolVersion::retired_note`] or not at all.
    pub retired_at: Option<OffsetDateTime>,
    /// By whom.
    pub retired_by: Option<String>,
    /// Why.
    pub retired_note: Option<String>,
}

/// A row of `tools`, as far as pages of versions are asked for by it.
#[derive(Debug, Clone, Deserialize)]
pub struct ListedVersion {
    /// Its number.
    pub version: i32,
    /// Whether it is the newest.
    pub current: bool,
    /// As it was applied.
    pub manifest: Box<RawValue>,
}

/// The versions of a tool before this one, or all, the newest first, at most so many.
///
/// # Errors
///
/// The view cannot be read.
pub async fn versions(
    pool: &PgPool,
    tool: &ToolName,
    before: Option<i32>,
    limit: i64,
) -> Result<Vec<Row<ListedVersion>>, StoreError> {
    sqlx::query_scalar(
        "SELECT row_to_json(listed)::text FROM (
             SELECT version, current, effect, queue, schema_hash, applied_at, applied_by, retired_at, retired_by, retired_note, manifest
             FROM toolfleet.tools
             WHERE tool = $1 AND ($2::integer IS NULL OR version < $2)
             ORDER BY version DESC
             LIMIT $3) listed",
    )
    .bind(tool.as_str())
    .bind(before)
    .bind(limit)
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("list the versions of a tool", error))
}

/// This version of a tool, the current one when none is named.
///
/// # Errors
///
/// The view cannot be read.
pub async fn tool_version(
    postgres: impl PgExecutor<'_>,
    tool: &ToolName,
    version: Option<i32>,
) -> Result<Option<ToolVersion>, StoreError> {
    sqlx::query_as(
        "SELECT version, manifest::text AS manifest, retired_at, retired_by, retired_note FROM toolfleet.tools
         WHERE tool = $1 AND CASE WHEN $2::integer IS NULL THEN current ELSE version = $2 END",
    )
    .bind(tool.as_str())
    .bind(version)
    .fetch_optional(postgres)
    .await
    .map_err(|error| StoreError::from_sqlx("read a tool", error))
}

/// Who applied the current version of a tool of an MCP server, if it has replaced this pin.
///
/// That is so where an earlier version has the pin and the current one has another.
///
/// # Errors
///
/// The view cannot be read.
pub async fn repinned_by(
    postgres: impl PgExecutor<'_>,
    tool: &ToolName,
    pin: &str,
) -> Result<Option<String>, StoreError> {
    sqlx::query_scalar(
        "SELECT newest.applied_by FROM toolfleet.tools newest
         WHERE newest.tool = $1 AND newest.current AND newest.manifest->'executor'->'mcp'->>'pin' <> $2
           AND EXISTS (SELECT FROM toolfleet.tools earlier WHERE earlier.tool = $1 AND earlier.version < newest.version
                           AND earlier.manifest->'executor'->'mcp'->>'pin' = $2)",
    )
    .bind(tool.as_str())
    .bind(pin)
    .fetch_optional(postgres)
    .await
    .map_err(|error| StoreError::from_sqlx("look for an older pin", error))
}

/// Whether a version of this tool was ever applied.
///
/// # Errors
///
/// The view cannot be read.
pub async fn is_known(pool: &PgPool, tool: &ToolName) -> Result<bool, StoreError> {
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM toolfleet.tools WHERE tool = $1)")
        .bind(tool.as_str())
        .fetch_one(pool)
        .await
        .map_err(|error| StoreError::from_sqlx("look for a tool", error))
}
