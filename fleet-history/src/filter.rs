//! Which calls a person means: one filter for lists and for what is done to many calls.
//!
//! A condition is in the statement only where the filter has it, so that the plan need not suit conditions that are absent. All
//! of them are about columns of the views, so a value that the views do not show cannot be looked for either.

use fleet::{
    call::{CallOutcome, State},
    ids::{CallId, Label, QueueName, ToolName},
    store::bulk_retries::BulkRetry,
    wire::code::Code,
};
use sqlx::{Postgres, QueryBuilder};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::last_code::LastCode;

/// Which calls; an absent field does not restrict them.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Of this tool.
    pub tool: Option<ToolName>,
    /// Of this queue.
    pub queue: Option<QueueName>,
    /// In this state.
    pub state: Option<State>,
    /// With this outcome, which only finished calls have.
    pub outcome: Option<CallOutcome>,
    /// Of this tenant.
    pub tenant: Option<Label>,
    /// Of this tenant in no case.
    pub but_of: Option<&'static str>,
    /// Of this session.
    pub session: Option<Label>,
    /// Of this run.
    pub run: Option<Label>,
    /// The code of their error; of an open call, of its last attempt's.
    pub code: Option<Code>,
    /// What their last attempt came to: behind `retries_exhausted` and `deadline_exceeded` the code inside, else the same as `code`. Of a
    /// call in doubt, or that was, also the code of what went wrong; while it is in doubt also the word of `why`.
    pub last_code: Option<LastCode>,
    /// With these values in their arguments, as the views show them.
    pub args: Vec<ValueAt>,
    /// With these values in their results, as the views show them.
    pub results: Vec<ValueAt>,
    /// Accepted at this moment or later, by Postgres's clock.
    pub since: Option<OffsetDateTime>,
    /// Accepted before this moment.
    pub until: Option<OffsetDateTime>,
    /// This call and older ones.
    pub newest: Option<CallId>,
    /// Newer than this call, which is not among them.
    pub after: Option<CallId>,
    /// Older than this call, which is not among them: where the page before ended.
    pub before: Option<CallId>,
    /// Whether a look may tell the place of a call that is not meant, as where it ended: to who sees every call.
    pub tells_others: bool,
    /// The most calls.
    pub limit: i64,
    /// Whether a list shows the beginning of their arguments, which reads them.
    pub shows_arguments: bool,
}

impl Filter {
    /// Whether the history has an index that leads to the calls that are meant and to few others.
    const fn has_an_index(&self) -> bool {
        self.session.is_some() || self.run.is_some() || self.code.is_some()
    }

    /// Whether calls are read that are not meant, to find those that are: no index leads to them.
    pub fn reads_others(&self) -> bool {
        let Self {
            tool,
            queue,
            state,
            outcome,
            tenant,
            but_of,
            last_code,
            args,
            results,
            ..
        } = self;
        let by_word = tool.is_some() || queue.is_some() || tenant.is_some() || but_of.is_some();
        let by_end = state.is_some() || outcome.is_some() || last_code.is_some();
        let by_value = !args.is_empty() || !results.is_empty();
        (by_word || by_end || by_value) && !self.has_an_index()
    }

    /// Whether they are looked for window by window of all calls.
    pub(crate) fn has_windows_of_all(&self) -> bool {
        self.tells_others && !self.has_an_index()
    }

    /// The calls of a retry as they were fixed when it first began, of a filter with the same flags.
    #[must_use]
    pub fn of_retry(self, begun: &BulkRetry) -> Self {
        Self {
            since: Some(begun.since),
            until: Some(begun.until),
            newest: Some(begun.newest),
            ..self
        }
    }
}

/// A value at a place of a JSON document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueAt {
    /// The members and items that lead there; at least one.
    pub path: Vec<String>,
    /// JSON text. Numbers are compared as numbers, objects whatever the order of their members.
    pub value: String,
}

