//! `GET /v1/history`, `GET /v1/history/{call}` and `GET /v1/history/{call}/why`: calls as the documented views have them.

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    extract::{Path, State, rejection::PathRejection},
    http::StatusCode,
    response::Response,
};
use fleet::{
    ids::CallId,
    tokens::Scope,
    wire::{code::Code, message::Message},
};
use fleet_history::{
    Row,
    calls::{self, ListedCall},
    explain::{self, Explanation, Facts},
    filter::Filter,
    look::{Found, look},
    story::{Story, story},
};
use serde_json::{Value, json, value::RawValue};
use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::time::Instant;

use super::named;
use crate::{
    answer,
    asked::{Asked, call_id},
    auth::principal::Principal,
    form::Fields,
    headers::Speaker,
    page,
    query::Query,
    refusal::Refused,
    state::Gateway,
    views::{looked, looked_long},
};

/// How long calls are looked through at most: with the last part of it the statements' own two seconds more.
const WITHIN_MAX_MS: u64 = 2_000;
/// How far a look goes back that does not say how far.
const BACK: Duration = Duration::hours(24);

/// The calls that are meant, the newest first.
pub(super) async fn list(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = asked.by(&[Scope::Read])?;
    let reached = asked.looks_at(principal)?;
    let query = asked.query(&[
        "state",
        "tool",
        "session",
        "run",
        "since",
        "until",
        "before",
        "limit",
        "arguments",
        "why",
        "text",
        "within_ms",
    ])?;
    let mut filter = filter(&query, principal)?;
    filter.tenant = reached;
    // In the statement: else the place of the next page would tell of calls that are not shown.
    filter.but_of = principal.hidden_tenant();
    filter.tells_others = principal.sees_every_call();
    if filter.since.is_none() {
        let now = looked(calls::now(&gateway.views)).await?;
        let end = filter.until.unwrap_or(now);
        filter.since = Some(end.saturating_sub(BACK));
    }
    let within = within(&query)?;
    let text = query.text("text");
    let _place = match text.is_some() || filter.reads_others() {
        true => Some(gateway.looks.begin(principal, text.is_some()).await?),
        false => None,
    };
    let end = Instant::now() + within;
    let looking = look(&gateway.views, &filter, text, || Instant::now() < end);
    let Found {
        calls: found,
        until,
    } = looked_long(looking).await?;
    let before = until.map_or_else(|| "null".to_owned(), |call| format!("\"{call}\""));
    let rows = match query.value("why", BOOLEAN)? {
        Some(true) => explained(&gateway, &found).await?,
        Some(false) | None => Row::json_of_all(&found),
    };
    let page = format!("{{\"calls\":{rows},\"before\":{before}}}");
    Ok(answer::plain(page, Speaker::Gateway, StatusCode::OK))
}

/// The rows, where those that do not run say why: the first [`EXPLAINED_MAX`] of them.
async fn explained(gateway: &Gateway, rows: &[Row<ListedCall>]) -> Result<String, Refused> {
    let waits = rows.iter().filter_map(|row| {
        let call = row.read().ok()?;
        let waits = WAITS.contains(&call.state.as_str());
        waits.then(|| call.call_id.parse::<CallId>().ok())?
    });
    let waits: Vec<CallId> = waits.take(EXPLAINED_MAX).collect();
    if waits.is_empty() {
        return Ok(Row::json_of_all(rows));
    }
    let facts = looked(explain::facts_of(&gateway.views_of_calls, &waits));
    let facts = match facts.await {
        Ok(facts) => facts,
        Err(refused) => {
            tracing::debug!(code = %refused.code(), "a list of calls does not say why they do not run");
            return Ok(Row::json_of_all(rows));
        }
    };
    let facts: Vec<Facts> = facts.iter().filter_map(|row| row.read().ok()).collect();
    let told = rows.iter().map(|row| {
        let call = row.read().ok();
        let facts = call.and_then(|call| {
            facts
                .iter()
                .find(|facts| facts.call_id.to_string() == call.call_id)
        });
        match (facts, Fields::of(row.json())) {
            (Some(facts), Ok(mut fields)) => {
                fields.push("why", &why_of(facts));
                fields.to_text()
            }
            (_, _) => row.json().to_owned(),
        }
    });
    Ok(format!("[{}]", told.collect::<Vec<_>>().join(",")))
}

