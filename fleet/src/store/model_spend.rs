//! What is spent of the budgets of models: asked before a call is claimed, folded and forgotten by the sweep. What is spent is counted
//! in the statements of [`super::model_calls`].

use std::time::Duration;

use sqlx::{PgConnection, PgPool, Row as _, postgres::PgRow};

use super::{StoreError, columns::parsed, read::answer};
use crate::{call::words, ids::CallId, manifest::Budget};

/// The most rows that one statement folds, or deletes of each kind.
const ROWS_MAX: i32 = 5_000;
/// With more rows than this, those of living sessions are folded too.
const CROWD: i32 = 20_000;
/// For how long what a tenant has spent on a day is kept, in days.
const DAYS_KEPT: i32 = 3;

words! {
    /// A part of a budget, by its field.
    BudgetPart {
        /// Calls of a run.
        CallsPerRun = "calls_per_run",
        /// Their tokens.
        TokensPerRun = "tokens_per_run",
        /// What they have cost.
        CostPerRun = "cost_per_run",
        /// What all calls of a tenant have cost today.
        CostPerTenantDay = "cost_per_tenant_day",
    }
}

/// A part of a budget of which nothing is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReachedBudget {
    /// Which.
    pub part: BudgetPart,
    /// How much is spent, as decimal text.
    pub spent: String,
    /// How much may be.
    pub limit: String,
}

/// The first part of this budget of which nothing is left for a queued call; `None`: it may run, or is not queued any more.
///
/// One statement, which reads a few rows for each session that has counted. A call without a run is its own run: its own requests are
/// read. One of which a request has left before is counted already, and no further call.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn reached(
    pool: &PgPool,
    call: CallId,
    budget: &Budget,
    currency: Option<&str>,
) -> Result<Option<ReachedBudget>, StoreError> {
    let doing = "ask what is spent of a budget";
    let number = |limit: Option<u64>| limit.map(|limit| limit.to_string());
    let asking = sqlx::query(
        "WITH asked AS MATERIALIZED (SELECT o.tenant, o.tool, o.run FROM toolfleet.open_calls o WHERE o.call_id = $1), \
         own AS MATERIALIZED ( \
             SELECT count(*) AS requests, coalesce(sum(m.input_tokens + m.output_tokens), 0) AS tokens, \
                    coalesce(sum(m.cost) FILTER (WHERE m.currency = $6), 0) AS cost \
             FROM toolfleet.model_requests m WHERE m.call_id = $1 AND m.tool = (SELECT a.tool FROM asked a)), \
         run AS MATERIALIZED ( \
             SELECT coalesce(sum(s.calls), 0) AS calls, coalesce(sum(s.tokens), 0) AS tokens, \
                    coalesce(sum(s.cost) FILTER (WHERE s.currency = $6), 0) AS cost \
             FROM asked a JOIN toolfleet.model_spend s \
                 ON s.tenant = a.tenant AND s.tool = a.tool AND s.scope = 'run' AND s.key = a.run), \
         day AS MATERIALIZED ( \
             SELECT coalesce(sum(s.cost) FILTER (WHERE s.currency = $6), 0) AS cost \
             FROM asked a JOIN toolfleet.model_spend s ON s.tenant = a.tenant AND s.tool = a.tool AND s.scope = 'tenant_day' \
                 AND s.key = to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD')), \
         parts (place, part, spent, most) AS ( \
             SELECT 1, 'calls_per_run', run.calls, $2::numeric FROM run, own WHERE own.requests = 0 \
             UNION ALL SELECT 2, 'tokens_per_run', CASE WHEN a.run IS NULL THEN own.tokens ELSE run.tokens END, $3::numeric \
                 FROM asked a, run, own \
             UNION ALL SELECT 3, 'cost_per_run', CASE WHEN a.run IS NULL THEN own.cost ELSE run.cost END, $4::numeric \
                 FROM asked a, run, own \
             UNION ALL SELECT 4, 'cost_per_tenant_day', day.cost, $5::numeric FROM day) \
         SELECT p.part, trim_scale(p.spent)::text AS spent, trim_scale(p.most)::text AS most \
         FROM parts p WHERE p.spent >= p.most ORDER BY p.place LIMIT 1",
    )
    .bind(call.0)
    .bind(number(budget.calls_per_run))
    .bind(number(budget.tokens_per_run))
    .bind(budget.cost_per_run.as_deref())
    .bind(budget.cost_per_tenant_day.as_deref())
    .bind(currency)
    .fetch_optional(pool);
    let row = answer(doing, asking).await?;
    let read = |row: &PgRow| -> Result<ReachedBudget, sqlx::Error> {
        Ok(ReachedBudget {
            part: parsed(row, "part")?,
            spent: row.try_get("spent")?,
            limit: row.try_get("most")?,
        })
    };
    row.as_ref()
        .map(read)
        .transpose()
        .map_err(|error| StoreError::unreadable(doing, error))
}

/// Adds up the rows of sessions that are gone, and returns how many; the next call goes on. Own statement; rows that a session
/// is adding to are left out.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn fold(connection: &mut PgConnection) -> Result<i64, StoreError> {
    sqlx::query_scalar("SELECT toolfleet.fold_model_spend($1, $2)")
        .bind(ROWS_MAX)
        .bind(CROWD)
        .fetch_one(connection)
        .await
        .map_err(|error| StoreError::from_sqlx("fold what models cost", error))
}

/// Deletes a step of what was spent on days that are over, and by runs that are quiet since `retention`. Own statement; whether there
/// may be more.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn drop_old(
    connection: &mut PgConnection,
    retention: Option<Duration>,
) -> Result<bool, StoreError> {
    let days =
        retention.map(|retention| i32::try_from(retention.as_secs() / 86_400).unwrap_or(i32::MAX));
    let dropped: i64 = sqlx::query_scalar(
        "SELECT toolfleet.drop_model_spend(today - $1, CASE WHEN $2::integer IS NOT NULL THEN today - $2 END, $3) \
         FROM (SELECT (now() AT TIME ZONE 'UTC')::date AS today) t",
    )
    .bind(DAYS_KEPT)
    .bind(days)
    .bind(ROWS_MAX)
    .fetch_one(connection)
    .await
    .map_err(|error| StoreError::from_sqlx("forget what models have cost", error))?;
    Ok(dropped >= i64::from(ROWS_MAX))
}