/// How far the time in a call's id may be from its acceptance: the id comes from the clock of its dispatcher, and is made
/// before the call is committed.
const DRIFT_MAX: Duration = Duration::minutes(5);

/// The same as [`conditions`] for the view `toolfleet.calls` itself.
pub(crate) fn conditions_of_calls(statement: &mut QueryBuilder<Postgres>, filter: &Filter) {
    conditions(statement, filter);
    half(statement, filter);
}

/// Of the view `toolfleet.calls` the half without calls of that state is not read.
pub(crate) fn half(statement: &mut QueryBuilder<Postgres>, filter: &Filter) {
    if let Some(state) = filter.state {
        statement.push(if state.is_terminal() {
            " AND NOT open"
        } else {
            " AND open"
        });
    }
}

/// Appends the conditions, each behind an `AND`, for a view with the columns of `toolfleet.calls` that they name.
pub(crate) fn conditions(statement: &mut QueryBuilder<Postgres>, filter: &Filter) {
    properties(statement, filter);
    bounds(statement, filter);
}

/// What the calls themselves are like.
pub(crate) fn properties(statement: &mut QueryBuilder<Postgres>, filter: &Filter) {
    let words = [
        ("tool", filter.tool.as_ref().map(ToolName::as_str)),
        ("queue", filter.queue.as_ref().map(QueueName::as_str)),
        ("state", filter.state.map(State::as_str)),
        ("outcome", filter.outcome.map(CallOutcome::as_str)),
        ("tenant", filter.tenant.as_ref().map(Label::as_str)),
        ("session", filter.session.as_ref().map(Label::as_str)),
        ("run", filter.run.as_ref().map(Label::as_str)),
        ("error->>'code'", filter.code.map(Code::as_str)),
    ];
    for (column, word) in words {
        if let Some(word) = word {
            statement
                .push(format_args!(" AND {column} = "))
                .push_bind(word.to_owned());
        }
    }
    if let Some(tenant) = filter.but_of {
        statement.push(" AND tenant <> ").push_bind(tenant);
    }
    if let Some(code) = filter.last_code {
        last_code(statement, code, filter.state);
    }
    let values = filter.args.iter().map(|value| ("args", value));
    for (column, at) in values.chain(filter.results.iter().map(|value| ("result", value))) {
        statement
            .push(format_args!(" AND ({column} #> "))
            .push_bind(at.path.clone())
            .push(")::jsonb = ")
            .push_bind(at.value.clone())
            .push("::jsonb");
    }
}

/// Between which moments and which calls they are.
pub(crate) fn bounds(statement: &mut QueryBuilder<Postgres>, filter: &Filter) {
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
    if let Some(newest) = filter.newest {
        statement.push(" AND call_id <= ").push_bind(newest.0);
    }
    if let Some(after) = filter.after {
        statement.push(" AND call_id > ").push_bind(after.0);
    }
    if let Some(before) = filter.before {
        statement.push(" AND call_id < ").push_bind(before.0);
    }
}

/// What their last attempt came to. Of a call in doubt the view of calls has the code, and only that of the doubts has the word.
fn last_code(statement: &mut QueryBuilder<Postgres>, code: LastCode, state: Option<State>) {
    let word = code.as_str();
    statement
        .push(" AND (coalesce(error->'details'->'last'->>'code', error->>'code') = ")
        .push_bind(word)
        .push(" OR error->'details'->'cause'->>'code' = ")
        .push_bind(word);
    if state.is_none_or(|state| state == State::InDoubt) {
        statement
            .push(" OR call_id IN (SELECT call_id FROM toolfleet.in_doubt WHERE why = ")
            .push_bind(word)
            .push(")");
    }
    statement.push(")");
}

/// The smallest id of this millisecond; of a time before 1970 the smallest of all.
pub(crate) fn first_id(moment: OffsetDateTime) -> Uuid {
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
