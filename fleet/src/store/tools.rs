//! Tool versions: immutable rows, numbered in the order in which they were applied, so that every process can read what is new.
//! Retirements (`retire.rs`) are numbered with them.

use sha2::{Digest, Sha256};
use sqlx::{PgConnection, PgExecutor, PgPool};

use super::{StoreError, answer::listen};
use crate::{
    canonical,
    ids::{QueueName, ToolName},
    manifest::{Manifest, UnfitTool},
};

/// What the ledger's trigger says it keeps.
const LIMIT_NAME: &str = "tool_versions_limit_name";
const FORCED_BREAKER: &str = "tool_versions_forced_breaker";

/// The result of applying a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// It is a new version.
    Created,
    /// The same version with the same content exists.
    Unchanged,
    /// The same version exists with other content: refused.
    Conflict,
    /// The tool of its probe does not exist, is no `read`, is run by callers' programs, or has an approval: refused.
    ProbeUnfit,
    /// The tool of its preview cannot be asked: refused.
    PreviewUnfit(UnfitTool),
    /// Its limit would have the name of another tool's: that of a tool, and one that tools share: refused.
    LimitNamedTwice,
    /// An operator has forced the tool's breaker open, and it has none: refused.
    BreakerForced,
    /// The tool of its fallback cannot stand in for it: refused.
    FallbackUnfit(UnfitTool),
}

/// Applies one manifest; a tool with a limit gets its places with it.
///
/// A version that is there is only read, so a role that may not apply finds what was applied before. One autocommit statement
/// writes; guards: the version is new, the tool of its probe is a `read`; and by triggers: the name of its limit is no other one's,
/// and it does not take away a breaker that is forced open. It locks the fleet's row, so versions are numbered in the order of
/// their commits. The places of an earlier, larger limit stay.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn apply(
    connection: &mut PgConnection,
    manifest: &Manifest,
    by: &str,
) -> Result<Applied, StoreError> {
    let doing = "apply a tool";
    let value =
        serde_json::to_value(manifest).map_err(|error| StoreError::unreadable(doing, error))?;
    let text = canonical::to_text(&value);
    let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    let there = |stored: Vec<u8>| {
        if stored == hash {
            Applied::Unchanged
        } else {
            Applied::Conflict
        }
    };
    if let Some(stored) = stored(&mut *connection, manifest).await? {
        return Ok(there(stored));
    }
    let other = manifest.fallback.as_ref();
    if let Some(other) = other.and_then(|fallback| fallback.tool.as_ref())
        && let Some(unfit) = unfit(&mut *connection, &other.name, &manifest.queue).await?
    {
        return Ok(Applied::FallbackUnfit(unfit));
    }
    if let Some(preview) = manifest.preview() {
        let asked = newest(&mut *connection, &preview.tool).await?;
        let unfit = asked.map_or(Some(UnfitTool::Missing), |(asked, _)| {
            asked.unfit_to_be_asked()
        });
        if let Some(unfit) = unfit {
            return Ok(Applied::PreviewUnfit(unfit));
        }
    }
    let created = sqlx::query(
        "WITH ordered AS ( \
             UPDATE toolfleet.fleet SET registry_rev = registry_rev + 1 \
             WHERE NOT EXISTS (SELECT FROM toolfleet.tool_versions WHERE tool = $1 AND version = $2) \
               AND ($7::text IS NULL OR ( \
                   SELECT manifest->>'effect' = 'read' AND manifest->'executor'->'client' IS NULL AND manifest->'approval' IS NULL \
                          AND policy IS NULL \
                   FROM toolfleet.tool_versions WHERE tool = $7 ORDER BY version DESC LIMIT 1)) \
             RETURNING registry_rev), \
         places AS ( \
             INSERT INTO toolfleet.tool_slots (tool, slot) \
             SELECT $1, place FROM ordered, generate_series(1, $8::integer) place \
             ON CONFLICT (tool, slot) DO NOTHING) \
         INSERT INTO toolfleet.tool_versions (tool, version, rev, manifest, manifest_hash, schema_hash, applied_by) \
         SELECT $1, $2, registry_rev, $3::json, $4, $5, $6 FROM ordered \
         ON CONFLICT (tool, version) DO NOTHING",
    )
    .bind(manifest.name.as_str())
    .bind(manifest.version)
    .bind(&text)
    .bind(&hash[..])
    .bind(&canonical::hash(&manifest.input_schema)[..])
    .bind(by)
    .bind(manifest.probe.as_ref().map(|probe| probe.tool.as_str()))
    .bind(manifest.concurrency.and_then(|limit| i32::try_from(limit).ok()))
    .execute(&mut *connection)
    .await;
    let created = match created {
        Err(sqlx::Error::Database(raised)) if raised.constraint() == Some(LIMIT_NAME) => {
            return Ok(Applied::LimitNamedTwice);
        }
        Err(sqlx::Error::Database(raised)) if raised.constraint() == Some(FORCED_BREAKER) => {
            return Ok(Applied::BreakerForced);
        }
        created => created.map_err(|error| StoreError::from_sqlx(doing, error))?,
    };
    if created.rows_affected() == 1 {
        return Ok(Applied::Created);
    }
    let stored = stored(connection, manifest).await?;
    Ok(stored.map_or(Applied::ProbeUnfit, there))
}

