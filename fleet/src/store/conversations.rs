//! Conversations by reference: what the calls of a model asked and were answered, from one call back to the first.

use sqlx::{PgPool, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{StoreError, answer::listen, read, read_all};
use crate::{
    call::State,
    ids::{CallId, Label},
    manifest::ChatProtocol,
};

/// The most calls of a conversation.
pub const TURNS_MAX: usize = 500;
/// The most bytes of a conversation, arguments and answers together.
pub const CONVERSATION_MAX: usize = 4 * 1024 * 1024;

/// A call of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationTurn {
    /// The call.
    pub call: CallId,
    /// Its arguments as they are stored, JSON text.
    pub args: String,
    /// Its answer, JSON text.
    pub result: String,
}

/// What there is of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundConversation {
    /// All of it, the first call first.
    Whole(Vec<ConversationTurn>),
    /// It has more than [`TURNS_MAX`] calls or [`CONVERSATION_MAX`] bytes.
    TooLong,
    /// This call of it cannot be read.
    Lacks(CallId, WhyLacking),
}

/// Why a call cannot be part of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyLacking {
    /// It does not exist, is another tenant's, or its day of history is dropped.
    Unknown,
    /// It is not over.
    Open,
    /// It has ended without an answer of its own.
    Failed,
    /// It is of another protocol, of a tool that is no model, or of one with sensitive fields, which are not handed on.
    Unfit,
}

/// The conversation that ends with this call, of this tenant and in this protocol.
///
/// One statement, by primary key, and another one where a call cannot be read. `member`: the member of the arguments that has the
/// messages.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn conversation(
    pool: &PgPool,
    tenant: &Label,
    last: CallId,
    protocol: ChatProtocol,
    member: &str,
) -> Result<FoundConversation, StoreError> {
    let doing = "read a conversation";
    let reading = sqlx::query(
        "WITH RECURSIVE turns AS ( \
             SELECT 1::bigint AS n, f.call_id, f.args, f.result, octet_length(f.args::text)::bigint + octet_length(f.result::text) AS bytes \
             FROM toolfleet.finished_calls f \
             JOIN toolfleet.tool_versions v ON v.tool = f.tool AND v.version = f.tool_version \
             WHERE f.call_id = $1 AND f.tenant = $2 AND f.state = 'succeeded' AND f.result IS NOT NULL \
               AND v.manifest#>>'{executor,chat,protocol}' = $3 AND v.manifest->'sensitive' IS NULL \
           UNION ALL \
             SELECT t.n + 1, f.call_id, f.args, f.result, t.bytes + octet_length(f.args::text) + octet_length(f.result::text) \
             FROM turns t \
             JOIN toolfleet.finished_calls f ON f.call_id = substring(t.args->$4->0->>'$call' FROM $7)::uuid \
             JOIN toolfleet.tool_versions v ON v.tool = f.tool AND v.version = f.tool_version \
             WHERE t.n <= $5 AND t.bytes <= $6 AND f.tenant = $2 AND f.state = 'succeeded' AND f.result IS NOT NULL \
               AND v.manifest#>>'{executor,chat,protocol}' = $3 AND v.manifest->'sensitive' IS NULL) \
         SELECT t.call_id, t.n > $5 OR t.bytes > $6 AS is_beyond, substring(t.args->$4->0->>'$call' FROM $7)::uuid AS earlier, \
                CASE WHEN t.n <= $5 AND t.bytes <= $6 THEN t.args::text END AS args, \
                CASE WHEN t.n <= $5 AND t.bytes <= $6 THEN t.result::text END AS result \
         FROM turns t ORDER BY t.n DESC",
    )
    .bind(last.0)
    .bind(tenant.as_str())
    .bind(protocol.as_str())
    .bind(member)
    .bind(i64::try_from(TURNS_MAX).unwrap_or(i64::MAX))
    .bind(i64::try_from(CONVERSATION_MAX).unwrap_or(i64::MAX))
    // What is no id refers to no call.
    .bind("^[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$")
    .fetch_all(pool);
    let rows = listen(reading)
        .await
        .map_err(|error| StoreError::from_sqlx(doing, error))?;
    let lacking = match rows.first() {
        None => Some(last.0),
        Some(first) => {
            let read = |row: &PgRow| Ok((row.try_get("is_beyond")?, row.try_get("earlier")?));
            let (is_beyond, earlier): (bool, Option<Uuid>) =
                read(first).map_err(|error: sqlx::Error| StoreError::unreadable(doing, error))?;
            if is_beyond {
                return Ok(FoundConversation::TooLong);
            }
            earlier
        }
    };
    if let Some(call) = lacking {
        let call = CallId(call);
        return Ok(FoundConversation::Lacks(
            call,
            why(pool, tenant, call).await?,
        ));
    }
    let turns = read_all(doing, &rows, |row| {
        Ok(ConversationTurn {
            call: CallId(row.try_get("call_id")?),
            args: row.try_get("args")?,
            result: row.try_get("result")?,
        })
    })?;
    Ok(FoundConversation::Whole(turns))
}

async fn why(pool: &PgPool, tenant: &Label, call: CallId) -> Result<WhyLacking, StoreError> {
    let row = read::find_of(pool, tenant, call).await?;
    Ok(match row.map(|row| row.state()) {
        None => WhyLacking::Unknown,
        Some(State::Succeeded) => WhyLacking::Unfit,
        Some(state) if state.is_terminal() => WhyLacking::Failed,
        Some(_open) => WhyLacking::Open,
    })
}
