//! Hand-over: what a call waits for that is not for a worker, as its caller is told.

use fleet::{
    approval::ApprovalWanted,
    call::{Awaiting, State},
    ids::AttemptId,
    manifest::{ApprovalSpec, ApprovedBy},
    store::{
        accept::{AcceptedAt, FirstWait, HandOver, NewCall},
        read::{AwaitingCall, CallRow, CallState, ToApprove},
    },
    wire::{
        envelope::{Accepted, Awaits},
        event::{Event, Happening},
        token::{Handed, HandedAs},
    },
};
use serde::Deserialize;
use serde_json::value::RawValue;
use time::{Duration, OffsetDateTime};

use crate::{
    admission::Admission,
    answer::Answer,
    check::{Checked, Submission},
    door::Door,
};

pub(crate) fn millis(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// For whom a new call waits; `None`: for a worker.
pub(crate) fn first_wait(
    submission: &Submission,
    checked: &Checked,
    admission: &Admission,
) -> Option<FirstWait> {
    let (manifest, headers) = (&checked.tool.manifest, &submission.headers);
    let is_run_by_client = manifest.is_run_by_client();
    let client_ms = is_run_by_client.then(|| millis(manifest.timeout.longest()));
    if admission.needs_approval
        && let Some(spec) = &checked.newest.manifest.approval
    {
        let ApprovalSpec {
            by, count, reason, ..
        } = spec;
        return Some(FirstWait::Approval {
            expires_ms: millis(spec.expires),
            wanted: Box::new(ApprovalWanted {
                by: *by,
                count: *count,
                reason: reason.clone(),
                salt: manifest.sensitive.is_some().then(ApprovalWanted::new_salt),
                deadline_ms: millis(headers.deadline.unwrap_or(manifest.deadline)),
                run_deadline: headers.run_deadline,
                queue_wait_ms: manifest.max_queue_wait.map(millis),
                client_ms,
            }),
        });
    }
    client_ms.map(|timeout_ms| {
        FirstWait::Client(HandOver {
            attempt: AttemptId::generate(),
            timeout_ms,
        })
    })
}

/// What a call that was just accepted waits for; `None`: it is queued.
pub(crate) fn awaited(door: &Door, call: &NewCall, at: AcceptedAt) -> Option<Awaits> {
    let wait = call.waits.as_ref()?;
    let (turn, approval) = match wait {
        FirstWait::Client(hand_over) => (HandedAs::Attempt(hand_over.attempt), None),
        // A row starts with revision 0.
        FirstWait::Approval { wanted, .. } => {
            let to_approve = ToApprove {
                wanted: ApprovalWanted::clone(wanted),
                args_hash: wanted.shown_hash(&call.args_hash),
            };
            (HandedAs::Revision(0), Some(to_approve))
        }
    };
    let handed = Handed {
        call: call.call_id,
        awaiting: call.awaits()?,
        turn,
    };
    let is_decided_by_caller = approval
        .as_ref()
        .is_some_and(|approval: &ToApprove| approval.wanted.by == ApprovedBy::Caller);
    let is_shown = !call.coercions.is_empty() || is_decided_by_caller;
    let args = is_shown.then(|| changed(&call.args)).flatten();
    let until = until(call, wait, at);
    Some(Awaits {
        principal: principal(call.meta.as_deref()),
        ..awaits(door, &handed, until, args, approval, None)
    })
}

/// Who makes a call, by its meta.
fn principal(meta: Option<&str>) -> Option<String> {
    #[derive(Deserialize)]
    struct MetaOfCall {
        principal: Option<String>,
    }

    let read: MetaOfCall = serde_json::from_str(meta?).ok()?;
    read.principal
}

/// As the statement has it: the end of its time, but not behind its deadline, which is not counted before a yes.
fn until(call: &NewCall, wait: &FirstWait, at: AcceptedAt) -> OffsetDateTime {
    let wait_ms = match wait {
        FirstWait::Client(hand_over) => hand_over.timeout_ms.min(call.deadline_ms),
        FirstWait::Approval { expires_ms, .. } => *expires_ms,
    };
    let until = at.accepted_at + Duration::milliseconds(wait_ms);
    call.run_deadline.map_or(until, |of_run| until.min(of_run))
}

fn awaits(
    door: &Door,
    handed: &Handed,
    until: OffsetDateTime,
    args: Option<Box<RawValue>>,
    approval: Option<ToApprove>,
    requests: Option<Box<RawValue>>,
) -> Awaits {
    let (wanted, args_hash) = approval
        .map(|ToApprove { wanted, args_hash }| (wanted, args_hash))
        .unzip();
    let by = wanted.as_ref().map(|wanted| wanted.by);
    // Who decides sees no sensitive values, and who sent them has them.
    let is_open = wanted.as_ref().is_none_or(|wanted| wanted.salt.is_none());
    // Operators decide by their own rights, and a tool has got its token with the attempt.
    let is_callers = handed.awaiting != Awaiting::Completion;
    let has_token = is_callers && by.is_none_or(|by| by == ApprovedBy::Caller);
    Awaits {
        whom: handed.awaiting,
        until,
        token: has_token.then(|| door.tokens.token(handed)),
        args: args.filter(|_| is_open),
        by,
        args_hash,
        reason: wanted.and_then(|wanted| wanted.reason),
        requests,
        principal: None,
    }
}

fn changed(args: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(args.to_owned()).ok()
}

/// Whether the call waits for somebody of whom its caller knows; its tool is none.
pub(crate) fn is_for_caller(row: &CallRow) -> bool {
    match &row.state {
        CallState::Awaiting(awaiting) => awaiting.handed.awaiting != Awaiting::Completion,
        CallState::Queued { .. }
        | CallState::Running { .. }
        | CallState::InDoubt(_)
        | CallState::Ended(_) => false,
    }
}

/// The accepted envelope of a call that exists, with what it waits for.
pub(crate) fn standing(door: &Door, row: &CallRow, replayed: bool) -> Answer {
    let awaiting = match &row.state {
        CallState::Awaiting(awaiting) => {
            let args = awaiting.shown_args.as_deref().and_then(changed);
            let requests = awaiting.requests.as_deref().and_then(changed);
            let (handed, until) = (&awaiting.handed, awaiting.until);
            let approval = awaiting.approval.clone();
            Some(Awaits {
                principal: awaiting.principal.clone(),
                ..awaits(door, handed, until, args, approval, requests)
            })
        }
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

/// The same for an operator, who neither runs the call nor hands anything in.
pub(crate) fn shown_to_operator(door: &Door, row: &CallRow) -> Answer {
    let awaiting = match &row.state {
        CallState::Awaiting(AwaitingCall {
            handed,
            until,
            approval: Some(approval),
            ..
        }) => Some(Awaits {
            token: None,
            ..awaits(door, handed, *until, None, Some(approval.clone()), None)
        }),
        _ => None,
    };
    Answer::accepted(&Accepted {
        awaiting,
        ..row.accepted(false)
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
    door.events.tell(call.followed(), event);
}

/// The same of a call that waits for another one since then.
pub(crate) fn tell_standing(door: &Door, row: &CallRow, at: OffsetDateTime) {
    let CallState::Awaiting(awaiting) = &row.state else {
        return;
    };
    let (handed, until) = (&awaiting.handed, awaiting.until);
    let approval = awaiting.approval.clone();
    let Awaits { whom, token, .. } = awaits(door, handed, until, None, approval, None);
    let event = || Event {
        call_id: row.call_id,
        sequence: Event::sequence(row.rev, 0),
        at,
        what: Happening::Awaiting { whom, until, token },
    };
    door.events.tell(row.followed(), event);
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
