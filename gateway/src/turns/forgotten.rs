//! A turn that the stream of events has forgotten: what was told as refused must not be run when the turn is asked for again.
//!
//! The stream keeps a header for ten minutes, and forgets it with its server; the calls of the turn stand in the ledger. Where some
//! of them do, a call without a row is one of three:
//!
//! - the turn was made, and has told that the call was refused: it stays so;
//! - the turn was never made to its end, as the gateway was killed: nobody was told of the call, and it may be sent. A header comes
//!   behind the events `accepted` of its calls. So where the stream still has one of these and no header, there never was one;
//! - the turn is being made at this moment: nobody knows yet.
//!
//! Where none of them has a row, nothing is known of the turn, and the same request makes a new one.

use fleet::{
    ids::Label,
    wire::{
        code::Code,
        event::{Event, Happening},
        message::Message,
    },
};
use fleet_client::{Question, question::DECISION_MAX};
use serde_json::json;
use time::Duration;

use super::{asked_for::TurnAsked, kept::session_of, ledger::rows, name::TurnName};
use crate::{
    answer::Glimpse,
    follower::unheard,
    refusal::{Refused, Repeatable},
    state::Gateway,
};

/// For how long the calls of a turn may still be on their way into the ledger: longer than the gateway that makes it waits for them.
const MAKING_MAX: Duration = Duration::seconds(60);
const _: () = assert!(2 * DECISION_MAX.as_secs() < 60);

/// The places of the calls that are there, of a turn without a header; `None`: it has none, or nobody was told of the others, so all may be
/// sent.
///
/// # Errors
///
/// That cannot be said at the moment.
pub(super) async fn places_left(
    gateway: &Gateway,
    (tenant, name): (&Label, &TurnName),
    asked: &TurnAsked,
) -> Result<Option<Vec<usize>>, Refused> {
    let found = rows(gateway, tenant, name).await?;
    let Some(accepted_at) = found.accepted_at() else {
        return Ok(None);
    };
    let mut places = Vec::with_capacity(found.rows.len());
    for place in 0..asked.calls.len() {
        if is_there(gateway, (tenant, name), asked, place).await? {
            places.push(place);
        }
    }
    if places.len() == asked.calls.len() {
        return Ok(Some(places));
    }
    // Behind the rows: the events of calls come behind their rows.
    if has_accepted(gateway, tenant, name).await? {
        return Ok(None);
    }
    if found.at - accepted_at < MAKING_MAX {
        let what = Message::fixed(
            "the turn was asked for a moment ago, and it is not known yet which of its calls were accepted",
            "这个 turn 刚刚提交，目前还不知道其中哪些调用已被接受",
        );
        return Err(Refused::later(Code::Unavailable, what));
    }
    Ok(Some(places))
}

/// Whether the call at this place of the turn is in the ledger.
async fn is_there(
    gateway: &Gateway,
    (tenant, name): (&Label, &TurnName),
    asked: &TurnAsked,
    place: usize,
) -> Result<bool, Refused> {
    let dispatchers = &gateway.dispatchers;
    let body = json!({"tool": asked.calls[place].tool, "idempotency_key": name.key(place)});
    let question = Question::new(dispatchers.subjects().get(tenant), body.to_string());
    let answer = dispatchers.ask(question, Repeatable::Always).await?;
    let glimpse = Glimpse::of(answer.bytes());
    if glimpse.is_refused() && !glimpse.is_not_found() {
        return Err(Refused::no_answer(Repeatable::ByKey));
    }
    Ok(!glimpse.is_refused())
}

/// Whether the stream still has the event with which the first call of the turn was accepted.
async fn has_accepted(gateway: &Gateway, tenant: &Label, name: &TurnName) -> Result<bool, Refused> {
    let keeper = gateway.sessions.keeper();
    let first = keeper.next(&session_of(tenant, name), 1).await;
    let first = first.map_err(|error| unheard(&error))?;
    let first = first.and_then(|kept| Event::read(&kept.payload).ok());
    Ok(first.is_some_and(|event| matches!(event.what, Happening::Accepted { .. })))
}
