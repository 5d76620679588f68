//! `POST /v1/turns`: makes many calls as one turn. `GET /v1/turns/{turn}`: how they stand.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    http::{HeaderMap, HeaderValue, StatusCode, header::LOCATION},
    response::Response,
};
use fleet::{
    ids::{IdempotencyKey, Label},
    tokens::Scope,
    wire::{code::Code, message::Message},
};
use fleet_history::{
    calls::{calls, now},
    filter::Filter,
};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};
use time::Duration;

use super::named;
use crate::{
    answer,
    asked::Asked,
    auth::principal::Principal,
    body,
    follower::unheard,
    headers::{IDEMPOTENCY_KEY, Speaker},
    refusal::Refused,
    speaker::{TurnHeader, TurnSlot},
    state::Gateway,
    turns::{
        asked_for::TurnAsked,
        kept,
        make::{Made, make},
        name::TurnName,
    },
    views::unreadable,
};

/// Who may look at turns.
pub(super) const LOOKERS: [Scope; 2] = [Scope::Call, Scope::Read];
/// Where turns are found.
const TURNS: &str = "/v1/turns";
/// How long a turn is found by its rows.
const BACK: Duration = Duration::hours(24);
/// The most calls of a turn.
const CALLS_MAX: i64 = 64;
/// The most bytes of a turn. Its header has the arguments once more, as text, and has to fit into one message, too.
const TURN_MAX: usize = 3 * 1024 * 1024;
/// What stands around the arguments in a header.
const AROUND: usize = 48 * 1024;

/// Makes a turn, or finds it.
pub(super) async fn submit(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    #[derive(Serialize)]
    struct TurnTaken<'a> {
        turn_id: String,
        session: Label,
        response_id: String,
        items: Vec<&'a RawValue>,
    }

    let principal = asked.by(&[Scope::Call])?;
    let tenant = asked.tenant(principal)?;
    asked.query(&[])?;
    let body = body::read(&asked.headers, body, bytes_max(&gateway)).await?;
    let turn = TurnAsked::read(&body)?;
    let name = TurnName::of(&tenant, principal.name(), &key(&asked.headers)?);
    let items = match make(&gateway, &asked.headers, principal, (&tenant, &name), &turn).await? {
        Made::Items(items) => items,
        Made::Refused(answered) => return Ok(answer::of_door(&answered)),
    };
    let taken = TurnTaken {
        turn_id: name.id(),
        session: name.session(),
        response_id: name.response(),
        items: items.iter().map(|item| &*item.said).collect(),
    };
    let taken = serde_json::to_vec(&taken).expect("a turn has only string keys");
    let mut response = answer::plain(taken, Speaker::Gateway, StatusCode::ACCEPTED);
    let place = HeaderValue::try_from(format!("{TURNS}/{}", name.id()));
    let place = place.expect("the name of a turn is plain text");
    response.headers_mut().insert(LOCATION, place);
    Ok(response)
}

/// The most bytes of a turn whose header the server carries: as text, each character of the arguments may take two.
fn bytes_max(gateway: &Gateway) -> usize {
    let carried = gateway.dispatchers.client().connection().max_payload();
    TURN_MAX.min((carried / 2).saturating_sub(AROUND))
}

/// How the calls of a turn stand.
pub(super) async fn one(
    State(gateway): State<Arc<Gateway>>,
    turn: Result<Path<String>, PathRejection>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = asked.by(&LOOKERS)?;
    let name = turn_name(&named(turn))?;
    let tenant = asked.tenant(principal)?;
    asked.query(&[])?;
    let keeper = gateway.sessions.keeper();
    let headers = kept::headers(keeper, &tenant, &name).await;
    let headers = headers.map_err(|error| unheard(&error))?;
    let rows = rows(&gateway, &tenant, &name).await?;
    let first = headers.into_iter().next().map(|kept| kept.header);
    let turn = match first {
        Some(header) if may_see(principal, &header) => told(&header, &rows),
        None if !rows.is_empty() && sees_all(principal, &rows) => json!({
            "turn_id": name.id(), "session": name.session(), "items": rows,
        }),
        Some(_) | None => return Err(no_turn()),
    };
    let turn = turn.to_string();
    Ok(answer::plain(turn, Speaker::Gateway, StatusCode::OK))
}

