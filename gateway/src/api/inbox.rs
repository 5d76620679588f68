//! `GET /v1/doubts` and `GET /v1/waiting`: the calls that need somebody, those first that have waited longest or end first.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use fleet::{tokens::Scope, wire::message::Message};
use fleet_history::{
    Row,
    doubts::{self, ListedDoubt},
    waiting::{self, ListedWait},
};
use serde::de::DeserializeOwned;

use crate::{
    answer, asked::Asked, auth::principal::Principal, headers::Speaker, page, refusal::Refused,
    state::Gateway, views::unreadable,
};

const ID: Message = Message::fixed("a call id", "是 call_id");
/// Who may look at calls in doubt.
const LOOKERS_AT_DOUBTS: [Scope; 2] = [Scope::Read, Scope::Settle];
/// Who may look at calls that wait.
const LOOKERS_AT_WAITS: [Scope; 2] = [Scope::Read, Scope::Approve];

/// The calls in doubt, the longest in doubt first.
pub(super) async fn doubts(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = asked.by(&LOOKERS_AT_DOUBTS)?;
    let tenant = asked.tenant(principal)?;
    let query = asked.query(&["call", "limit"])?;
    let (call, limit) = (query.value("call", ID)?, page::limit(&query)?);
    let found = doubts::inbox(&gateway.views, Some(&tenant), call, limit).await;
    let found = found.map_err(|error| unreadable(&error))?;
    let is_full = page::is_full(&found, limit);
    let seen = seen(found, principal, |row: ListedDoubt| row.tool);
    Ok(told("doubts", &seen, is_full))
}

/// The calls that wait for somebody outside the fleet, the one whose wait ends first before others.
pub(super) async fn waiting(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = asked.by(&LOOKERS_AT_WAITS)?;
    let tenant = asked.tenant(principal)?;
    let query = asked.query(&["call", "limit"])?;
    let (call, limit) = (query.value("call", ID)?, page::limit(&query)?);
    let found = waiting::all(&gateway.views, Some(&tenant), call, limit).await;
    let found = found.map_err(|error| unreadable(&error))?;
    let is_full = page::is_full(&found, limit);
    let seen = seen(found, principal, |row: ListedWait| row.tool);
    Ok(told("waiting", &seen, is_full))
}

/// The rows of tools that who asks may use.
fn seen<T: DeserializeOwned>(
    rows: Vec<Row<T>>,
    principal: &Principal,
    tool: impl Fn(T) -> String,
) -> Vec<Row<T>> {
    let may_see = |row: &Row<T>| {
        let row = row.read().ok();
        row.is_some_and(|row| principal.may_use(&tool(row)))
    };
    let mut rows = rows;
    rows.retain(may_see);
    rows
}

/// `more`: there are further ones, for which a higher limit has room.
fn told<T>(name: &str, rows: &[Row<T>], more: bool) -> Response {
    let rows = Row::json_of_all(rows);
    let listed = format!("{{\"{name}\":{rows},\"more\":{more}}}");
    answer::plain(listed, Speaker::Gateway, StatusCode::OK)
}
