//! `POST /v1/turns`: makes many calls as one turn. `GET /v1/turns/{turn}`: how they stand.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{ACCEPT, LOCATION},
    },
    response::Response,
};
use fleet::{
    ids::{IdempotencyKey, Label},
    tokens::Scope,
    wire::{code::Code, message::Message},
};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};
use time::format_description::well_known::Rfc3339;

use super::named;
use crate::{
    answer,
    asked::Asked,
    auth::principal::Principal,
    body,
    follower::{stream_for, unheard},
    headers::{IDEMPOTENCY_KEY, Speaker},
    refusal::Refused,
    speaker::{TurnCall, TurnHeader, TurnSlot},
    state::Gateway,
    turns::{
        asked_for::TurnAsked,
        kept,
        ledger::{TurnRows, rows},
        make::{Made, make},
        name::TurnName,
        tell::told,
        telling::TurnWanted,
    },
};

/// Who may look at turns.
pub(super) const LOOKERS: [Scope; 2] = [Scope::Call, Scope::Read];
/// Where turns are found.
const TURNS: &str = "/v1/turns";
/// The most bytes of a turn. Its header has the arguments once more, as text, and has to fit into one message, too.
const TURN_MAX: usize = 3 * 1024 * 1024;
/// What stands around the arguments in a header, and why calls were refused.
const AROUND: usize = 128 * 1024;

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
    let body = body::read(&gateway.bodies, &asked, body, bytes_max(&gateway)).await?;
    let turn = body::aside(body.len(), move || TurnAsked::read(&body)).await??;
    let name = TurnName::of(&tenant, principal.name(), &key(&asked.headers)?);
    // Before anything is made: there may be no place for a stream.
    let whom = match wants_stream(&asked.headers) {
        true => Some(stream_for(&gateway, &asked, principal)?),
        false => None,
    };
    let items = match make(&gateway, &asked.headers, principal, (&tenant, &name), &turn).await? {
        Made::Items(items) => items,
        Made::Refused(answered) => return Ok(answer::of_door(&answered)),
    };
    let place = HeaderValue::try_from(format!("{TURNS}/{}", name.id()));
    let place = place.expect("the name of a turn is plain text");
    if let Some(whom) = whom {
        let wanted = TurnWanted::all_of(tenant, name.response());
        let mut response = told(gateway, whom, &name, wanted).await?;
        response.headers_mut().insert(LOCATION, place);
        return Ok(response);
    }
    let taken = TurnTaken {
        turn_id: name.id(),
        session: name.session(),
        response_id: name.response(),
        items: items.iter().map(|item| &*item.said).collect(),
    };
    let taken = serde_json::to_vec(&taken).expect("a turn has only string keys");
    let mut response = answer::plain(taken, Speaker::Gateway, StatusCode::ACCEPTED);
    response.headers_mut().insert(LOCATION, place);
    Ok(response)
}

/// Whether the client wants to be told in a stream, at once.
pub(super) fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter();
    let mut accepted = accepted.filter_map(|line| line.to_str().ok());
    accepted.any(|line| line.contains("text/event-stream"))
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
    let kept = kept::turn(keeper, &tenant, &name).await;
    let kept = kept.map_err(|error| unheard(&error))?;
    let found = rows(&gateway, &tenant, &name).await?;
    let first = kept.first(&name);
    let is_seen = match first {
        Some(header) => may_see(principal, header),
        None => !found.rows.is_empty() && sees_all(principal, &found.rows),
    };
    if !is_seen {
        return Err(no_turn());
    }
    let turn = shown(&name, first, &found).to_string();
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

fn sees_all(principal: &Principal, rows: &[Value]) -> bool {
    let mut tools = rows
        .iter()
        .map(|row| row["tool"].as_str().unwrap_or_default());
    principal.has_all_tools() || tools.all(|tool| principal.may_use(tool))
}

/// What is known of a call of a turn: the same fields for each, with `null` where it is not known.
#[derive(Debug, Serialize)]
struct ShownCall {
    /// `None`: the stream has forgotten it.
    index: Option<u32>,
    /// `None`: it was refused.
    call_id: Value,
    tool: Value,
    state: Value,
    outcome: Value,
    attempts: Value,
    /// The code of its error, or of its refusal.
    code: Value,
    awaiting: Value,
    /// Why it was refused.
    error: Value,
}

impl ShownCall {
    /// A call as its row says it, if there is one.
    fn of_row(index: Option<u32>, call_id: Value, tool: Value, row: Option<&Value>) -> Self {
        let of = |field: &str| row.map_or(Value::Null, |row| row[field].clone());
        Self {
            index,
            call_id,
            tool,
            state: of("state"),
            outcome: of("outcome"),
            attempts: of("attempts"),
            code: of("error_code"),
            awaiting: of("awaiting"),
            error: Value::Null,
        }
    }

    fn refused(call: &TurnCall, code: Code, message: &str) -> Self {
        let (index, tool) = (Some(call.index), json!(call.tool));
        Self {
            state: json!("refused"),
            code: json!(code),
            error: json!({"code": code, "message": message}),
            ..Self::of_row(index, Value::Null, tool, None)
        }
    }
}

/// A turn: what its header says where the stream has it, and how the rows stand. The fields are the same without the header.
fn shown(name: &TurnName, header: Option<&TurnHeader>, found: &TurnRows) -> Value {
    let items: Vec<ShownCall> = match header {
        Some(header) => {
            let calls = header.calls.iter();
            calls.map(|call| item_of(call, &found.rows)).collect()
        }
        None => {
            let rows = found.rows.iter();
            let item = |row: &Value| {
                let (call, tool) = (row["call_id"].clone(), row["tool"].clone());
                ShownCall::of_row(None, call, tool, Some(row))
            };
            rows.map(item).collect()
        }
    };
    let created_at = header.map(|header| header.created_at);
    let created_at = created_at.or_else(|| found.accepted_at());
    json!({
        "turn_id": name.id(),
        "session": name.session(),
        "response_id": name.response(),
        "order": header.map(|header| header.order),
        "on_final": header.map(|header| header.on_final),
        "created_at": created_at.and_then(|at| at.format(&Rfc3339).ok()),
        "items": items,
    })
}

fn item_of(call: &TurnCall, rows: &[Value]) -> ShownCall {
    match &call.slot {
        TurnSlot::Refused { code, message, .. } => ShownCall::refused(call, *code, message),
        TurnSlot::CallId(id) => {
            let row = rows.iter().find(|row| row["call_id"] == id.to_string());
            ShownCall::of_row(Some(call.index), json!(id), json!(call.tool), row)
        }
    }
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