/// Everything about one call.
pub(super) async fn one(
    State(gateway): State<Arc<Gateway>>,
    call: Result<Path<String>, PathRejection>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = asked.by(&[Scope::Read])?;
    let call = call_id(&named(call))?;
    let reached = asked.looks_at(principal)?;
    asked.query(&[])?;
    let found = looked(story(&gateway.views_of_calls, call)).await?;
    let visible = found.filter(|story| {
        let of = |name| text(story, name);
        of("tenant").is_some_and(|tenant| principal.sees(reached.as_ref(), &tenant))
            && of("tool").is_some_and(|tool| principal.may_use(&tool))
    });
    let story = visible.ok_or_else(no_such_call)?;
    let Story {
        call,
        attempts,
        events,
        attempts_max,
        attempts_in_all,
        events_in_all,
    } = &story;
    let over = over(attempts.json());
    let page = format!(
        "{{\"call\":{},\"attempts\":{},\"events\":{},\"attempts_max\":{},\"attempts_in_all\":{attempts_in_all},\"events_in_all\":{events_in_all}}}",
        call.json(),
        rows_told(attempts.json(), &over),
        rows_told(events.json(), &over),
        json!(attempts_max),
    );
    Ok(answer::plain(page, Speaker::Gateway, StatusCode::OK))
}

/// Why a call does not run, or how it ended: the first reason that holds.
pub(super) async fn why(
    State(gateway): State<Arc<Gateway>>,
    call: Result<Path<String>, PathRejection>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = asked.by(&[Scope::Read])?;
    let call = call_id(&named(call))?;
    let reached = asked.looks_at(principal)?;
    asked.query(&[])?;
    let found = looked(explain::facts(&gateway.views_of_calls, call)).await?;
    let facts = found.and_then(|row| row.read().ok());
    let visible = facts.filter(|facts| {
        principal.sees(reached.as_ref(), &facts.tenant) && principal.may_use(&facts.tool)
    });
    let facts = visible.ok_or_else(no_such_call)?;
    let why = why_of(&facts).to_string();
    Ok(answer::plain(why, Speaker::Gateway, StatusCode::OK))
}

fn why_of(facts: &Facts) -> Value {
    let Explanation {
        reason,
        because,
        next,
        commands,
    } = explain::explain(facts);
    json!({ "reason": reason, "because": because, "next": next, "commands": commands })
}

fn no_such_call() -> Refused {
    let what = Message::fixed("there is no such call", "不存在这个调用");
    Refused::new(Code::NotFound, what)
}

/// Rows of attempts or moves without the ids of attempts that are not over: with its id an attempt proves that it speaks.
fn rows_told(rows: &str, over: &BTreeSet<String>) -> String {
    let rows: Vec<&RawValue> = serde_json::from_str(rows).unwrap_or_default();
    let rows = rows.into_iter().map(|row| {
        let mut fields = Fields::of(row.get()).unwrap_or_default();
        fields.change("attempt_id", |id| {
            let is_over = over.contains(id.get());
            (!is_over).then(|| RawValue::from_string("null".to_owned()).ok())?
        });
        fields.to_text()
    });
    format!("[{}]", rows.collect::<Vec<_>>().join(","))
}

/// The ids of attempts that are over, as they stand in the rows.
fn over(attempts: &str) -> BTreeSet<String> {
    let rows: Vec<&RawValue> = serde_json::from_str(attempts).unwrap_or_default();
    let rows = rows
        .into_iter()
        .filter_map(|row| Fields::of(row.get()).ok());
    let over = rows.filter(|row| row.values("finished_at").all(|at| at.get() != "null"));
    over.flat_map(|row| {
        let ids = row.values("attempt_id").map(|id| id.get().to_owned());
        ids.collect::<Vec<_>>()
    })
    .collect()
}

