//! Late evidence: the outcome of an attempt that was taken from its worker, and what whoever was handed a call says of it when it
//! is over. It is kept, and decides nothing.

use std::time::Duration;

use sqlx::{PgPool, Row as _, postgres::PgRow};
use time::OffsetDateTime;

use super::{StoreError, answer::answer_within, complete::EndedAttempt};
use crate::{
    call::EffectKnown,
    ids::{AttemptId, CallId, WorkerId},
    outcome::OutcomeWord,
};

/// The report about an attempt that its worker has lost. The tool's answer is not kept: no caller may get it.
#[derive(Debug, Clone)]
pub struct LateReport {
    /// The call.
    pub call_id: CallId,
    /// The attempt.
    pub attempt_id: AttemptId,
    /// Its number, from 1.
    pub number: u32,
    /// Who ran it.
    pub worker: WorkerId,
    /// How that worker signs what it records.
    pub actor: String,
    /// When it had to end.
    pub attempt_until: OffsetDateTime,
    /// How long it was allowed to take.
    pub timeout_ms: i64,
    /// How it ended.
    pub ended: EndedAttempt,
}

/// The result of keeping it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LateOutcome {
    /// It is kept.
    Kept {
        /// The report says that the effect happened, and the call ended as one without an effect.
        contradicts: bool,
    },
    /// It was not late: the same worker has recorded the attempt's end before.
    Recorded,
    /// There is no such call.
    NoCall,
}

const DOING: &str = "keep late evidence";
/// How long to wait, for a connection and for the answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Keeps evidence. Own autocommit statement; guard: the attempt's own worker has not recorded its end before; safe to repeat;
/// locks the call's row against statements that end it. It moves no call.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn keep(pool: &PgPool, evidence: &LateReport) -> Result<LateOutcome, StoreError> {
    match keep_once(pool, evidence).await? {
        // The statement that it waited for has ended the call; a new statement sees how.
        LateOutcome::NoCall => keep_once(pool, evidence).await,
        outcome => Ok(outcome),
    }
}

/// Keeps that whoever was handed a call as this attempt says, now that the call is over, that it was done. Own autocommit statement; safe
/// to repeat. It moves no call.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn keep_answer(
    pool: &PgPool,
    call: CallId,
    attempt: AttemptId,
) -> Result<LateOutcome, StoreError> {
    let keeping = sqlx::query(include_str!("sql/late_answer.sql"))
        .bind(call.0)
        .bind(attempt.0)
        .fetch_optional(pool);
    let Some(row) = answer_within(DOING, ANSWER_MAX, keeping).await? else {
        return Ok(LateOutcome::NoCall);
    };
    kept(&row, OutcomeWord::Applied).map_err(|error| StoreError::unreadable(DOING, error))
}

async fn keep_once(pool: &PgPool, evidence: &LateReport) -> Result<LateOutcome, StoreError> {
    let keeping = sqlx::query(include_str!("sql/late.sql"))
        .bind(evidence.call_id.0)
        .bind(evidence.attempt_id.0)
        .bind(i32::try_from(evidence.number).unwrap_or(i32::MAX))
        .bind(evidence.worker.0)
        .bind(evidence.attempt_until)
        .bind(evidence.timeout_ms)
        .bind(evidence.ended.outcome.as_str())
        .bind(evidence.ended.effect.as_str())
        .bind(evidence.ended.error.as_deref())
        .bind(evidence.ended.has_stopped)
        .bind(evidence.actor.as_str())
        .fetch_one(pool);
    let row = answer_within(DOING, ANSWER_MAX, keeping).await?;
    read(&row, evidence.ended.outcome).map_err(|error| StoreError::unreadable(DOING, error))
}

fn read(row: &PgRow, outcome: OutcomeWord) -> Result<LateOutcome, sqlx::Error> {
    if row.try_get("recorded")? {
        return Ok(LateOutcome::Recorded);
    }
    kept(row, outcome)
}

fn kept(row: &PgRow, outcome: OutcomeWord) -> Result<LateOutcome, sqlx::Error> {
    if !row.try_get::<bool, _>("known")? {
        return Ok(LateOutcome::NoCall);
    }
    let settled_as: Option<String> = row.try_get("settled_as")?;
    let denied = settled_as.as_deref() == Some(EffectKnown::NotApplied.as_str());
    Ok(LateOutcome::Kept {
        contradicts: denied && outcome == OutcomeWord::Applied,
    })
}
