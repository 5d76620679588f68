//! The documented views (docs/history.md), read as any user of the history reads them: the only SQL outside of the ledger.
//!
//! Rows come as the JSON that Postgres makes of them, so what `--json` prints is the view itself.

mod facts;
mod list;

use fleet::{
    ids::{CallId, Label, ToolName},
    store::StoreError,
};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

pub(super) use self::{
    facts::facts,
    list::{Filter, calls, now},
};

/// Everything about a call: its row, its attempts and its moves, as the views have them at one moment.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Story {
    pub(super) call: String,
    pub(super) attempts: String,
    pub(super) events: String,
}

/// One call's story; none if there is no such call.
pub(super) async fn story(pool: &PgPool, call: CallId) -> Result<Option<Story>, StoreError> {
    sqlx::query_as(
        "SELECT row_to_json(c)::text AS call,
                (SELECT coalesce(json_agg(a ORDER BY a.number, a.late), '[]')::text
                 FROM (SELECT * FROM toolfleet.attempts WHERE call_id = $1 ORDER BY number LIMIT 100) a) AS attempts,
                (SELECT coalesce(json_agg(e ORDER BY e.revision), '[]')::text
                 FROM (SELECT * FROM toolfleet.call_events WHERE call_id = $1 ORDER BY revision LIMIT 500) e) AS events
         FROM toolfleet.calls c
         WHERE c.call_id = $1",
    )
    .bind(call.0)
    .fetch_optional(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("read a call", error))
}

/// Workers, the newest first: those that have not ended or may have left something behind, or all.
pub(super) async fn workers(pool: &PgPool, all: bool) -> Result<Vec<String>, StoreError> {
    sqlx::query_scalar(
        "SELECT row_to_json(listed)::text FROM (
             SELECT * FROM toolfleet.workers
             WHERE state NOT IN ('left', 'fenced') OR $1
             ORDER BY started_at DESC, worker_id
             LIMIT 1000) listed",
    )
    .bind(all)
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("list workers", error))
}

/// Tool versions by name and number: the current ones, or all.
pub(super) async fn tools(pool: &PgPool, all: bool) -> Result<Vec<String>, StoreError> {
    sqlx::query_scalar(
        "SELECT row_to_json(listed)::text FROM (
             SELECT tool, version, current, effect,
                    (SELECT json_object_keys(manifest->'executor') LIMIT 1) AS executor, queue,
                    coalesce(manifest->>'key',
                             CASE WHEN effect IN ('once', 'transaction') THEN 'required' ELSE 'optional' END) AS key,
                    concurrency, schema_hash, applied_at, applied_by, retired_at, retired_by, retired_note
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

/// A version of a tool.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct ToolVersion {
    pub(super) version: i32,
    pub(super) manifest: String,
    /// When it was retired, by whom and why; all of it or nothing.
    pub(super) retired_at: Option<OffsetDateTime>,
    pub(super) retired_by: Option<String>,
    pub(super) retired_note: Option<String>,
}

/// This version of a tool, the current one when none is named.
pub(super) async fn tool_version(
    pool: &PgPool,
    tool: &ToolName,
    version: Option<i32>,
) -> Result<Option<ToolVersion>, StoreError> {
    sqlx::query_as(
        "SELECT version, manifest::text AS manifest, retired_at, retired_by, retired_note FROM toolfleet.tools
         WHERE tool = $1 AND CASE WHEN $2::integer IS NULL THEN current ELSE version = $2 END",
    )
    .bind(tool.as_str())
    .bind(version)
    .fetch_optional(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("read a tool", error))
}

/// What is there of a tool.
#[derive(Debug, Default, Clone, PartialEq, Eq, sqlx::FromRow)]
pub(super) struct Versions {
    /// The newest version.
    pub(super) newest: Option<i32>,
    /// The manifest under the version that was asked for.
    pub(super) named: Option<String>,
    /// The newest manifest that the one who asks applied.
    pub(super) own: Option<String>,
}

/// What is there of a tool: the newest version, this version, and what `by` applied last.
pub(super) async fn versions(
    connection: &mut PgConnection,
    tool: &ToolName,
    version: i32,
    by: &str,
) -> Result<Versions, StoreError> {
    sqlx::query_as(
        "SELECT max(version) AS newest,
                (SELECT manifest::text FROM toolfleet.tools WHERE tool = $1 AND version = $2) AS named,
                (SELECT manifest::text FROM toolfleet.tools WHERE tool = $1 AND applied_by = $3
                 ORDER BY version DESC LIMIT 1) AS own
         FROM toolfleet.tools
         WHERE tool = $1",
    )
    .bind(tool.as_str())
    .bind(version)
    .bind(by)
    .fetch_one(connection)
    .await
    .map_err(|error| StoreError::from_sqlx("read the versions of a tool", error))
}

/// What a call asked for, as it was accepted.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Asked {
    pub(super) state: String,
    pub(super) effect: String,
    pub(super) tenant: String,
    pub(super) tool: String,
    /// The stored text, byte for byte.
    pub(super) args: String,
    pub(super) session: Option<String>,
    pub(super) run: Option<String>,
    pub(super) priority: String,
    pub(super) language: String,
    pub(super) meta: Option<String>,
    /// Whether its tool has sensitive fields, which the views do not show.
    pub(super) sensitive: bool,
}

