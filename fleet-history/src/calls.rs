//! A filter of calls, and how the history finds them without reading everything.
//!
//! A condition is in the statement only where the filter has it, so that the plan need not suit conditions that are absent.

use fleet::{
    call::State,
    ids::{Label, ToolName},
    store::StoreError,
    wire::code::Code,
};
use serde::Deserialize;
use sqlx::{PgPool, Postgres, QueryBuilder};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::row::Row;

/// Which calls to list; an absent field does not restrict them.
#[derive(Debug, Default)]
pub struct Filter {
    /// Of this tool.
    pub tool: Option<ToolName>,
    /// In this state.
    pub state: Option<State>,
    /// Of this tenant.
    pub tenant: Option<Label>,
    /// Of this session.
    pub session: Option<Label>,
    /// Of this run.
    pub run: Option<Label>,
    /// The code of their error; of an open call, of its last attempt's.
    pub code: Option<Code>,
    /// Accepted at this moment or later, by Postgres's clock.
    pub since: Option<OffsetDateTime>,
    /// Accepted before this moment.
    pub until: Option<OffsetDateTime>,
    /// The most calls.
    pub limit: i64,
}

/// How far the time in a call's id may be from its acceptance: the id comes from the clock of its dispatcher, and is made
/// before the call is committed.
const DRIFT_MAX: Duration = Duration::minutes(5);

/// A row of `calls` without the bodies, which may be large.
#[derive(Debug, Clone, Deserialize)]
pub struct ListedCall {
    /// The call.
    pub call_id: String,
    /// Its tool.
    pub tool: String,
    /// Its state.
    pub state: String,
    /// Whether it is held.
    pub held: bool,
    /// How many attempts were made.
    pub attempts: i32,
    /// The code of its error; of an open call, of its last attempt's.
    pub error_code: Option<String>,
    /// When it was accepted.
    #[serde(with = "time::serde::rfc3339")]
    pub accepted_at: OffsetDateTime,
    /// When it ended.
    #[serde(with = "time::serde::rfc3339::option")]
    pub finished_at: Option<OffsetDateTime>,
}

/// The calls of a filter, the newest first.
///
/// # Errors
///
/// The view cannot be read.
pub async fn calls(pool: &PgPool, filter: &Filter) -> Result<Vec<Row<ListedCall>>, StoreError> {
    let mut statement = QueryBuilder::new("");
    write(&mut statement, filter);
    statement
        .build_query_scalar()
        .fetch_all(pool)
        .await
        .map_err(|error| StoreError::from_sqlx("list calls", error))
}

/// The time by Postgres's clock, from which "two hours ago" counts.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn now(pool: &PgPool) -> Result<OffsetDateTime, StoreError> {
    sqlx::query_scalar("SELECT now()")
        .fetch_one(pool)
        .await
        .map_err(|error| StoreError::from_sqlx("ask Postgres for the time", error))
}

/// Appends the statement for this filter. Its plan is a promise, which a test checks.
pub fn write(statement: &mut QueryBuilder<Postgres>, filter: &Filter) {
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
    // The time of acceptance decides; the ids lead to the days and, within them, to the rows.
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

/// The smallest id of this millisecond; of a time before 1970 the smallest of all.
fn first_id(moment: OffsetDateTime) -> Uuid {
    let millis = u128::try_from(moment.unix_timestamp_nanos() / 1_000_000).unwrap_or_default();
    Uuid::from_u128(millis << 80)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_id_of_a_moment_has_its_milliseconds_and_nothing_else() {
        let id = |millis: i64| {
            let moment = OffsetDateTime::UNIX_EPOCH + Duration::milliseconds(millis);
            first_id(moment + Duration::microseconds(999)).to_string()
        };
        assert_eq!(id(0x0193_6c2e_0000), "01936c2e-0000-0000-0000-000000000000");
        assert_eq!(id(-5), "00000000-0000-0000-0000-000000000000");
    }
}
