//! How many calls of a tenant are under way in a queue whose slots tenants share, or of a tool that bounds starts alone: handed to
//! NATS, or running.

use std::collections::HashMap;

use sqlx::PgExecutor;

use super::StoreError;
use crate::{
    hold::Line,
    ids::{Label, QueueName, ToolName},
};

/// How many calls of each of these tenants are under way in each of these queues, in their order; none above `most` is counted.
///
/// One statement, which reads an index entry and a row for each that it counts; changes nothing.
/// A retry counts when its pause is over, and a call in doubt until its time is over, for until then it may still act.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn counts(
    ledger: impl PgExecutor<'_>,
    of: &[(QueueName, Label)],
    most: u64,
) -> Result<Vec<u64>, StoreError> {
    let line = |(queue, _): &(QueueName, Label)| Line::Slots(queue.clone()).to_string();
    let lines: Vec<String> = of.iter().map(line).collect();
    let tenants: Vec<&str> = of.iter().map(|(_, tenant)| tenant.as_str()).collect();
    // The pattern, although the line says it: it makes Postgres use the index.
    let counted: Result<Vec<i64>, _> = sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM ( \
                     SELECT FROM toolfleet.open_calls o \
                     WHERE o.line = asked.line AND o.tenant = asked.tenant AND NOT o.held AND o.line LIKE 'slots/%' \
                       AND (o.state = 'running' OR o.state = 'queued' AND o.due_at IS NULL \
                            OR o.state = 'in_doubt' AND o.attempt_until > now()) \
                     LIMIT $3) under_way) \
         FROM unnest($1::text[], $2::text[]) WITH ORDINALITY asked (line, tenant, place) ORDER BY place",
    )
    .bind(lines)
    .bind(tenants)
    .bind(i64::try_from(most).unwrap_or(i64::MAX))
    .fetch_all(ledger)
    .await;
    let counted = counted
        .map_err(|error| StoreError::from_sqlx("count the calls of tenants under way", error))?;
    let read = |count: i64| u64::try_from(count).unwrap_or(0);
    Ok(counted.into_iter().map(read).collect())
}

/// How many calls of this tool are under way of each tenant that has some.
///
/// One statement, which reads an index entry and a row for each; changes nothing. What counts is what [`counts`] counts. `by_key`:
/// values have lines of their own, and the index entries of other tools are read, too.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn of_tool(
    ledger: impl PgExecutor<'_>,
    tool: &ToolName,
    by_key: bool,
) -> Result<HashMap<Label, u64>, StoreError> {
    let doing = "count the calls of a tool's tenants under way";
    let lines = if by_key {
        "(o.line = $1 OR starts_with(o.line, $1 || '/'))"
    } else {
        "o.line = $1"
    };
    let sql = format!(
        "SELECT o.tenant, count(*) FROM toolfleet.open_calls o \
         WHERE {lines} AND NOT o.held AND o.line LIKE 'tool/%' \
           AND (o.state = 'running' OR o.state = 'queued' AND o.due_at IS NULL \
                OR o.state = 'in_doubt' AND o.attempt_until > now()) \
         GROUP BY o.tenant"
    );
    // Made of constants of this function.
    let asking = sqlx::query_as(sqlx::AssertSqlSafe(sql));
    let rows: Result<Vec<(String, i64)>, _> = asking
        .bind(Line::Tool(tool.clone()).to_string())
        .fetch_all(ledger)
        .await;
    let rows = rows.map_err(|error| StoreError::from_sqlx(doing, error))?;
    let read = |(tenant, count): (String, i64)| {
        let tenant = tenant.parse();
        tenant.map(|tenant| (tenant, u64::try_from(count).unwrap_or(0)))
    };
    rows.into_iter()
        .map(read)
        .collect::<Result<_, _>>()
        .map_err(|error| StoreError::unreadable(doing, error))
}
