//! Asks the ledger what the policy of its tool says of a queued call: which rule it breaks, by what happened before it.

use sqlx::{PgPool, Row as _, postgres::PgRow};

use super::{StoreError, columns::parsed};
use crate::{
    ids::{CallId, ToolName},
    manifest::AtMostPer,
};

/// A rule that a call breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrokenRule {
    /// Its tool may be called so often, and that often it has been, or may have been.
    AtMost {
        /// How often.
        calls: u64,
        /// In which scope.
        per: AtMostPer,
    },
    /// A tool has not succeeded that must have before it.
    After {
        /// That tool.
        tool: ToolName,
        /// In which scope.
        per: AtMostPer,
    },
    /// A tool has been called, or may have been, after which it may not.
    NeverAfter {
        /// That tool.
        tool: ToolName,
    },
    /// It does not say of which run it is, or of which session, and its tool counts by that.
    Unlabelled(AtMostPer),
    /// It says neither of which run it is nor of which session.
    WithoutLabels,
}

/// The rule that this queued call breaks, by what has happened until now; `None`: it breaks none, or is none of that.
///
/// One statement; changes nothing and takes no lock. A claim asks the same again, under its locks: a call that passes here may be
/// stopped there.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn broken(pool: &PgPool, call: CallId) -> Result<Option<BrokenRule>, StoreError> {
    let doing = "ask what a policy says";
    let row = sqlx::query(
        "SELECT verdict, tool, calls, per FROM toolfleet.policy_says($1, false, false) WHERE verdict <> 'passes'",
    )
    .bind(call.0)
    .fetch_optional(pool)
    .await
    .map_err(|error| StoreError::from_sqlx(doing, error))?;
    row.as_ref()
        .map(rule)
        .transpose()
        .map_err(|error| StoreError::unreadable(doing, error))
}

fn rule(row: &PgRow) -> Result<BrokenRule, sqlx::Error> {
    Ok(match row.try_get("verdict")? {
        "at_most" => BrokenRule::AtMost {
            calls: u64::try_from(row.try_get::<i64, _>("calls")?).unwrap_or(0),
            per: parsed(row, "per")?,
        },
        "after" => BrokenRule::After {
            tool: parsed(row, "tool")?,
            per: parsed(row, "per")?,
        },
        "never_after" => BrokenRule::NeverAfter {
            tool: parsed(row, "tool")?,
        },
        "no_run" => BrokenRule::Unlabelled(AtMostPer::Run),
        "no_session" => BrokenRule::Unlabelled(AtMostPer::Session),
        "no_label" => BrokenRule::WithoutLabels,
        other => {
            let error = format!("{other:?} is not a known rule");
            return Err(sqlx::Error::Decode(error.into()));
        }
    })
}
