//! The calls that wait for somebody outside the fleet, and those among them that wait for a yes.

use fleet::{
    ids::{CallId, Label},
    store::StoreError,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use sqlx::PgPool;
use time::OffsetDateTime;

use crate::{inbox::InboxOf, row::Row};

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

/// What tells one waiting call from others.
#[derive(Debug, Clone, Deserialize)]
pub struct ListedWait {
    /// The call.
    pub call_id: CallId,
    /// Its tool.
    pub tool: String,
}

/// The calls that wait.
///
/// The one whose wait ends first comes first. With the beginning of the arguments, how long these are, and who has said yes.
///
/// # Errors
///
/// The views cannot be read.
pub async fn all(pool: &PgPool, wanted: InboxOf<'_>) -> Result<Vec<Row<ListedWait>>, StoreError> {
    sqlx::query_scalar(
        "SELECT row_to_json(listed)::text FROM ( \
             SELECT w.call_id, w.tenant, w.tool, w.tool_version, w.effect, w.awaiting, w.since, w.until, w.session, w.run, \
                    (SELECT c.meta->>'principal' FROM toolfleet.calls c WHERE c.call_id = w.call_id) AS asked_by, \
                    left(w.args::text, $3) AS arguments, length(w.args::text) AS arguments_length, w.args_hash, w.approval_by, \
                    w.approvals_needed, w.approvals, w.approval_reason, \
                    ARRAY(SELECT d.actor FROM toolfleet.approvals d \
                          WHERE d.call_id = w.call_id AND d.decision = 'approve' ORDER BY d.at) AS approved_by, now() AS now \
             FROM toolfleet.waiting w \
             WHERE ($1::text IS NULL OR w.tenant = $1) AND ($4::uuid IS NULL OR w.call_id = $4) \
               AND ($5::text[] IS NULL OR w.tool LIKE ANY ($5)) AND ($6::text IS NULL OR w.tenant <> $6) \
             ORDER BY w.until, w.call_id \
             LIMIT $2) listed",
    )
    .bind(wanted.tenant.map(Label::as_str))
    .bind(wanted.limit)
    .bind(crate::doubts::ARGUMENTS_SHOWN)
    .bind(wanted.call.map(|call| call.0))
    .bind(wanted.tools_like)
    .bind(wanted.but_of)
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("list calls that wait", error))
}
