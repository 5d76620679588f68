//! Asks the ledger what the policy of its tool says of a queued call: which rule it breaks, by what happened before it.

use sqlx::{PgPool, Row as _, postgres::PgRow};

use super::{StoreError, columns::parsed, read::answer};
use crate::{
    ids::{CallId, Label, ToolName},
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
/// One statement. It makes the row that a claim locks where only so many calls may happen, and changes nothing else. A claim asks the
/// same again, under that lock: a call that passes here may be stopped there.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn broken(pool: &PgPool, call: CallId) -> Result<Option<BrokenRule>, StoreError> {
    let doing = "ask what a policy says";
    let asking = sqlx::query(
        "SELECT p.verdict, p.named, p.calls, p.per \
         FROM toolfleet.open_calls o \
         CROSS JOIN LATERAL toolfleet.policy_says( \
             o.tenant, o.tool, o.run, o.session, o.state <> 'queued' OR o.effect_unknown, false) p \
         WHERE o.call_id = $1 AND o.probe_of IS NULL AND p.verdict <> 'passes'",
    )
    .bind(call.0)
    .fetch_optional(pool);
    let row = answer(doing, asking).await?;
    row.as_ref()
        .map(rule)
        .transpose()
        .map_err(|error| StoreError::unreadable(doing, error))
}

/// Notes that a caller of this run and session is answered with a call of another one, by its key: what that has done counts there too.
///
/// One statement, which may be repeated; it waits for one that moves the call. Must be committed before the answer is given. False: the
/// call is not over, and so many other runs and sessions wait for it that no more may.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn note_asked(
    pool: &PgPool,
    call: CallId,
    run: Option<&Label>,
    session: Option<&Label>,
) -> Result<bool, StoreError> {
    let noting = sqlx::query_scalar("SELECT toolfleet.note_asked($1, $2, $3)")
        .bind(call.0)
        .bind(run.map(Label::as_str))
        .bind(session.map(Label::as_str))
        .fetch_one(pool);
    answer("note who was answered by a key", noting).await
}

fn rule(row: &PgRow) -> Result<BrokenRule, sqlx::Error> {
    Ok(match row.try_get("verdict")? {
        "at_most" => BrokenRule::AtMost {
            calls: u64::try_from(row.try_get::<i64, _>("calls")?).unwrap_or(0),
            per: parsed(row, "per")?,
        },
        "after" => BrokenRule::After {
            tool: parsed(row, "named")?,
            per: parsed(row, "per")?,
        },
        "never_after" => BrokenRule::NeverAfter {
            tool: parsed(row, "named")?,
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
