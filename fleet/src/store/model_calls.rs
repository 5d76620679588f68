//! Requests to models on record: a row is committed before its request leaves, and filled once that is over.
//!
//! Both statements may be repeated. A row that is never filled says that its request may have been paid for. Of a tool with a budget
//! they also count what is spent ([`super::model_spend`]).

use std::time::Duration;

use sqlx::PgPool;
use uuid::Uuid;

use super::{StoreError, answer::answer_within};
use crate::{
    call::words,
    ids::{AttemptId, CallId, Label, ToolName},
    manifest::Budget,
    wire::code::Code,
};

/// How long the row of a request is waited for: the request waits as long.
const BEGIN_MAX: Duration = Duration::from_secs(5);
/// How long one statement that fills a row is waited for: the answer waits as long.
const FILL_MAX: Duration = Duration::from_secs(1);
/// The longest name of a model that is kept.
const MODEL_CHARS_MAX: usize = 200;

words! {
    /// What a request to a model was for.
    ModelCallKind {
        /// The answer of a call.
        Answer = "answer",
        /// The summary of a part of a conversation, which the request for an answer goes on from.
        Summary = "summary",
    }
}

/// A request that is about to leave.
#[derive(Debug, Clone, Copy)]
pub struct NewModelCall<'a> {
    /// Its call.
    pub call: CallId,
    /// It itself, made by the worker: ordered by time.
    pub request: Uuid,
    /// Its attempt.
    pub attempt_id: AttemptId,
    /// The attempt's number.
    pub attempt: u32,
    /// Whose call it is.
    pub tenant: &'a Label,
    /// The tool that asks, which may stand in for the call's own.
    pub tool: &'a ToolName,
    /// The tool's version.
    pub tool_version: i32,
    /// The call's session.
    pub session: Option<&'a Label>,
    /// The call's run.
    pub run: Option<&'a Label>,
    /// The route by its name.
    pub route: &'a str,
    /// The model that is asked for.
    pub model: &'a str,
    /// What for.
    pub kind: ModelCallKind,
    /// What the tool may spend; `None`: nothing is counted.
    pub budget: Option<&'a Budget>,
}

impl NewModelCall<'_> {
    /// The run for which is counted.
    fn counted_run(&self) -> Option<&str> {
        let run = self
            .run
            .filter(|_run| self.budget.is_some_and(Budget::is_per_run));
        run.map(Label::as_str)
    }
}

/// Tokens of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpentTokens {
    /// Everything that was read.
    pub input: u64,
    /// What the vendor had kept of that.
    pub cached_input: u64,
    /// What it has kept of that for later.
    pub cache_write: u64,
    /// Everything that was written.
    pub output: u64,
    /// The reasoning in that.
    pub reasoning: u64,
    /// Whether these are guesses.
    pub estimated: bool,
}

/// What became of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndedModelCall {
    /// The model that has answered, as it says; its first 200 characters are kept, without those that are no text.
    pub model: Option<String>,
    /// How long the first token took; `None`: it was no stream, or none came.
    pub first_token: Option<Duration>,
    /// How long all of it took.
    pub run: Duration,
    /// `None`: nobody knows of any.
    pub tokens: Option<SpentTokens>,
    /// The amount as decimal text, and its currency. `None`: the route has no price, or nobody knows of tokens.
    pub cost: Option<(String, String)>,
    /// Why the model stopped, as a word.
    pub finish: Option<&'static str>,
    /// How it failed; `None`: it was answered.
    pub code: Option<Code>,
    /// The status of the answer that says that the route is wrong; `None`: none did.
    pub misconfigured: Option<u16>,
}