/// What a call asked for; none if there is no such call.
pub(super) async fn asked(pool: &PgPool, call: CallId) -> Result<Option<Asked>, StoreError> {
    sqlx::query_as(
        "SELECT state, effect, tenant, tool, args::text AS args, session, run, priority, language, meta::text AS meta, sensitive
         FROM toolfleet.calls WHERE call_id = $1",
    )
    .bind(call.0)
    .fetch_optional(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("read a call", error))
}

/// The newest calls that are open or came within the last minute, each with its tool.
///
/// Only an open call has `not_before`, so of the history only its last minute is read, by its key.
pub(super) async fn current(
    pool: &PgPool,
    filter: &Filter,
) -> Result<Vec<(Uuid, String)>, StoreError> {
    sqlx::query_as(
        "SELECT call_id, tool FROM toolfleet.calls
         WHERE (not_before IS NOT NULL
                OR call_id > (lpad(to_hex((extract(epoch FROM now() - interval '1 minute') * 1000)::bigint), 12, '0')
                              || repeat('0', 20))::uuid)
           AND ($1::text IS NULL OR tool = $1)
           AND ($2::text IS NULL OR tenant = $2)
         ORDER BY call_id DESC
         LIMIT $3",
    )
    .bind(filter.tool.as_ref().map(ToolName::as_str))
    .bind(filter.tenant.as_ref().map(Label::as_str))
    .bind(filter.limit)
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("look for calls", error))
}

/// One event that was not known.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct News {
    pub(super) call_id: Uuid,
    pub(super) revision: i32,
    /// Whether nothing can follow it.
    pub(super) over: bool,
    /// The row of the view, as JSON.
    pub(super) event: String,
}

/// The events of these calls after these revisions, in the order of their times.
///
/// `OFFSET 0` makes Postgres look each call up by its key; joined at will, it reads the whole history instead.
pub(super) async fn news(pool: &PgPool, known: &[(Uuid, i32)]) -> Result<Vec<News>, StoreError> {
    let (calls, revisions): (Vec<Uuid>, Vec<i32>) = known.iter().copied().unzip();
    sqlx::query_as(
        "SELECT e.call_id, e.revision, row_to_json(e)::text AS event,
                e.to_state IN ('succeeded', 'failed', 'cancelled', 'expired') AS over
         FROM unnest($1::uuid[], $2::integer[]) AS known (call_id, revision)
         CROSS JOIN LATERAL (
             SELECT * FROM toolfleet.call_events e
             WHERE e.call_id = known.call_id AND e.revision > known.revision
             OFFSET 0) e
         ORDER BY e.at, e.call_id, e.revision",
    )
    .bind(calls)
    .bind(revisions)
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("read events", error))
}
