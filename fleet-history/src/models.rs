//! What models were asked and what that has cost, added up; and the requests of one call.

use std::collections::BTreeMap;

use fleet::{ids::CallId, store::StoreError};
use serde::Deserialize;
use sqlx::{AssertSqlSafe, PgPool};
use time::{Duration, OffsetDateTime};
use uuid::{Builder, Uuid};

use crate::row::Row;

/// The most sums of one question.
const SUMS_MAX: usize = 1_000;
/// How long before a request its call may have been made: so much of the history is read more.
const CALL_AGE_MAX: Duration = Duration::days(2);

/// By what requests are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelsBy {
    /// The tool that asked.
    Tool,
    /// A route of a tool, and the model asked for there.
    Route,
    /// The tenant.
    Tenant,
    /// A run of a tenant.
    Run,
    /// The day, by UTC.
    Day,
}

impl ModelsBy {
    /// The columns by which is added up, each with its expression.
    const fn columns(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Tool => &[("tool", "m.tool")],
            Self::Route => &[
                ("tool", "m.tool"),
                ("route", "m.route"),
                ("model", "m.model_asked"),
            ],
            Self::Tenant => &[("tenant", "m.tenant")],
            Self::Run => &[("tenant", "m.tenant"), ("run", "m.run")],
            Self::Day => &[(
                "day",
                "to_char(m.started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
            )],
        }
    }
}

/// What some requests came to.
#[derive(Debug, Clone, Deserialize)]
pub struct ModelSums {
    /// By what they are added up: the parts of it by their names.
    pub by: BTreeMap<String, Option<String>>,
    /// The calls.
    pub calls: i64,
    /// Their requests.
    pub requests: i64,
    /// Those that failed.
    pub failed: i64,
    /// Those of which nobody knows what came of them, or that are under way.
    pub unknown: i64,
    /// How long the first token took at the median, of streams.
    pub first_token_p50_ms: Option<i64>,
    /// Of 95 in 100.
    pub first_token_p95_ms: Option<i64>,
    /// How long the answer took at the median.
    pub run_p50_ms: Option<i64>,
    /// Of 95 in 100.
    pub run_p95_ms: Option<i64>,
    /// Tokens that were read.
    pub input_tokens: i64,
    /// Tokens that were written.
    pub output_tokens: i64,
    /// Requests whose tokens are guesses.
    pub estimated: i64,
    /// The cost by currency, as decimal text.
    pub cost: BTreeMap<String, String>,
    /// The breakers of the tool that are not closed, as `target: state`; only where it is added up by tool or route, and where the tool's
    /// newest version has a breaker.
    pub breakers: Option<Vec<String>>,
}

/// One request to a model.
#[derive(Debug, Clone, Deserialize)]
pub struct ModelCall {
    /// The attempt's number.
    pub attempt: i32,
    /// The tool that asked.
    pub tool: String,
    /// Its route.
    pub route: String,
    /// The model that was asked for.
    pub model_asked: String,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub started_at: OffsetDateTime,
    /// How long the first token took, of a stream.
    pub first_token_ms: Option<i64>,
    /// How long all of it took.
    pub run_ms: Option<i64>,
    /// Tokens that were read.
    pub input_tokens: Option<i64>,
    /// Tokens that were written.
    pub output_tokens: Option<i64>,
    /// Whether these are guesses.
    pub estimated: Option<bool>,
    /// What it has cost, as decimal text.
    pub amount: Option<String>,
    /// In which currency.
    pub currency: Option<String>,
    /// Why the model stopped.
    pub finish: Option<String>,
    /// How it failed.
    pub code: Option<String>,
}

/// A route whose key, model or URL is wrong, by what its server answers.
#[derive(Debug, Clone, Deserialize)]
pub struct WrongRoute {
    /// The tool.
    pub tool: String,
    /// Its route.
    pub route: String,
    /// The model that was asked for.
    pub model_asked: String,
    /// What its server has answered.
    pub status: i64,
    /// When it was asked.
    #[serde(with = "time::serde::rfc3339")]
    pub started_at: OffsetDateTime,
}