/// Why a manifest is refused as [`Applied::ProbeUnfit`].
pub fn probe_unfit(manifest: &Manifest) -> String {
    let probe = manifest.probe.as_ref();
    let asked = probe.map_or_else(
        || "a tool that it names".to_owned(),
        |probe| format!("the tool of its probe, {},", probe.tool),
    );
    format!(
        "{asked} is not applied, is no read that workers run, needs an approval, or has a policy"
    )
}

/// Why a manifest is refused as [`Applied::PreviewUnfit`], and what to do.
pub fn preview_unfit(manifest: &Manifest, unfit: UnfitTool) -> String {
    let name = manifest
        .preview()
        .map_or("-", |preview| preview.tool.as_str());
    format!("the tool of its preview, {name}, {}", unfit.reason())
}

/// Why a manifest is refused as [`Applied::BreakerForced`], and what to do.
pub fn breaker_forced(manifest: &Manifest) -> String {
    let name = &manifest.name;
    format!(
        "an operator has forced its breaker open, and without breaker its calls would be sent; keep breaker, or end it first: \
         toolfleet control breaker {name} auto --note WHY"
    )
}

/// Why a manifest is refused as [`Applied::FallbackUnfit`], and what to do.
pub fn fallback_unfit(manifest: &Manifest, unfit: UnfitTool) -> String {
    let other = manifest.fallback.as_ref();
    let other = other.and_then(|fallback| fallback.tool.as_ref());
    let name = other.map_or("-", |other| other.name.as_str());
    format!("the tool of its fallback, {name}, {}", unfit.reason())
}

/// Why the newest version of a tool cannot stand in for one of this queue; `None`: it can. That it goes on to be so nothing guards: where a
/// later version of it is unfit, a worker passes it over.
async fn unfit(
    connection: &mut PgConnection,
    tool: &ToolName,
    queue: &QueueName,
) -> Result<Option<UnfitTool>, StoreError> {
    let Some((manifest, is_retired)) = newest(connection, tool).await? else {
        return Ok(Some(UnfitTool::Missing));
    };
    if is_retired {
        return Ok(Some(UnfitTool::Retired));
    }
    Ok(manifest.unfit_to_stand_in(queue))
}

