//! The documented views (docs/history.md), read as any user of the history reads them: the only SQL outside of the ledger.
//!
//! Rows come as the JSON that Postgres makes of them, so what `--json` prints is the view itself.

use fleet::{
    call::State,
    ids::{CallId, Label, ToolName},
    store::StoreError,
};
use sqlx::{PgConnection, PgPool};

/// Which calls are wanted; what is absent does not matter.
#[derive(Debug, Default)]
pub(super) struct Filter {
    pub(super) tool: Option<ToolName>,
    pub(super) state: Option<State>,
    pub(super) tenant: Option<Label>,
    pub(super) limit: i64,
}

/// The newest calls first, without the bodies, which may be large.
pub(super) async fn calls(pool: &PgPool, filter: &Filter) -> Result<Vec<String>, StoreError> {
    sqlx::query_scalar(
        "SELECT row_to_json(listed)::text FROM (
             SELECT call_id, tenant, tool, tool_version, effect, state, outcome, source, held, attempts,
                    error->>'code' AS error_code, session, run, priority, not_before, deadline_at,
                    accepted_at, started_at, finished_at, worker
             FROM toolfleet.calls
             WHERE ($1::text IS NULL OR tool = $1)
               AND ($2::text IS NULL OR state = $2)
               AND ($3::text IS NULL OR tenant = $3)
             ORDER BY call_id DESC
             LIMIT $4) listed",
    )
    .bind(filter.tool.as_ref().map(ToolName::as_str))
    .bind(filter.state.map(State::as_str))
    .bind(filter.tenant.as_ref().map(Label::as_str))
    .bind(filter.limit)
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("list calls", error))
}

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
                    schema_hash, applied_at, applied_by
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

/// The manifest of a version of a tool, the current one when none is named.
pub(super) async fn manifest(
    pool: &PgPool,
    tool: &ToolName,
    version: Option<i32>,
) -> Result<Option<String>, StoreError> {
    sqlx::query_scalar(
        "SELECT manifest::text FROM toolfleet.tools
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