/// Requests that were begun since then, added up; the most requests first, the newest day first, at most 1,000 sums.
///
/// It reads all requests of that time. A request counts by itself, whatever else its call asked.
///
/// # Errors
///
/// The views cannot be read.
pub async fn sums(
    pool: &PgPool,
    by: ModelsBy,
    since: OffsetDateTime,
) -> Result<Vec<Row<ModelSums>>, StoreError> {
    let columns = by.columns();
    let listed = |each: &dyn Fn(&(&str, &str)) -> String| {
        columns.iter().map(each).collect::<Vec<_>>().join(", ")
    };
    let keys = listed(&|(name, expression)| format!("{expression} AS by_{name}"));
    let names = listed(&|(name, _)| format!("by_{name}"));
    let object = listed(&|(name, _)| format!("'{name}', s.by_{name}"));
    let order = match by {
        ModelsBy::Day => "s.by_day DESC",
        ModelsBy::Tool | ModelsBy::Route | ModelsBy::Tenant | ModelsBy::Run => "s.requests DESC",
    };
    let breakers = match by {
        ModelsBy::Tool | ModelsBy::Route => {
            "(SELECT coalesce(json_agg(b.target || ': ' || coalesce(b.forced, b.state) ORDER BY b.target), '[]') \
              FROM toolfleet.breakers b WHERE b.tool = s.by_tool AND coalesce(b.forced, b.state) <> 'closed' \
              HAVING EXISTS (SELECT FROM toolfleet.tools t WHERE t.tool = s.by_tool AND t.current AND t.manifest->'breaker' IS NOT NULL))"
        }
        ModelsBy::Tenant | ModelsBy::Run | ModelsBy::Day => "NULL::json",
    };
    let sql = format!(
        "WITH m AS MATERIALIZED ( \
             SELECT {keys}, m.call_id, m.code, m.first_token_ms, m.run_ms, m.input_tokens, m.output_tokens, m.estimated, \
                    m.cost, m.currency \
             FROM toolfleet.model_calls m WHERE m.call_id >= $1 AND m.started_at >= $2), \
         s AS MATERIALIZED ( \
             SELECT {names}, count(DISTINCT call_id) AS calls, count(*) AS requests, \
                    count(*) FILTER (WHERE code <> 'unknown') AS failed, count(*) FILTER (WHERE code = 'unknown') AS unknown, \
                    percentile_disc(0.5) WITHIN GROUP (ORDER BY first_token_ms) AS first_token_p50_ms, \
                    percentile_disc(0.95) WITHIN GROUP (ORDER BY first_token_ms) AS first_token_p95_ms, \
                    percentile_disc(0.5) WITHIN GROUP (ORDER BY run_ms) FILTER (WHERE code IS NULL) AS run_p50_ms, \
                    percentile_disc(0.95) WITHIN GROUP (ORDER BY run_ms) FILTER (WHERE code IS NULL) AS run_p95_ms, \
                    coalesce(sum(input_tokens), 0)::bigint AS input_tokens, coalesce(sum(output_tokens), 0)::bigint AS output_tokens, \
                    count(*) FILTER (WHERE estimated) AS estimated \
             FROM m GROUP BY {names}), \
         c AS MATERIALIZED ( \
             SELECT {names}, json_object_agg(currency, amount ORDER BY currency) AS cost \
             FROM (SELECT {names}, currency, trim_scale(sum(cost))::text AS amount FROM m WHERE currency IS NOT NULL \
                   GROUP BY {names}, currency) each_currency \
             GROUP BY {names}) \
         SELECT json_build_object('by', json_build_object({object}), 'calls', s.calls, 'requests', s.requests, 'failed', s.failed, \
                'unknown', s.unknown, 'first_token_p50_ms', s.first_token_p50_ms, 'first_token_p95_ms', s.first_token_p95_ms, \
                'run_p50_ms', s.run_p50_ms, 'run_p95_ms', s.run_p95_ms, 'input_tokens', s.input_tokens, \
                'output_tokens', s.output_tokens, 'estimated', s.estimated, 'cost', coalesce(c.cost, '{{}}'), \
                'breakers', {breakers})::text \
         FROM s LEFT JOIN c ON ({same}) ORDER BY {order}, {names_of_s} LIMIT {SUMS_MAX}",
        same = columns
            .iter()
            .map(|(name, _)| format!("s.by_{name} IS NOT DISTINCT FROM c.by_{name}"))
            .collect::<Vec<_>>()
            .join(" AND "),
        names_of_s = listed(&|(name, _)| format!("s.by_{name}")),
    );
    // Made of constants of this file.
    sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(first_id(since.saturating_sub(CALL_AGE_MAX)))
        .bind(since)
        .fetch_all(pool)
        .await
        .map_err(|error| StoreError::from_sqlx("add up what models cost", error))
}