/// The newest version of a tool, and whether it is retired.
async fn newest(
    connection: &mut PgConnection,
    tool: &ToolName,
) -> Result<Option<(Manifest, bool)>, StoreError> {
    let doing = "look at the tool that another one names";
    let newest: Option<(String, bool)> = sqlx::query_as(
        "SELECT manifest::text, EXISTS ( \
             SELECT FROM toolfleet.tool_retirements r WHERE r.tool = v.tool AND r.version >= v.version) \
         FROM toolfleet.tool_versions v WHERE tool = $1 ORDER BY version DESC LIMIT 1",
    )
    .bind(tool.as_str())
    .fetch_optional(connection)
    .await
    .map_err(|error| StoreError::from_sqlx(doing, error))?;
    newest
        .map(|(text, is_retired)| Ok((serde_json::from_str(&text)?, is_retired)))
        .transpose()
        .map_err(|error: serde_json::Error| StoreError::unreadable(doing, error))
}

/// Why a manifest is refused as [`Applied::LimitNamedTwice`], and what to do.
pub fn named_twice(manifest: &Manifest) -> String {
    let share = manifest.rate_limit.as_ref();
    match share.and_then(|limit| limit.share.as_ref()) {
        Some(share) => format!(
            "{share} is the name of a tool with a rate_limit of its own, so it cannot be that of a shared limit; write another \
             name behind share"
        ),
        None => format!(
            "{} is the name of a limit that other tools share, so no tool with a rate_limit of its own can have it; give the \
             tool another name, or first apply the tools that share the limit with another name behind share",
            manifest.name
        ),
    }
}

/// The hash of the version that is there.
async fn stored(
    connection: &mut PgConnection,
    manifest: &Manifest,
) -> Result<Option<Vec<u8>>, StoreError> {
    let sql = "SELECT manifest_hash FROM toolfleet.tool_versions WHERE tool = $1 AND version = $2";
    sqlx::query_scalar(sql)
        .bind(manifest.name.as_str())
        .bind(manifest.version)
        .fetch_optional(connection)
        .await
        .map_err(|error| StoreError::from_sqlx("apply a tool", error))
}

/// The number of quarantines, for lost writes may have lost tools, and the revision of the controls.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn revisions(ledger: impl PgExecutor<'_>) -> Result<Revisions, StoreError> {
    let sql =
        "SELECT quarantines, control_rev, breaker_rev, timeout_rev, mcp_rev FROM toolfleet.fleet";
    let (quarantines, controls, breakers, timeouts, mcp_servers) =
        listen(sqlx::query_as(sql).fetch_one(ledger))
            .await
            .map_err(|error| StoreError::from_sqlx("read tools", error))?;
    Ok(Revisions {
        quarantines,
        controls,
        breakers,
        timeouts,
        mcp_servers,
    })
}

/// Numbers that move when something changes: what a process has read at the same number is still so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revisions {
    /// How often the ledger has lost writes.
    pub quarantines: i32,
    /// The changes of controls.
    pub controls: i64,
    /// The changes of breakers.
    pub breakers: i64,
    /// The changes of learned timeouts.
    pub timeouts: i64,
    /// The changes of MCP servers.
    pub mcp_servers: i64,
}

/// A change of a tool, for a process that follows the revisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A version was applied: its manifest, JSON text.
    Applied(String),
    /// This version of a tool and those before it were retired.
    Retired(String, i32),
}

/// Versions that were applied and retirements after a revision, oldest first, with their revisions; at most 500.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn since(pool: &PgPool, rev: i64) -> Result<Vec<(i64, Change)>, StoreError> {
    type Row = (i64, Option<String>, String, i32);

    let doing = "read tools";
    let rows: Result<Vec<Row>, _> = listen(
        sqlx::query_as(
            "SELECT rev, manifest::text, tool, version FROM toolfleet.tool_versions WHERE rev > $1 \
         UNION ALL \
         SELECT rev, NULL, tool, version FROM toolfleet.tool_retirements WHERE rev > $1 \
         ORDER BY rev LIMIT 500",
        )
        .bind(rev)
        .fetch_all(pool),
    )
    .await;
    let rows = rows.map_err(|error| StoreError::from_sqlx(doing, error))?;
    let changes = rows.into_iter().map(|(rev, manifest, tool, version)| {
        let retired = Change::Retired(tool, version);
        (rev, manifest.map_or(retired, Change::Applied))
    });
    Ok(changes.collect())
}
