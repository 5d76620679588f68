//! Retirements: the versions of a tool that are no longer offered nor accepted. Their open calls go on.

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::StoreError;
use crate::ids::ToolName;

/// A request to retire a tool.
#[derive(Debug, Clone, Copy)]
pub struct Retire<'a> {
    /// The tool.
    pub tool: &'a ToolName,
    /// The author.
    pub by: &'a str,
    /// The reason.
    pub note: &'a str,
}

/// A retirement as it was written.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Retirement {
    /// This version and those before it are retired.
    pub version: i32,
    /// When.
    pub retired_at: OffsetDateTime,
    /// By whom, as they said.
    pub retired_by: String,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retired {
    /// It is retired, with every version up to this one.
    Now(i32),
    /// Its newest version was retired before; nothing was written.
    Before(Retirement),
    /// There is no such tool.
    NotFound,
}

/// Retires every version of a tool that exists. A newer version that is applied later offers the tool again.
///
/// One autocommit statement; guards: the tool exists, its newest version is not retired. It locks the fleet's row, as applying
/// does, so changes are numbered in the order of their commits. A version that is applied meanwhile is not retired with it.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn retire(
    connection: &mut PgConnection,
    retire: Retire<'_>,
) -> Result<Retired, StoreError> {
    let retired: Option<i32> = sqlx::query_scalar(
        "WITH newest AS ( \
             SELECT max(version) AS version FROM toolfleet.tool_versions WHERE tool = $1), \
         ordered AS ( \
             UPDATE toolfleet.fleet SET registry_rev = registry_rev + 1 \
             FROM newest \
             WHERE newest.version IS NOT NULL \
               AND NOT EXISTS (SELECT FROM toolfleet.tool_retirements r WHERE r.tool = $1 AND r.version >= newest.version) \
             RETURNING registry_rev, newest.version) \
         INSERT INTO toolfleet.tool_retirements (tool, version, rev, retired_by, note) \
         SELECT $1, version, registry_rev, $2, $3 FROM ordered \
         ON CONFLICT (tool, version) DO NOTHING \
         RETURNING version",
    )
    .bind(retire.tool.as_str())
    .bind(retire.by)
    .bind(retire.note)
    .fetch_optional(&mut *connection)
    .await
    .map_err(|error| StoreError::from_sqlx("retire a tool", error))?;
    if let Some(version) = retired {
        return Ok(Retired::Now(version));
    }
    let before = of_version(connection, retire.tool, None).await?;
    Ok(before.map_or(Retired::NotFound, Retired::Before))
}

/// The first retirement that covers a version of a tool, if any; without a version, of the tool's newest.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn of_version(
    connection: &mut PgConnection,
    tool: &ToolName,
    version: Option<i32>,
) -> Result<Option<Retirement>, StoreError> {
    sqlx::query_as(
        "SELECT version, retired_at, retired_by FROM toolfleet.tool_retirements \
         WHERE tool = $1 AND ($2::integer IS NULL OR version >= $2) \
         ORDER BY CASE WHEN $2 IS NULL THEN -version ELSE version END LIMIT 1",
    )
    .bind(tool.as_str())
    .bind(version)
    .fetch_optional(connection)
    .await
    .map_err(|error| StoreError::from_sqlx("read a retirement", error))
}