/// The routes of tools as they are now whose newest answer within the last hour says that they are wrong, at most 100.
///
/// It reads the newest 10,000 requests of calls that were made within a day.
///
/// # Errors
///
/// The views cannot be read.
pub async fn wrong_routes(pool: &PgPool) -> Result<Vec<Row<WrongRoute>>, StoreError> {
    sqlx::query_scalar(
        "SELECT row_to_json(listed)::text FROM ( \
             SELECT n.tool, n.route, n.model_asked, n.misconfigured_status AS status, n.started_at \
             FROM (SELECT DISTINCT ON (m.tool, m.route) m.* \
                   FROM (SELECT * FROM toolfleet.model_calls WHERE call_id >= toolfleet.uuid_floor(now() - interval '1 day') ORDER BY call_id DESC LIMIT 10000) m \
                   WHERE m.code IS DISTINCT FROM 'unknown' AND m.started_at > now() - interval '1 hour' \
                   ORDER BY m.tool, m.route, m.started_at DESC, m.request_id DESC) n \
             JOIN toolfleet.tools t ON t.tool = n.tool AND t.version = n.tool_version AND t.current AND t.retired_at IS NULL \
             WHERE n.misconfigured_status IS NOT NULL ORDER BY n.tool, n.route LIMIT 100) listed",
    )
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("look for routes that are wrong", error))
}

/// The requests of a call, by their time, at most 200.
///
/// # Errors
///
/// The view cannot be read. One that is not there yet, or that this role may not read, has none: who reads only calls needs no more.
pub async fn of_call(pool: &PgPool, call: CallId) -> Result<Vec<Row<ModelCall>>, StoreError> {
    let read: Result<Vec<Row<ModelCall>>, sqlx::Error> = sqlx::query_scalar(
        "SELECT row_to_json(listed)::text FROM (
             SELECT m.*, trim_scale(m.cost)::text AS amount FROM toolfleet.model_calls m WHERE m.call_id = $1
             ORDER BY m.started_at, m.request_id LIMIT 200) listed",
    )
    .bind(call.0)
    .fetch_all(pool)
    .await;
    match read {
        Err(sqlx::Error::Database(error)) if is_hidden(error.code().as_deref()) => Ok(Vec::new()),
        read => read.map_err(|error| StoreError::from_sqlx("read the requests of a call", error)),
    }
}

/// Whether it says that there is no such view, or that it may not be read.
fn is_hidden(code: Option<&str>) -> bool {
    matches!(code, Some("42P01" | "42501"))
}

/// The first id that a call could have at this moment.
fn first_id(at: OffsetDateTime) -> Uuid {
    let millis = u64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or(0);
    Builder::from_unix_timestamp_millis(millis, &[0; 10]).into_uuid()
}
