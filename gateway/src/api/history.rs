//! `GET /v1/history` and `GET /v1/history/{call}`: calls as the documented views have them.

use std::sync::Arc;

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
    filter::Filter,
    story::{Story, story},
};
use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339};

use super::named;
use crate::{
    answer,
    asked::{Asked, call_id},
    auth::principal::Principal,
    headers::Speaker,
    page,
    query::Query,
    refusal::Refused,
    state::Gateway,
    views::unreadable,
};

/// How far a look goes back that does not say how far.
const BACK: Duration = Duration::hours(24);

/// The calls that are meant, the newest first.
pub(super) async fn list(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = asked.by(&[Scope::Read])?;
    let tenant = asked.tenant(principal)?;
    let query = asked.query(&[
        "state", "tool", "session", "run", "since", "until", "before", "limit",
    ])?;
    let mut filter = filter(&query, principal)?;
    filter.tenant = Some(tenant);
    if filter.since.is_none() {
        let now = calls::now(&gateway.views).await;
        let end = filter
            .until
            .unwrap_or(now.map_err(|error| unreadable(&error))?);
        filter.since = Some(end.saturating_sub(BACK));
    }
    let found = calls::calls(&gateway.views, &filter).await;
    let found = found.map_err(|error| unreadable(&error))?;
    let last = found.last().and_then(|row| row.read().ok());
    let before = last.filter(|_| page::is_full(&found, filter.limit));
    let before = match before {
        Some(ListedCall { call_id, .. }) => format!("\"{call_id}\""),
        None => "null".to_owned(),
    };
    let rows = Row::json_of_all(&found);
    let page = format!("{{\"calls\":{rows},\"before\":{before}}}");
    Ok(answer::plain(page, Speaker::Gateway, StatusCode::OK))
}

/// Everything about one call.
pub(super) async fn one(
    State(gateway): State<Arc<Gateway>>,
    call: Result<Path<String>, PathRejection>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = asked.by(&[Scope::Read])?;
    let call = call_id(&named(call))?;
    let tenant = asked.tenant(principal)?;
    asked.query(&[])?;
    let found = story(&gateway.views, call).await;
    let found = found.map_err(|error| unreadable(&error))?;
    let visible = found.filter(|story| {
        let of = |name| text(story, name);
        of("tenant").as_deref() == Some(tenant.as_str())
            && of("tool").is_some_and(|tool| principal.may_use(&tool))
    });
    let Some(story) = visible else {
        let what = Message::fixed("there is no such call", "不存在这个调用");
        return Err(Refused::new(Code::NotFound, what));
    };
    let Story {
        call,
        attempts,
        events,
    } = &story;
    let page = format!(
        "{{\"call\":{},\"attempts\":{},\"events\":{}}}",
        call.json(),
        attempts.json(),
        events.json()
    );
    Ok(answer::plain(page, Speaker::Gateway, StatusCode::OK))
}

/// A column of a call that holds a text.
fn text(story: &Story, name: &str) -> Option<String> {
    let columns = story.call.read().ok()?;
    serde_json::from_str(columns.get(name)?.get()).ok()
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
