//! The calls that wait for somebody's yes.

use fleet::{ids::CallId, store::StoreError};
use serde::Deserialize;
use serde_json::value::RawValue;
use sqlx::PgPool;
use time::OffsetDateTime;

use crate::row::Row;

/// A row of `waiting` of a call that waits for a yes, with who has said it and what was corrected in its arguments.
#[derive(Debug, Deserialize)]
pub struct Undecided {
    /// The call.
    pub call_id: CallId,
    /// Its tenant.
    pub tenant: String,
    /// Its tool.
    pub tool: String,
    /// The version of it.
    pub tool_version: i32,
    /// What running it means.
    pub effect: String,
    /// Since when it waits.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
    /// Until when.
    #[serde(with = "time::serde::rfc3339")]
    pub until: OffsetDateTime,
    /// The caller's session.
    pub session: Option<String>,
    /// The caller's run.
    pub run: Option<String>,
    /// The arguments as the tool gets them, JSON.
    pub args: Box<RawValue>,
    /// The hash of them.
    pub args_hash: String,
    /// Who may decide.
    pub approval_by: String,
    /// How many have to say yes.
    pub approvals_needed: i32,
    /// How many have.
    pub approvals: i32,
    /// What the tool's manifest says to who decides.
    pub approval_reason: Option<String>,
    /// What was corrected in the arguments, JSON.
    pub coercions: Box<RawValue>,
    /// Who has said yes.
    pub approved_by: Vec<String>,
    /// The tool that is asked for who decides, as the newest version of the call's tool has it.
    pub preview_tool: Option<String>,
}

/// What a reference in the arguments stands for, JSON: the answer of this call of the same tenant, or the part at these steps. `None`: the
/// history has it not, or not any more.
///
/// # Errors
///
/// The view cannot be read.
pub async fn referent(
    pool: &PgPool,
    tenant: &str,
    call: CallId,
    steps: &[String],
) -> Result<Option<String>, StoreError> {
    let found: Option<Option<String>> = sqlx::query_scalar(
        "SELECT (result #> $3::text[])::text FROM toolfleet.calls WHERE call_id = $1 AND tenant = $2",
    )
    .bind(call.0)
    .bind(tenant)
    .bind(steps)
    .fetch_optional(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("read what arguments refer to", error))?;
    Ok(found.flatten())
}

/// The call, if it waits for a yes.
///
/// # Errors
///
/// The views cannot be read.
pub async fn undecided(pool: &PgPool, call: CallId) -> Result<Option<Row<Undecided>>, StoreError> {
    sqlx::query_scalar(
        "SELECT row_to_json(listed)::text FROM ( \
             SELECT w.*, c.coercions, \
                    ARRAY(SELECT d.actor FROM toolfleet.approvals d \
                          WHERE d.call_id = w.call_id AND d.decision = 'approve' ORDER BY d.at) AS approved_by, \
                    (SELECT t.manifest->'approval'->'preview'->>'tool' FROM toolfleet.tools t \
                     WHERE t.tool = w.tool ORDER BY t.version DESC LIMIT 1) AS preview_tool \
             FROM toolfleet.waiting w JOIN toolfleet.calls c USING (call_id) \
             WHERE w.call_id = $1 AND w.awaiting = 'approval') listed",
    )
    .bind(call.0)
    .fetch_optional(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("read a call that waits", error))
}
