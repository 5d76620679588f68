//! How many calls of a tenant are under way in a queue whose slots tenants share: handed to NATS, or running.

use sqlx::PgExecutor;

use super::StoreError;
use crate::{
    hold::Line,
    ids::{Label, QueueName},
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
