//! Approve or deny: somebody decides about a call that waits for a yes. `toolfleet.decide` in the database decides whether that counts,
//! for people with psql and for requests over NATS alike.

use sqlx::{PgPool, Row as _, postgres::PgRow};
use time::OffsetDateTime;

use super::{DecisionError, StoreError, answer::listen, columns::parsed, decision::decide};
use crate::{
    call::{State, words},
    ids::{CallId, DispatcherId, Label, ToolName},
};

words! {
    /// What is decided about a call.
    Ruling {
        /// It may run.
        Approve = "approve",
        /// It may not.
        Deny = "deny",
    }
}

/// A decision about a call.
#[derive(Debug, Clone)]
pub struct Approval<'a> {
    /// The call.
    pub call: CallId,
    /// The tenant that must own it; `None`: any tenant.
    pub tenant: Option<&'a Label>,
    /// What is decided.
    pub ruling: Ruling,
    /// The hash that was shown with the arguments.
    pub args_hash: &'a str,
    /// The author.
    pub actor: &'a str,
    /// Why, for the history.
    pub note: &'a str,
}

/// The ledger's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RulingVerdict {
    /// It is recorded.
    Decided {
        /// Where the call stands now.
        state: State,
        /// When.
        at: OffsetDateTime,
        /// How many have said yes.
        given: u32,
        /// How many have to.
        needed: u32,
        /// The dispatcher that accepted it, if it is over now: its waiters must be told.
        tell: Option<DispatcherId>,
    },
    /// It does not wait for a yes, or not any more.
    NotWaiting {
        /// The state of the call.
        state: State,
        /// Who decided last, if somebody did.
        decided_by: Option<String>,
        /// When.
        decided_at: Option<OffsetDateTime>,
    },
    /// The time for it is over.
    Over {
        /// Since when.
        since: OffsetDateTime,
    },
    /// Its arguments are others than those that were shown.
    OtherArguments,
    /// This person has said so already, and another one has to.
    SamePerson,
    /// Two have to decide, and none of them may be who submitted it.
    Submitter,
    /// There is no such call of this tenant.
    NotFound,
}

const SQL: &str = "SELECT verdict, state, approvals, needed, decided_by, decided_at, dispatcher_id \
    FROM toolfleet.decide($1, $2, $3, $4, $5, $6)";

/// Decides about a call.
///
/// Own autocommit statement; guard: it waits for a yes, for these arguments, and its time is not over; the verdict says which one
/// failed. Locks the one row, and waits for a statement that has it.
///
/// # Errors
///
/// [`DecisionError::Invalid`] for an invalid actor or note; otherwise Postgres does not answer.
pub async fn rule(pool: &PgPool, approval: &Approval<'_>) -> Result<RulingVerdict, DecisionError> {
    let asking = sqlx::query(SQL)
        .bind(approval.call.0)
        .bind(approval.ruling.as_str())
        .bind(approval.args_hash)
        .bind(approval.actor)
        .bind(approval.note)
        .bind(approval.tenant.map(Label::as_str));
    decide("decide about a call", pool, asking, read).await
}

fn read(row: &PgRow) -> Result<RulingVerdict, sqlx::Error> {
    let count = |column| -> Result<u32, sqlx::Error> {
        let count: i32 = row.try_get(column)?;
        Ok(count.unsigned_abs())
    };
    Ok(match row.try_get("verdict")? {
        "decided" => RulingVerdict::Decided {
            state: parsed(row, "state")?,
            at: row.try_get("decided_at")?,
            given: count("approvals")?,
            needed: count("needed")?,
            tell: row
                .try_get::<Option<_>, _>("dispatcher_id")?
                .map(DispatcherId),
        },
        "not_waiting" => RulingVerdict::NotWaiting {
            state: parsed(row, "state")?,
            decided_by: row.try_get("decided_by")?,
            decided_at: row.try_get("decided_at")?,
        },
        "over" => RulingVerdict::Over {
            since: row.try_get("decided_at")?,
        },
        "other_arguments" => RulingVerdict::OtherArguments,
        "same_person" => RulingVerdict::SamePerson,
        "submitter" => RulingVerdict::Submitter,
        "not_found" => RulingVerdict::NotFound,
        other => {
            let unknown = format!("{other:?} is not a known verdict");
            return Err(sqlx::Error::Decode(unknown.into()));
        }
    })
}

/// A call that waits for a yes, as who asks another tool about it sees it.
#[derive(Debug, Clone)]
pub struct WaitingForYes {
    /// Its tool.
    pub tool: ToolName,
    /// The version of it.
    pub tool_version: i32,
    /// Its arguments.
    pub args: String,
    /// The minutes that are left for a decision, by Postgres's clock: the same for all who look within one of them.
    pub minutes_left: i64,
}

/// The call of this tenant, if it waits for a yes and its time is not over. Only reads.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn waiting_for_yes(
    pool: &PgPool,
    tenant: &Label,
    call: CallId,
) -> Result<Option<WaitingForYes>, StoreError> {
    let doing = "read a call that waits for a yes";
    let row = listen(
        sqlx::query(
            "SELECT tool, tool_version, args::text AS args, floor(extract(epoch FROM due_at - now()) / 60)::bigint AS minutes_left \
             FROM toolfleet.open_calls \
             WHERE call_id = $1 AND tenant = $2 AND awaiting = 'approval' AND due_at > now()",
        )
        .bind(call.0)
        .bind(tenant.as_str())
        .fetch_optional(pool),
    )
    .await
    .map_err(|error| StoreError::from_sqlx(doing, error))?;
    let read = |row: &PgRow| -> Result<WaitingForYes, sqlx::Error> {
        Ok(WaitingForYes {
            tool: parsed(row, "tool")?,
            tool_version: row.try_get("tool_version")?,
            args: row.try_get("args")?,
            minutes_left: row.try_get("minutes_left")?,
        })
    };
    row.as_ref()
        .map(read)
        .transpose()
        .map_err(|error| StoreError::unreadable(doing, error))
}