/// A column of a call that holds a text.
fn text(story: &Story, name: &str) -> Option<String> {
    let columns = story.call.read().ok()?;
    serde_json::from_str(columns.get(name)?.get()).ok()
}

/// How long calls may be looked through.
fn within(query: &Query) -> Result<std::time::Duration, Refused> {
    let within = query.value("within_ms", MILLIS)?.unwrap_or(WITHIN_MAX_MS);
    if (1..=WITHIN_MAX_MS).contains(&within) {
        return Ok(std::time::Duration::from_millis(within));
    }
    Err(Refused::new(Code::InvalidArguments, WITHIN))
}

fn filter(query: &Query, principal: &Principal) -> Result<Filter, Refused> {
    let (tool, limit) = (page::tool(query, principal)?, page::limit(query)?);
    Ok(Filter {
        tool,
        state: query.value("state", WORD)?,
        session: query.value("session", LABEL)?,
        run: query.value("run", LABEL)?,
        since: moment(query, "since")?,
        until: moment(query, "until")?,
        before: query.value::<CallId>("before", ID)?,
        limit,
        shows_arguments: query.value("arguments", BOOLEAN)?.unwrap_or(false),
        ..Filter::default()
    })
}

const WORD: Message = Message::fixed(
    "queued, running, in_doubt, awaiting_client, succeeded, failed, cancelled or expired",
    "是 queued、running、in_doubt、awaiting_client、succeeded、failed、cancelled 或 expired",
);
const LABEL: Message = Message::fixed(
    "1 to 64 characters of A-Z, a-z, 0-9, _ and -",
    "是 1 到 64 个字符，只能用 A-Z、a-z、0-9、_ 和 -",
);
const ID: Message = Message::fixed("a call id", "是 call_id");
const MILLIS: Message = Message::fixed("a whole number", "是整数");
const WITHIN: Message = Message::fixed("within_ms must be 1 to 2000", "within_ms 必须是 1 到 2000");
const BOOLEAN: Message = Message::fixed("true or false", "是 true 或 false");

/// The states of calls that do not run.
const WAITS: [&str; 3] = ["queued", "awaiting_client", "in_doubt"];
/// How many rows of a page say why they do not run.
const EXPLAINED_MAX: usize = 20;

fn moment(query: &Query, name: &str) -> Result<Option<OffsetDateTime>, Refused> {
    let Some(text) = query.text(name) else {
        return Ok(None);
    };
    let moment = OffsetDateTime::parse(text, &Rfc3339);
    moment.map(Some).map_err(|_rule| {
        let what = Message::fixed(
            "since and until must be RFC 3339 times such as 2026-01-31T12:00:00Z",
            "since 和 until 必须是 RFC 3339 时间，例如 2026-01-31T12:00:00Z",
        );
        Refused::new(Code::InvalidArguments, what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_an_attempt_that_runs_is_not_told() {
        let attempts = r#"[{"attempt_id":"a","number":1,"finished_at":"2026"},{"attempt_id":"b","number":2,"finished_at":null}]"#;
        let events = r#"[{"to_state":"running","attempt_id":"a"},{"to_state":"running","attempt_id":"b"},{"attempt_id":null,"details":{"x":1.50}}]"#;
        let over = over(attempts);
        assert_eq!(
            rows_told(attempts, &over),
            r#"[{"attempt_id":"a","number":1,"finished_at":"2026"},{"attempt_id":null,"number":2,"finished_at":null}]"#
        );
        assert_eq!(
            rows_told(events, &over),
            r#"[{"to_state":"running","attempt_id":"a"},{"to_state":"running","attempt_id":null},{"attempt_id":null,"details":{"x":1.50}}]"#
        );
    }
}
