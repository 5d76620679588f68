//! How many calls there are in each state, and what became of the newest: what somebody looks at first.

use fleet::{ids::Label, store::StoreError};
use serde::Serialize;
use sqlx::{PgPool, Postgres, QueryBuilder};
use time::{Duration, OffsetDateTime};

use crate::filter::first_id;

/// How many minutes are looked at.
pub const MINUTES: i64 = 10;
/// How many calls of each minute are looked at: the newest.
pub const CALLS_OF_A_MINUTE: i64 = 1_000;
/// How many open calls are counted.
pub const OPEN_MAX: i64 = 100_000;

/// So many open calls of a tool.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct OpenCalls {
    /// The tool.
    pub tool: String,
    /// Their state; `held` where they are accepted and not yet handed to the workers.
    pub state: String,
    /// How many.
    pub calls: i64,
}

/// So many calls of a tool that were accepted in a minute.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct MinuteOfCalls {
    /// When the minute began.
    pub minute: OffsetDateTime,
    /// The tool.
    pub tool: String,
    /// What became of them: their outcome, `cancelled`, `expired`, or `open`.
    pub came_to: String,
    /// How many.
    pub calls: i64,
}

/// What somebody looks at first.
#[derive(Debug, Clone)]
pub struct Overview {
    /// Postgres's clock.
    pub now: OffsetDateTime,
    /// The open calls; of more than [`OPEN_MAX`] so many.
    pub open: Vec<OpenCalls>,
    /// The calls of the last [`MINUTES`]. Of each minute the newest [`CALLS_OF_A_MINUTE`] of all tenants are looked at.
    pub minutes: Vec<MinuteOfCalls>,
}

/// How many finished calls the usage of tools is counted from: the newest of the last hour, whosever they are.
pub const USAGE_CALLS: i64 = 20_000;

/// How a tool was used.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct UsedTool {
    /// The tool.
    pub tool: String,
    /// How many of its calls ended.
    pub calls: i64,
    /// How many of them with success.
    pub succeeded: i64,
    /// Half of those that ran took no longer, from their first attempt to their end.
    pub p50_ms: Option<i64>,
    /// 95 of 100 took no longer.
    pub p95_ms: Option<i64>,
    /// How many of them were refused because the tool's MCP server says something else of it than its pin.
    pub changed: i64,
}

/// How the tools were used in the last hour by a tenant, or by all but one: of the newest [`USAGE_CALLS`].
///
/// # Errors
///
/// The view cannot be read.
pub async fn usage(
    pool: &PgPool,
    tenant: Option<&Label>,
    but_of: Option<&str>,
) -> Result<Vec<UsedTool>, StoreError> {
    let now = crate::calls::now(pool).await?;
    sqlx::query_as(
        "SELECT tool, count(*) AS calls, count(*) FILTER (WHERE outcome = 'success') AS succeeded,
                percentile_disc(0.5) WITHIN GROUP (ORDER BY run_ms)::bigint AS p50_ms,
                percentile_disc(0.95) WITHIN GROUP (ORDER BY run_ms)::bigint AS p95_ms,
                count(*) FILTER (WHERE error->>'code' = 'tool_changed') AS changed
         FROM (SELECT tenant, tool, outcome, run_ms, error FROM toolfleet.calls
               WHERE NOT open AND call_id >= $1 ORDER BY call_id DESC LIMIT $2) newest
         WHERE ($3::text IS NULL OR tenant = $3) AND ($4::text IS NULL OR tenant <> $4)
         GROUP BY tool ORDER BY tool",
    )
    .bind(first_id(now - Duration::hours(1)))
    .bind(USAGE_CALLS)
    .bind(tenant.map(Label::as_str))
    .bind(but_of)
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("count what tools were used", error))
}

/// A sum over the tools that somebody may see.
#[derive(Debug, Clone, Serialize)]
pub struct Counted {
    /// A state, or what calls came to.
    pub word: String,
    /// How many.
    pub calls: i64,
}

