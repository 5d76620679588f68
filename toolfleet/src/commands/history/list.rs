//! Which calls are wanted, and how the history finds them without being read as a whole.
//!
//! A condition stands in the statement only where it is wanted, so that a plan need not be right for those that are not.

use fleet::{
    call::State,
    ids::{Label, ToolName},
    store::StoreError,
    wire::code::Code,
};
use sqlx::{PgPool, Postgres, QueryBuilder};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

/// Which calls are wanted; what is absent does not matter.
#[derive(Debug, Default)]
pub(in crate::commands) struct Filter {
    pub(in crate::commands) tool: Option<ToolName>,
    pub(in crate::commands) state: Option<State>,
    pub(in crate::commands) tenant: Option<Label>,
    pub(in crate::commands) session: Option<Label>,
    pub(in crate::commands) run: Option<Label>,
    /// The code of their error; of an open call, of its last attempt's.
    pub(in crate::commands) code: Option<Code>,
    /// Accepted at this moment or later, by Postgres's clock.
    pub(in crate::commands) since: Option<OffsetDateTime>,
    /// Accepted before this moment.
    pub(in crate::commands) until: Option<OffsetDateTime>,
    pub(in crate::commands) limit: i64,
}

/// How far the moment in a call's id may be from its acceptance: the id is made by the clock of its dispatcher, and before
/// the call is committed.
const DRIFT_MAX: Duration = Duration::minutes(5);

/// The newest calls first, without the bodies, which may be large; each a row as JSON.
pub(in crate::commands) async fn calls(
    pool: &PgPool,
    filter: &Filter,
) -> Result<Vec<String>, StoreError> {
    let mut statement = QueryBuilder::new("");
    write(&mut statement, filter);
    statement
        .build_query_scalar()
        .fetch_all(pool)
        .await
        .map_err(|error| StoreError::from_sqlx("list calls", error))
}

/// The moment by Postgres's clock, from which "two hours ago" counts.
pub(in crate::commands) async fn now(pool: &PgPool) -> Result<OffsetDateTime, StoreError> {
    sqlx::query_scalar("SELECT now()")
        .fetch_one(pool)
        .await
        .map_err(|error| StoreError::from_sqlx("ask Postgres for the time", error))
}

/// Writes the statement that answers this.
fn write(statement: &mut QueryBuilder<Postgres>, filter: &Filter) {
    statement.push(
        "SELECT row_to_json(listed)::text FROM (
             SELECT call_id, tenant, tool, tool_version, effect, state, outcome, source, held, attempts,
                    error->>'code' AS error_code, session, run, priority, not_before, deadline_at,
                    accepted_at, started_at, finished_at, worker
             FROM toolfleet.calls
             WHERE true",
    );
    let words = [
        ("tool", filter.tool.as_ref().map(ToolName::as_str)),
        ("state", filter.state.map(State::as_str)),
        ("tenant", filter.tenant.as_ref().map(Label::as_str)),
        ("session", filter.session.as_ref().map(Label::as_str)),
        ("run", filter.run.as_ref().map(Label::as_str)),
        ("error->>'code'", filter.code.map(Code::as_str)),
    ];
    for (column, word) in words {
        if let Some(word) = word {
            statement
                .push(format_args!(" AND {column} = "))
                .push_bind(word);
        }
    }
    // The moment of acceptance decides; the ids lead to the days and, within them, to the rows.
    if let Some(since) = filter.since {
        statement.push(" AND accepted_at >= ").push_bind(since);
        let first = first_id(since.saturating_sub(DRIFT_MAX));
        statement.push(" AND call_id >= ").push_bind(first);
    }
    if let Some(until) = filter.until {
        statement.push(" AND accepted_at < ").push_bind(until);
        let beyond = first_id(until.saturating_add(DRIFT_MAX));
        statement.push(" AND call_id < ").push_bind(beyond);
    }
    statement.push(" ORDER BY call_id DESC LIMIT ");
    statement.push_bind(filter.limit).push(") listed");
}

/// The smallest id of this millisecond; of a moment before 1970 the smallest there is.
fn first_id(moment: OffsetDateTime) -> Uuid {
    let millis = u128::try_from(moment.unix_timestamp_nanos() / 1_000_000).unwrap_or_default();
    Uuid::from_u128(millis << 80)
}

#[cfg(test)]
mod tests;
