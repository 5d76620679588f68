//! The response behind another one: once a client has handed in what the calls of a turn waited for, those that go on are told anew.

use std::collections::HashMap;

use fleet::{
    ids::{CallId, Label},
    wire::event::{Event, Happening},
};

use serde::Deserialize;
use uuid::Uuid;

use super::{
    header::TURN,
    kept::{self, KeptHeader},
    name::TurnName,
    outputs::HandedInFor,
};
use crate::{
    events::{keeper::Keeper, place::EventId, told::SessionEvent, unheard::Unheard},
    speaker::{News, SpeakerInput, Speech, SpokenEvent, TurnHeader},
};

/// The most events of a response that are looked at.
const EVENTS_MAX: usize = 100_000;

/// What a response has told.
#[derive(Debug)]
pub(crate) struct ToldSoFar {
    /// Whether all of it was told.
    is_over: bool,
    /// Of each call: its last event, and whether it is over.
    calls: HashMap<CallId, (u64, bool)>,
    /// The requests for a yes that it has shown, by their calls.
    requests: HashMap<CallId, String>,
}

/// What the newest response of a turn has told up to now: the same computation that its followers get.
///
/// # Errors
///
/// Nothing is heard of the stream.
pub(crate) async fn told_so_far(
    keeper: &Keeper,
    tenant: &Label,
    name: &TurnName,
    newest: &KeptHeader,
) -> Result<ToldSoFar, Unheard> {
    let of = kept::session_of(tenant, name);
    let mut speech = Speech::of(&newest.header.response_id);
    let mut calls: HashMap<CallId, (u64, bool)> = HashMap::new();
    let mut requests = HashMap::new();
    let mut from = 1;
    for _ in 0..EVENTS_MAX {
        let Some(kept) = keeper.next(&of, from).await? else {
            break;
        };
        from = kept.sequence + 1;
        let id = EventId {
            epoch: 0,
            sequence: kept.sequence,
        };
        let event = SessionEvent::new(id, kept.at, kept.payload.into());
        let news = if event.kind == TURN {
            let header = TurnHeader::read(&event.payload);
            header.map_or(News::Other, |header| News::Header(Box::new(header)))
        } else {
            Event::read(&event.payload).map_or(News::Other, News::Event)
        };
        if let News::Event(event) = &news {
            let is_end = matches!(&event.what, Happening::Finished { .. });
            let (last, is_over) = calls.entry(event.call_id).or_default();
            *last = event.sequence.max(*last);
            *is_over |= is_end;
        }
        let spoken = speech.hear(SpeakerInput {
            seq: kept.sequence,
            at: kept.at,
            news,
        });
        requests.extend(spoken.events.iter().filter_map(request_in));
        if speech.is_over() {
            break;
        }
    }
    Ok(ToldSoFar {
        is_over: speech.is_over(),
        calls,
        requests,
    })
}

/// The request for a yes in an event, by its call: `mcpr_`, the call's id, and how often that has spoken.
fn request_in(event: &SpokenEvent) -> Option<(CallId, String)> {
    #[derive(Deserialize)]
    struct DoneEvent {
        item: DoneItem,
    }
    #[derive(Deserialize)]
    struct DoneItem {
        id: String,
        r#type: String,
    }

    if event.name != "response.output_item.done" {
        return None;
    }
    let DoneEvent { item } = serde_json::from_str(&event.data).ok()?;
    if item.r#type != "mcp_approval_request" {
        return None;
    }
    let call = item.id.split('_').nth(1)?.parse::<Uuid>().ok()?;
    Some((CallId(call), item.id))
}

/// The header of the response behind the newest one; `None`: what was handed in is told in that, or nothing is left to tell. Pure.
pub(crate) fn header_behind(
    name: &TurnName,
    newest: &TurnHeader,
    so_far: &ToldSoFar,
    handed_in: &[HandedInFor],
) -> Option<TurnHeader> {
    if !so_far.is_over {
        return None;
    }
    let is_left = |call: &CallId| {
        let is_over = so_far.calls.get(call).is_some_and(|(_, is_over)| *is_over);
        let mut ended = handed_in.iter().filter(|one| one.ends());
        !is_over && !ended.any(|one| one.call == *call)
    };
    let left = newest.calls.iter();
    let left = left.filter(|call| call.id().as_ref().is_some_and(is_left));
    let mut calls: Vec<_> = left.cloned().collect();
    for (index, call) in (0..).zip(&mut calls) {
        call.index = index;
        let told = call.id().and_then(|id| so_far.calls.get(&id));
        call.told_until = told.map(|(last, _)| *last);
        let request = call.id().and_then(|id| so_far.requests.get(&id));
        if let Some(request) = request {
            call.approval_request_id = Some(request.clone());
        }
    }
    if calls.is_empty() {
        return None;
    }
    let ids: Vec<CallId> = handed_in.iter().map(|one| one.call).collect();
    Some(TurnHeader {
        response_id: name.response_behind(&newest.response_id, &ids),
        previous_response_id: Some(newest.response_id.clone()),
        calls,
        ..newest.clone()
    })
}
