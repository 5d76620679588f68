//! `GET /v1/turns/{turn}/events`: what happens to a turn, in order, as server-sent events in the shape of OpenAI's Responses.

use std::sync::Arc;

use axum::{
    extract::{Path, State, rejection::PathRejection},
    http::HeaderMap,
    response::Response,
};
use fleet::{
    bus::kept::KeptEvents,
    ids::Label,
    wire::{code::Code, message::Message},
};

use super::{
    named,
    turns::{LOOKERS, may_see, no_turn, turn_name},
};
use crate::{
    asked::Asked,
    auth::principal::Principal,
    follower::{stream_for, unheard},
    headers::LAST_EVENT_ID,
    query::Query,
    refusal::Refused,
    speaker::{SpokenId, StreamEpoch},
    state::Gateway,
    turns::{kept, ledger::rows, name::TurnName, tell::told, telling::TurnWanted},
};

/// Follows a turn.
pub(super) async fn follow(
    State(gateway): State<Arc<Gateway>>,
    turn: Result<Path<String>, PathRejection>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = asked.by(&LOOKERS)?;
    let name = turn_name(&named(turn))?;
    let tenant = asked.tenant(principal)?;
    let query = asked.query(&["starting_after", "extensions", "response_id"])?;
    let mut wanted = wanted(&asked.headers, &query, &tenant, &name)?;
    let whom = stream_for(&gateway, &asked, principal)?;
    wanted.is_kept = is_kept(&gateway, principal, &name, &wanted).await?;
    told(gateway, whom, &name, wanted).await
}

/// Whether the stream has the header of what is wanted.
///
/// # Errors
///
/// There is no such turn for who asks, or no such event of it.
async fn is_kept(
    gateway: &Gateway,
    principal: &Principal,
    name: &TurnName,
    wanted: &TurnWanted,
) -> Result<bool, Refused> {
    let keeper = gateway.sessions.keeper();
    let stream = kept::stands(keeper).await;
    let stream = stream.map_err(|error| unheard(&error))?;
    if wanted
        .last
        .as_ref()
        .is_some_and(|last| is_future(last, &stream))
    {
        return Err(bad_last());
    }
    let kept = kept::turn(keeper, &wanted.tenant, name).await;
    let kept = kept.map_err(|error| unheard(&error))?;
    let seen = match kept.first(name) {
        Some(header) => may_see(principal, header),
        // Its header may be on its way, or gone: what there is of its calls says whether there is such a turn.
        None => {
            let of = kept::session_of(&wanted.tenant, name);
            let next = keeper.next(&of, 1).await;
            let is_told = next.map_err(|error| unheard(&error))?.is_some();
            principal.has_all_tools()
                && (is_told || !rows(gateway, &wanted.tenant, name).await?.rows.is_empty())
        }
    };
    let mut headers = kept.headers.iter();
    let is_known = headers.any(|header| header.response_id == wanted.response);
    if seen && (is_known || wanted.response == name.response()) {
        return Ok(is_known);
    }
    Err(if seen { no_response() } else { no_turn() })
}

fn wanted(
    headers: &HeaderMap,
    query: &Query,
    tenant: &Label,
    name: &TurnName,
) -> Result<TurnWanted, Refused> {
    let number = Message::fixed("the number of an event", "是事件的序号");
    let extensions = match query.text("extensions") {
        None | Some("0") => false,
        Some("1") => true,
        Some(_other) => {
            let what = Message::fixed("extensions must be 0 or 1", "extensions 必须是 0 或 1");
            return Err(Refused::new(Code::InvalidArguments, what));
        }
    };
    let response = query.text("response_id").map(ToOwned::to_owned);
    Ok(TurnWanted {
        tenant: tenant.clone(),
        response: response.unwrap_or_else(|| name.response()),
        last: last(headers)?,
        after: query.value("starting_after", number)?,
        extensions,
        is_kept: false,
    })
}

fn last(headers: &HeaderMap) -> Result<Option<SpokenId>, Refused> {
    let mut lines = headers.get_all(&LAST_EVENT_ID).iter();
    let (Some(line), further) = (lines.next(), lines.next()) else {
        return Ok(None);
    };
    let id = line.to_str().ok().and_then(|text| text.parse().ok());
    id.filter(|_| further.is_none())
        .map(Some)
        .ok_or_else(bad_last)
}

/// Whether an id is behind everything that there has been.
fn is_future(last: &SpokenId, stream: &KeptEvents) -> bool {
    let epoch: Option<StreamEpoch> = stream.epoch.to_string().parse().ok();
    let place = epoch.and_then(|epoch| last.within(&epoch));
    place.is_some_and(|place| place.seq > stream.last)
}

fn no_response() -> Refused {
    let what = Message::fixed(
        "the turn has no such response; response_id is that of an answer to its outputs",
        "这个 turn 没有这个响应；response_id 取自提交输出后得到的回答",
    );
    Refused::new(Code::NotFound, what)
}

fn bad_last() -> Refused {
    let what = Message::fixed(
        "Last-Event-ID must be the id of an event that was sent here",
        "Last-Event-ID 必须是这里发送过的事件的 id",
    );
    Refused::new(Code::HeaderInvalid, what)
}