/// The turn that a path names.
pub(super) fn turn_name(text: &str) -> Result<TurnName, Refused> {
    TurnName::read(text).ok_or_else(|| {
        let what = Message::fixed(
            "a turn's id is turn_ and 32 hexadecimal digits",
            "turn 的 id 是 turn_ 加 32 个十六进制数字",
        );
        Refused::new(Code::InvalidId, what)
    })
}

/// Whether somebody may see every call of a turn.
pub(super) fn may_see(principal: &Principal, header: &TurnHeader) -> bool {
    let tools = header.calls.iter().map(|call| &call.tool);
    let mut tools = tools.filter(|tool| !tool.is_empty());
    principal.has_all_tools() || tools.all(|tool| principal.may_use(tool))
}

/// There is no such turn, or not for who asks.
pub(super) fn no_turn() -> Refused {
    let what = Message::fixed("there is no such turn", "不存在这个 turn");
    Refused::new(Code::NotFound, what)
}

/// The rows of a turn's calls, the oldest first.
pub(super) async fn rows(
    gateway: &Gateway,
    tenant: &Label,
    name: &TurnName,
) -> Result<Vec<Value>, Refused> {
    let views = &gateway.views;
    let now = now(views).await.map_err(|error| unreadable(&error))?;
    let filter = Filter {
        tenant: Some(tenant.clone()),
        session: Some(name.session()),
        since: Some(now.saturating_sub(BACK)),
        limit: CALLS_MAX,
        ..Filter::default()
    };
    let found = calls(views, &filter).await;
    let found = found.map_err(|error| unreadable(&error))?;
    let rows = found.iter().rev();
    Ok(rows
        .filter_map(|row| serde_json::from_str(row.json()).ok())
        .collect())
}

fn sees_all(principal: &Principal, rows: &[Value]) -> bool {
    let mut tools = rows
        .iter()
        .map(|row| row["tool"].as_str().unwrap_or_default());
    principal.has_all_tools() || tools.all(|tool| principal.may_use(tool))
}

/// What the header says, and how the rows stand.
fn told(header: &TurnHeader, rows: &[Value]) -> Value {
    let items = header.calls.iter().map(|call| {
        let index = call.index;
        match &call.slot {
            TurnSlot::Refused { code, message } => json!({
                "index": index, "call_id": null, "tool": call.tool, "state": "refused",
                "error": {"code": code, "message": message},
            }),
            TurnSlot::CallId(id) => {
                let row = rows.iter().find(|row| row["call_id"] == id.to_string());
                let of = |field: &str| row.map_or(Value::Null, |row| row[field].clone());
                json!({
                    "index": index, "call_id": id, "tool": call.tool, "state": of("state"),
                    "outcome": of("outcome"), "attempts": of("attempts"), "code": of("error_code"),
                    "awaiting": of("awaiting"),
                })
            }
        }
    });
    let created_at = header
        .created_at
        .format(&time::format_description::well_known::Rfc3339);
    json!({
        "turn_id": header.turn_id,
        "session": header.session,
        "response_id": header.response_id,
        "order": header.order,
        "on_final": header.on_final,
        "created_at": created_at.ok(),
        "items": items.collect::<Vec<Value>>(),
    })
}

fn key(headers: &HeaderMap) -> Result<IdempotencyKey, Refused> {
    let mut lines = headers.get_all(&IDEMPOTENCY_KEY).iter();
    let Some(line) = lines.next() else {
        let what = Message::fixed(
            "a turn wants an Idempotency-Key, by which a repetition finds it",
            "turn 需要 Idempotency-Key，重复提交时靠它找到同一个 turn",
        );
        return Err(Refused::new(Code::MissingIdempotencyKey, what));
    };
    let text = line.to_str().unwrap_or_default();
    // One that stands there twice is none.
    let text = lines.next().map_or(text, |_twice| "");
    text.parse()
        .map_err(|bad| Refused::name(Code::InvalidIdempotencyKey, &bad))
}
