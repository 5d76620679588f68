//! The response behind another one: once a client has handed in what the calls of a turn waited for, those that go on are told anew.

use std::collections::HashMap;

use fleet::{
    ids::{CallId, Label},
    wire::event::{Event, Happening},
};

use serde::Deserialize;

use super::{
    header::TURN, kept, name::TurnName, output_form::call_of_request, outputs::HandedInFor,
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

impl ToldSoFar {
    /// Whether all of it was told.
    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether one of these calls goes on, as far as it has told.
    pub(crate) fn goes_on(&self, handed_in: &[&HandedInFor]) -> bool {
        let is_over = |call: &CallId| self.calls.get(call).is_some_and(|(_, is_over)| *is_over);
        let mut going = handed_in.iter().filter(|one| !one.ends());
        going.any(|one| !is_over(&one.call))
    }
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
    newest: &TurnHeader,
) -> Result<ToldSoFar, Unheard> {
    let of = kept::session_of(tenant, name);
    let mut speech = Speech::of(&newest.response_id);
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

/// The request for a yes in an event, by its call.
fn request_in(event: &SpokenEvent) -> Option<(CallId, String)> {
    #[derive(Deserialize)]
    struct DoneEvent {
        item: EndedItem,
    }
    #[derive(Deserialize)]
    struct EndedItem {
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
    Some((call_of_request(&item.id)?, item.id))
}

/// The response behind this one, for which these were handed in.
pub(crate) fn response_behind(
    name: &TurnName,
    before: &TurnHeader,
    handed_in: &[&HandedInFor],
) -> String {
    let outputs = handed_in.iter().map(|one| (one.call, one.hash.as_str()));
    name.response_behind(&before.response_id, &outputs.collect::<Vec<_>>())
}

/// Whether a response tells what becomes of one of these calls.
pub(crate) fn tells(header: &TurnHeader, handed_in: &[&HandedInFor]) -> bool {
    let mut calls = header.calls.iter().filter_map(|call| call.id());
    calls.any(|call| handed_in.iter().any(|one| one.call == call && !one.ends()))
}

/// The header of the response behind the newest one; `None`: what was handed in is told in that, or nothing is left to tell. Pure.
pub(crate) fn header_behind(
    name: &TurnName,
    newest: &TurnHeader,
    so_far: &ToldSoFar,
    handed_in: &[&HandedInFor],
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
    Some(TurnHeader {
        response_id: response_behind(name, newest, handed_in),
        previous_response_id: Some(newest.response_id.clone()),
        calls,
        ..newest.clone()
    })
}
