//! Makes the calls of a turn, or finds them, and says in the stream of events which they are.

use std::sync::Arc;

use axum::http::HeaderMap;
use fleet::{
    ids::Label,
    wire::{code::Code, message::Message},
};
use fleet_client::{Answer, Question, question::DECISION_MAX};
use fleet_history::calls::now;
use time::OffsetDateTime;

use super::{
    answered::watch,
    asked_for::TurnAsked,
    header::{header_of, is_same},
    items::TurnItem,
    kept::{self, KeptHeader},
    name::TurnName,
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
    speaker::TurnSlot,
    state::Gateway,
};

/// What became of a turn.
#[derive(Debug)]
pub(crate) enum Made {
    /// What became of each of its calls.
    Items(Vec<TurnItem>),
    /// All of it was refused.
    Refused(Answer),
}

/// Makes it. Where it was made before, its calls are found by their keys, and those that were refused then stay refused.
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
    let keeper = gateway.sessions.keeper();
    let known = kept::headers(keeper, tenant, name).await;
    let known = known.map_err(|error| unheard(&error))?.into_iter().next();
    if known
        .as_ref()
        .is_some_and(|known| !is_same(asked, &known.header))
    {
        return Err(another());
    }
    let places = places(asked, known.as_ref());
    let mut sent = Vec::new();
    if !places.is_empty() {
        let body = asked.batch(name, &places);
        let answered = send(gateway, headers, principal, (tenant, name), body).await?;
        match TurnItem::all_of(answered.bytes()) {
            Some(items) if items.len() == places.len() => sent = items,
            Some(_) | None => return Ok(Made::Refused(answered)),
        }
    }
    if sent.iter().any(TurnItem::is_another) {
        return Err(another());
    }
    let items = together(known.as_ref(), &places, sent);
    if known.is_none() {
        let tools: Vec<String> = asked.calls.iter().map(|call| call.tool.clone()).collect();
        let shown = shown(&gateway.views, &tools).await;
        let accepted = items.iter().filter_map(|item| item.accepted_at).min();
        let created_at = match accepted {
            Some(at) => at,
            // None of its calls was accepted.
            None => now(&gateway.views)
                .await
                .unwrap_or(OffsetDateTime::UNIX_EPOCH),
        };
        let header = header_of(name, asked, &items, &shown, created_at);
        let kept = kept::keep(keeper, tenant, name, &header, None).await;
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
        watch(gateway, tenant, &known.header);
    }
    Ok(Made::Items(items))
}

/// The places of the calls that are sent: all of a new turn, and of one that was made those that were accepted.
fn places(asked: &TurnAsked, known: Option<&KeptHeader>) -> Vec<usize> {
    let all = 0..asked.calls.len();
    let Some(known) = known else {
        return all.collect();
    };
    let calls = &known.header.calls;
    all.filter(|place| calls[*place].id().is_some()).collect()
}

/// What was answered at these places, and what was refused before at the others.
fn together(known: Option<&KeptHeader>, places: &[usize], sent: Vec<TurnItem>) -> Vec<TurnItem> {
    let Some(known) = known else {
        return sent;
    };
    let mut sent = places.iter().copied().zip(sent).peekable();
    let calls = known.header.calls.iter().enumerate();
    let items = calls.filter_map(|(place, call)| match &call.slot {
        TurnSlot::Refused { code, message } => Some(TurnItem::refused(&call.tool, *code, message)),
        TurnSlot::CallId(_) => sent
            .next_if(|(sent, _)| *sent == place)
            .map(|(_, item)| item),
    });
    items.collect()
}

async fn send(
    gateway: &Gateway,
    headers: &HeaderMap,
    principal: &Principal,
    (tenant, name): (&Label, &TurnName),
    body: String,
) -> Result<Answer, Refused> {
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

fn another() -> Refused {
    let what = Message::fixed(
        "the key is that of a turn with other calls",
        "这个 key 已用于另一个包含其他调用的 turn",
    );
    Refused::new(Code::IdempotencyKeyReused, what)
}
