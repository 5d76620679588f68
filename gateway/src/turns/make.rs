//! Makes the calls of a turn, or finds them, and says in the stream of events which they are.

use std::sync::Arc;

use axum::http::HeaderMap;
use fleet::{
    ids::Label,
    said,
    wire::{code::Code, headers::RequestHeaders, message::Message},
};
use fleet_client::{Answer, Question, question::DECISION_MAX};
use fleet_history::calls::now;
use serde_json::json;
use time::OffsetDateTime;

use super::{
    answered::watch,
    asked_for::TurnAsked,
    forgotten::places_left,
    header::{header_of, is_same},
    items::TurnItem,
    kept,
    name::TurnName,
    refused::forgotten,
    shown::shown,
};
use crate::{
    api::batch::{Names, checked},
    auth::principal::Principal,
    follower::unheard,
    forward,
    headers::{IDEMPOTENCY_KEY, SESSION},
    referents::may_stand,
    refusal::{Refused, Repeatable},
    speaker::TurnHeader,
    state::Gateway,
    views::in_time,
};

/// What became of a turn.
#[derive(Debug)]
pub(crate) enum Made {
    /// What became of each of its calls.
    Items(Vec<TurnItem>),
    /// All of it was refused.
    Refused(Answer),
}

/// Makes it. Where it was made before, its calls are found by their keys, and those that were refused then stay refused, also where
/// the stream has forgotten that (`forgotten`).
///
/// # Errors
///
/// It may not be made, is another one than before, or nobody answers.
pub(crate) async fn make(
    gateway: &Arc<Gateway>,
    headers: &HeaderMap,
    principal: &Principal,
    (tenant, name): (&Label, &TurnName),
    asked: &TurnAsked,
) -> Result<Made, Refused> {
    let headers = headers_of(headers, principal, name)?;
    let keeper = gateway.sessions.keeper();
    let kept = kept::turn(keeper, tenant, name).await;
    let kept = kept.map_err(|error| unheard(&error))?;
    let known = kept.first(name);
    if known.is_some_and(|known| !is_same(asked, known)) {
        return Err(another(name));
    }
    let before = match known {
        Some(known) => refused_before(known),
        None => {
            let left = places_left(gateway, (tenant, name), asked).await?;
            refused_and_forgotten(asked, left)
        }
    };
    let is_sent = |(place, before): (usize, &Option<TurnItem>)| before.is_none().then_some(place);
    let places: Vec<usize> = before.iter().enumerate().filter_map(is_sent).collect();
    let mut sent = Vec::new();
    if !places.is_empty() {
        let body = asked.batch(name, &places);
        let answered = send(gateway, headers, principal, tenant, body).await?;
        match TurnItem::all_of(answered.bytes()) {
            Some(items) if items.len() == places.len() => sent = items,
            Some(_) | None => return Ok(Made::Refused(answered)),
        }
    }
    if sent.iter().any(TurnItem::is_another) {
        return Err(another(name));
    }
    // What nobody knows is told as nothing: the same request again finds out.
    if sent.iter().any(|item| item.is_unknown) {
        return Err(Refused::no_answer(Repeatable::ByKey));
    }
    let mut sent = sent.into_iter();
    let items = before.into_iter();
    let items: Vec<TurnItem> = items
        .filter_map(|before| before.or_else(|| sent.next()))
        .collect();
    if known.is_none() {
        let tools: Vec<String> = asked.calls.iter().map(|call| call.tool.clone()).collect();
        let shown = shown(&gateway.views, &tools).await;
        let accepted = items.iter().filter_map(|item| item.accepted_at).min();
        let created_at = match accepted {
            Some(at) => at,
            // None of its calls was accepted.
            None => in_time(now(&gateway.views))
                .await
                .unwrap_or(OffsetDateTime::UNIX_EPOCH),
        };
        let header = header_of(name, asked, &items, &shown, created_at);
        let kept = kept::keep(keeper, tenant, name, &header, Some(kept.last)).await;
        // The calls are made; the same request again says which they are.
        let is_first = kept.map_err(|error| {
            tracing::debug!(
                error = fleet::telemetry::report(&error),
                "the header of a turn was not kept"
            );
            Refused::no_answer(Repeatable::ByKey)
        })?;
        if !is_first {
            tracing::debug!("another gateway has said first which calls a turn has");
        }
        watch(gateway, tenant, &header);
    } else if let Some(known) = &known {
        // The gateway that has made it may be gone.
        watch(gateway, tenant, known);
    }
    Ok(Made::Items(items))
}

/// What was refused when the turn was made, by its place.
fn refused_before(known: &TurnHeader) -> Vec<Option<TurnItem>> {
    let calls = known.calls.iter();
    calls
        .map(|call| TurnItem::refused(&call.tool, &call.slot))
        .collect()
}

/// The same of a turn whose header is gone, of which the calls at these places are left; `None`: it has told nothing.
fn refused_and_forgotten(asked: &TurnAsked, left: Option<Vec<usize>>) -> Vec<Option<TurnItem>> {
    let is_left = |place| left.as_ref().is_none_or(|left| left.contains(&place));
    let calls = asked.calls.iter().enumerate();
    calls
        .map(|(place, call)| match is_left(place) {
            true => None,
            false => TurnItem::refused(&call.tool, &forgotten()),
        })
        .collect()
}

/// The headers of its batch. They are judged also where nothing is sent: the same request has the same answer.
fn headers_of(
    headers: &HeaderMap,
    principal: &Principal,
    name: &TurnName,
) -> Result<async_nats::HeaderMap, Refused> {
    if headers.contains_key(&SESSION) {
        let what = Message::fixed(
            "a turn has a session of its own: leave Toolfleet-Session out",
            "turn 有自己的会话：请去掉 Toolfleet-Session",
        );
        return Err(Refused::new(Code::HeaderInvalid, what));
    }
    let mut headers = headers.clone();
    headers.remove(&IDEMPOTENCY_KEY);
    let mut headers = forward::headers(&headers, principal.name())?;
    headers.insert(SESSION.as_str(), name.session().as_str());
    let lines = headers.iter().flat_map(|(name, values)| {
        let lines = values.iter();
        lines.map(|value| (AsRef::<str>::as_ref(name), value.as_str()))
    });
    let read = RequestHeaders::read(&lines.collect::<Vec<_>>());
    read.map_err(|bad| Refused::new(bad.code, bad.message()))?;
    Ok(headers)
}

async fn send(
    gateway: &Gateway,
    headers: async_nats::HeaderMap,
    principal: &Principal,
    tenant: &Label,
    body: String,
) -> Result<Answer, Refused> {
    let checked = checked(body.as_bytes(), principal, Names::OfTurn)?;
    let args = checked.referring.iter().map(|args| args.as_bytes());
    may_stand(&gateway.dispatchers, principal, tenant, args).await?;
    let question = Question {
        headers,
        // Committing this many takes time.
        patience: 2 * DECISION_MAX,
        ..Question::new(
            gateway.dispatchers.subjects().batch(tenant),
            checked.body.unwrap_or(body),
        )
    };
    gateway.dispatchers.ask(question, Repeatable::ByKey).await
}

fn another(name: &TurnName) -> Refused {
    let turn = name.id();
    let what = said!(
        "the key is that of the turn {turn}, which has other calls: other calls are a new turn with a key of its own",
        "这个 key 属于 turn {turn}，而它包含其他调用：其他调用需要用新的 key 提交新的 turn"
    );
    let refused = Refused::new(Code::IdempotencyKeyReused, what);
    refused.with_details(json!({ "turn_id": turn }))
}