/// The sums of these counts by word, of tools for which `sees` holds.
pub fn sums<'a>(
    counts: impl Iterator<Item = (&'a str, &'a str, i64)>,
    sees: impl Fn(&str) -> bool,
) -> Vec<Counted> {
    let mut sums: Vec<Counted> = Vec::new();
    for (_, word, calls) in counts.filter(|(tool, _, _)| sees(tool)) {
        match sums.iter_mut().find(|sum| sum.word == word) {
            Some(sum) => sum.calls += calls,
            None => sums.push(Counted {
                word: word.to_owned(),
                calls,
            }),
        }
    }
    sums
}

/// Of a tenant, or of all but one.
///
/// # Errors
///
/// The view cannot be read.
pub async fn overview(
    pool: &PgPool,
    tenant: Option<&Label>,
    but_of: Option<&str>,
) -> Result<Overview, StoreError> {
    let now = crate::calls::now(pool).await?;
    let open = sqlx::query_as(
        "SELECT tool, state, count(*) AS calls FROM (
             SELECT tool, CASE WHEN held THEN 'held' ELSE state END AS state
             FROM toolfleet.calls WHERE open AND ($1::text IS NULL OR tenant = $1) AND ($3::text IS NULL OR tenant <> $3) LIMIT $2) newest
         GROUP BY tool, state",
    )
    .bind(tenant.map(Label::as_str))
    .bind(OPEN_MAX)
    .bind(but_of)
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("count open calls", error))?;
    let minutes = minutes(now, tenant, but_of)
        .build_query_as()
        .fetch_all(pool)
        .await
        .map_err(|error| StoreError::from_sqlx("count calls by minute", error))?;
    Ok(Overview { now, open, minutes })
}

/// A bounded part for each minute: by ids, which lead to the days and, within them, to the rows.
fn minutes(
    now: OffsetDateTime,
    tenant: Option<&Label>,
    but_of: Option<&str>,
) -> QueryBuilder<Postgres> {
    let this_one = now - Duration::nanoseconds(nanos_into_the_minute(now));
    let mut statement = QueryBuilder::new("SELECT minute, tool, came_to, count(*) AS calls FROM (");
    for ago in 0..MINUTES {
        if ago > 0 {
            statement.push(" UNION ALL ");
        }
        let from = this_one - Duration::minutes(ago);
        statement
            .push("SELECT * FROM (SELECT ")
            .push_bind(from)
            .push(
                "::timestamptz AS minute, tenant, tool,
                     CASE WHEN open THEN 'open' WHEN state IN ('cancelled', 'expired') THEN state ELSE outcome END AS came_to
                 FROM toolfleet.calls WHERE call_id >= ",
            )
            .push_bind(first_id(from))
            .push(" AND call_id < ")
            .push_bind(first_id(from + Duration::minutes(1)))
            .push(" ORDER BY call_id DESC LIMIT ")
            .push_bind(CALLS_OF_A_MINUTE)
            .push(") of_a_minute");
    }
    statement.push(") looked_at WHERE came_to IS NOT NULL");
    if let Some(tenant) = tenant {
        statement
            .push(" AND tenant = ")
            .push_bind(tenant.as_str().to_owned());
    }
    if let Some(but_of) = but_of {
        statement
            .push(" AND tenant <> ")
            .push_bind(but_of.to_owned());
    }
    statement.push(" GROUP BY minute, tool, came_to ORDER BY minute");
    statement
}

fn nanos_into_the_minute(moment: OffsetDateTime) -> i64 {
    i64::from(moment.second()) * 1_000_000_000 + i64::from(moment.nanosecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_tools_that_somebody_may_not_see_are_not_counted() {
        let counts = [
            ("a", "running", 2),
            ("b", "running", 3),
            ("a", "held", 1),
            ("c", "running", 9),
        ];
        let sums = sums(counts.into_iter(), |tool| tool != "c");
        let sums: Vec<(&str, i64)> = sums
            .iter()
            .map(|sum| (sum.word.as_str(), sum.calls))
            .collect();
        assert_eq!(sums, [("running", 5), ("held", 1)]);
    }
}
