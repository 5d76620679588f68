//! Hand-over: what a call waits for that is not for a worker, as its caller is told.

use fleet::{
    call::State,
    store::{
        accept::{AcceptedAt, NewCall},
        read::{CallRow, CallState},
    },
    wire::{
        envelope::{Accepted, Awaits},
        event::{Event, Happening},
        token::Handed,
    },
};
use serde_json::value::RawValue;
use time::{Duration, OffsetDateTime};

use crate::{answer::Answer, door::Door};

/// What a call that was just accepted waits for; `None`: it is queued.
pub(crate) fn awaited(door: &Door, call: &NewCall, at: AcceptedAt) -> Option<Awaits> {
    let (whom, hand_over) = (call.awaits()?, call.hand_over?);
    let handed = Handed {
        call: call.call_id,
        awaiting: whom,
        attempt: hand_over.attempt,
    };
    Some(Awaits {
        whom,
        until: until(call, at),
        token: door.tokens.token(&handed),
        args: changed(&call.args).filter(|_| !call.coercions.is_empty()),
    })
}

/// As the statement has it: the end of its time, but not behind its deadline.
fn until(call: &NewCall, at: AcceptedAt) -> OffsetDateTime {
    let timeout_ms = call.hand_over.map_or(0, |hand_over| hand_over.timeout_ms);
    let until = at.accepted_at + Duration::milliseconds(timeout_ms.min(call.deadline_ms));
    call.run_deadline.map_or(until, |of_run| until.min(of_run))
}

fn changed(args: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(args.to_owned()).ok()
}

/// The accepted envelope of a call that exists, with what it waits for.
pub(crate) fn standing(door: &Door, row: &CallRow, replayed: bool) -> Answer {
    let awaiting = match &row.state {
        CallState::Awaiting(awaiting) => Some(Awaits {
            whom: awaiting.handed.awaiting,
            until: awaiting.until,
            token: door.tokens.token(&awaiting.handed),
            args: awaiting.changed_args.as_deref().and_then(changed),
        }),
        CallState::Queued { .. }
        | CallState::Running { .. }
        | CallState::InDoubt(_)
        | CallState::Ended(_) => None,
    };
    Answer::accepted(&Accepted {
        awaiting,
        ..row.accepted(replayed)
    })
}

/// Tells the followers of its session that a call waits for somebody.
pub(crate) fn tell(door: &Door, call: &NewCall, at: AcceptedAt, awaits: &Awaits) {
    let event = || Event {
        call_id: call.call_id,
        // Behind the one that says that it was accepted.
        sequence: Event::sequence(0, 1),
        at: at.accepted_at,
        what: Happening::Awaiting {
            whom: awaits.whom,
            until: awaits.until,
            token: awaits.token.clone(),
        },
    };
    door.events.tell(&call.tenant, call.session.as_ref(), event);
}

/// The answer to a new call whose caller does not wait for it.
pub(crate) fn accepted(call: &NewCall, at: AcceptedAt, awaiting: Option<Awaits>) -> Accepted {
    let state = match awaiting {
        Some(_) => State::AwaitingClient,
        None => State::Queued,
    };
    Accepted {
        call_id: call.call_id,
        tool: call.tool.to_string(),
        state,
        replayed: false,
        accepted_at: at.accepted_at,
        awaiting,
    }
}