/// Puts a request on record, before it leaves. Own statement, which is durable when this returns.
///
/// # Errors
///
/// Postgres does not answer, or refuses: the request must not leave. The row may be there all the same, and is never filled then.
pub async fn begin(pool: &PgPool, new: NewModelCall<'_>) -> Result<(), StoreError> {
    let inserting = sqlx::query(
        "WITH begun AS ( \
             INSERT INTO toolfleet.model_requests (call_id, request_id, attempt_id, attempt, tenant, tool, tool_version, session, run, \
                 route, model_asked, kind) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING RETURNING tenant, tool) \
         INSERT INTO toolfleet.model_spend AS s (tenant, tool, scope, key, currency, backend, day, calls) \
         SELECT b.tenant, b.tool, 'run', $13, '', pg_backend_pid(), (now() AT TIME ZONE 'UTC')::date, 1 \
         FROM begun b WHERE $13 IS NOT NULL AND NOT EXISTS ( \
             SELECT FROM toolfleet.model_requests m WHERE m.call_id = $1 AND m.tool = $6) \
         ON CONFLICT (tenant, tool, scope, key, currency, backend) DO UPDATE SET day = EXCLUDED.day, calls = s.calls + 1",
    )
    .bind(new.call.0)
    .bind(new.request)
    .bind(new.attempt_id.0)
    .bind(i32::try_from(new.attempt).unwrap_or(i32::MAX))
    .bind(new.tenant.as_str())
    .bind(new.tool.as_str())
    .bind(new.tool_version)
    .bind(new.session.map(Label::as_str))
    .bind(new.run.map(Label::as_str))
    .bind(new.route)
    .bind(new.model)
    .bind(new.kind.as_str())
    .bind(new.counted_run())
    .execute(pool);
    answer_within("put a request on record", BEGIN_MAX, inserting).await?;
    Ok(())
}

/// Fills the row of a request. Own statement; false: it is filled already, or its day is gone.
///
/// Not durable by itself: its commit is not waited for. Postgres writes its log in order, so it is on disk once anything later is that
/// was waited for, such as the end of the call.
///
/// # Errors
///
/// Postgres does not answer, or refuses.
pub async fn fill(
    pool: &PgPool,
    of: NewModelCall<'_>,
    ended: &EndedModelCall,
) -> Result<bool, StoreError> {
    let tokens =
        |of: fn(&SpentTokens) -> u64| ended.tokens.as_ref().map(|tokens| count(of(tokens)));
    let (amount, currency) = ended
        .cost
        .as_ref()
        .map(|(amount, currency)| (amount, currency))
        .unzip();
    let filling = sqlx::query_scalar(
        "SELECT toolfleet.fill_model_request($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)",
    )
    .bind(of.call.0)
    .bind(of.request)
    .bind(ended.model.as_deref().map(model_name))
    .bind(ended.first_token.map(millis))
    .bind(millis(ended.run))
    .bind(tokens(|tokens| tokens.input))
    .bind(tokens(|tokens| tokens.cached_input))
    .bind(tokens(|tokens| tokens.cache_write))
    .bind(tokens(|tokens| tokens.output))
    .bind(tokens(|tokens| tokens.reasoning))
    .bind(ended.tokens.map(|tokens| tokens.estimated))
    .bind(amount)
    .bind(currency)
    .bind(ended.finish)
    .bind(ended.code.map(Code::as_str))
    .bind(ended.misconfigured.and_then(|status| i16::try_from(status).ok()))
    .bind(of.counted_run())
    .bind(of.budget.is_some_and(Budget::is_per_day))
    .fetch_one(pool);
    answer_within("fill the record of a request", FILL_MAX, filling).await
}

fn count(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// A vendor's own word for its model, as far as it is the name of one.
fn model_name(said: &str) -> String {
    said.chars()
        .filter(|character| !character.is_control())
        .take(MODEL_CHARS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_cannot_fill_the_record_with_its_name() {
        for (said, kept) in [
            ("gpt-x", "gpt-x"),
            ("a\0b\n", "ab"),
            (&"名".repeat(201), &"名".repeat(200)),
        ] {
            assert_eq!(model_name(said), kept);
        }
    }
}
