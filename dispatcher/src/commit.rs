//! Commit: writes the row of an admitted call, once, and answers its caller.

use std::sync::Arc;

use fleet::{
    bus::events::Events,
    checkpoint::{Checkpoint, reached},
    ids::{CallId, DispatcherId},
    store::{
        accept::{AcceptedAt, NewCall, NewKey},
        lane::Reply,
    },
    telemetry::{
        metrics,
        spans::{self, Step},
        trace,
    },
    wire::{
        event::{Event, Happening},
        headers::Prefer,
        proof::DoneSecret,
    },
};
use tokio::time::Instant;
use tracing::Instrument;

use crate::{
    admission::{Admission, admit},
    answer::{Answer, bytes_max},
    check::{Checked, Submission},
    door::Door,
    files::named,
    hand_over::{self, millis},
    key,
    meter::Permit,
    pending::{Holder, PendingAccept, Told},
    publish::publish,
    refusal::Refusal,
    repetition, replay, starts,
    waiters::{WaitFor, Waiting},
};

/// How often an accept without an answer is sent, made safe by its key.
pub(crate) const ACCEPTS_MAX: u32 = 3;

/// Commits one call and answers its caller.
pub(crate) async fn commit(
    door: &Door,
    submission: Submission,
    checked: Checked,
) -> Result<Answer, Refusal> {
    let (began, id) = (Instant::now(), CallId::generate());
    let refuses = checked.newest.manifest.refuses_over_limit();
    if refuses {
        let key = key_of(&submission, &checked);
        if let Some(known) = Box::pin(replay::known(door, &submission, key)).await? {
            return Ok(known);
        }
    }
    let admission = match admit(door, &submission, &checked, id).await {
        Ok(admission) => admission,
        Err(refusal) => {
            let key = key_of(&submission, &checked);
            return Box::pin(replay::known_or(door, &submission, key, refusal)).await;
        }
    };
    if refuses && admission.starts_now() {
        Box::pin(starts::enter(
            door,
            &submission.tenant,
            &submission.tool,
            admission.rate_key,
        ))
        .await?;
    }
    let call = new_call(door.dispatcher, &submission, &checked, id, &admission);
    // It may hold the answers that the arguments refer to, and the caller waits from here on.
    drop(checked);
    let mut pending = PendingAccept::new(submission, call, admission);
    reached(Checkpoint::Validated);
    for _ in 0..ACCEPTS_MAX {
        let call = &pending.call;
        // Before the commit, so that no decision is missed.
        let waiting = match pending.submission.headers.prefer {
            Prefer::Wait(wait) => {
                let waiting = door.waiters.register(call.call_id, Some(call.done_secret));
                Some((waiting, began + wait))
            }
            Prefer::RespondAsync => None,
        };
        let accepting = door.accepting.accept(Arc::clone(call));
        let reply = accepting.instrument(spans::step(Step::Commit)).await;
        if matches!(reply, Reply::Unknown) {
            door.publisher.suspect_late();
        }
        match pending.told(reply) {
            Told::Committed(at) => {
                let permit = pending.take_permit();
                return Ok(committed(door, &pending.call, permit, at, waiting).await);
            }
            Told::Taken => {
                let found = Box::pin(replay::find_taken_key(&door.pool, &pending.call)).await?;
                match pending.holder(found) {
                    Holder::Ours(at) => {
                        let permit = pending.take_permit();
                        let call = Arc::clone(&pending.call);
                        return Ok(Box::pin(committed(door, &call, permit, at, waiting)).await);
                    }
                    Holder::Other(found) => {
                        let submission = pending.into_submission();
                        return Box::pin(replay::replay(door, &submission, &found)).await;
                    }
                    Holder::Free => {
                        Box::pin(named::still_there(&door.pool, &pending.call)).await?;
                    }
                }
            }
            Told::Again => {}
            Told::Refused(refusal) => return Err(refusal),
        }
    }
    Err(pending.given_up())
}

/// The call is committed: whatever fails now, the caller is told its id.
async fn committed(
    door: &Door,
    call: &NewCall,
    permit: Option<Permit>,
    at: AcceptedAt,
    waiting: Option<(Waiting, Instant)>,
) -> Answer {
    reached(Checkpoint::Committed);
    tell_accepted(&door.events, call, &at);
    if let Some(awaits) = hand_over::awaited(door, call, at) {
        // Whoever waits for the call is the one who has to do it.
        hand_over::tell(door, call, at, &awaits);
        return Answer::accepted(&hand_over::accepted(call, at, Some(awaits)));
    }
    let (left, committed) = (call.lasts(at), Instant::now());
    // A caller that waits this long has a timer of its own.
    let waits_longer = |until: Instant| until > committed + left;
    if !waiting
        .as_ref()
        .is_some_and(|(_, until)| waits_longer(*until))
    {
        door.expiry.remember(call.call_id, left);
    }
    publish(door, call, permit).await;
    reached(Checkpoint::Published);
    if let Some((mut waiting, until)) = waiting {
        let left = left.saturating_sub(committed.elapsed());
        // Counted from the request: its caller does not wait longer because the ledger was slow.
        let wait = until.saturating_duration_since(Instant::now());
        if let Some(envelope) = waiting
            .decided(WaitFor::QuestionAfter(0), wait, left, None)
            .await
        {
            reached(Checkpoint::Decided);
            repetition::ended(door, call, &envelope).await;
            return Answer::told(envelope, bytes_max(&door.bus), call.language);
        }
        let standing = Box::pin(replay::as_it_stands(
            door,
            call.call_id,
            &call.tenant,
            false,
        ));
        if let Ok(answer) = standing.await {
            return answer;
        }
    }
    Answer::accepted(&hand_over::accepted(call, at, None))
}

/// Counts the call, and tells the followers of its session.
pub(crate) fn tell_accepted(events: &Events, call: &NewCall, at: &AcceptedAt) {
    metrics().accepted(&call.tool);
    for coercion in &call.coercions {
        metrics().coerced(&call.tool, coercion.rule);
    }
    let event = || Event {
        call_id: call.call_id,
        // A row starts with revision 0.
        sequence: Event::sequence(0, 0),
        at: at.accepted_at,
        what: Happening::Accepted {
            tool: call.tool.to_string(),
            tool_version: call.tool_version,
        },
    };
    events.tell(call.followed(), event);
}

/// The row of an admitted call.
pub(crate) fn new_call(
    dispatcher: DispatcherId,
    submission: &Submission,
    checked: &Checked,
    call_id: CallId,
    admission: &Admission,
) -> NewCall {
    let Checked {
        tool, arguments, ..
    } = checked;
    let (manifest, headers) = (&tool.manifest, &submission.headers);
    let key = key_of(submission, checked);
    NewCall {
        call_id,
        tenant: submission.tenant.clone(),
        tool: submission.tool.clone(),
        tool_version: manifest.version,
        effect: manifest.effect,
        queue: manifest.queue.clone(),
        priority: headers.priority,
        waits: hand_over::first_wait(submission, checked, admission),
        held: admission.is_held(),
        line: admission.line.clone(),
        rate_key: admission.rate_key,
        key: key.map(|hash| NewKey {
            hash,
            original_hash: submission.original_hash,
            replaces: None,
        }),
        key_retention_ms: millis(manifest.key_retention),
        args: arguments.text.clone(),
        kept_args: manifest
            .sensitive
            .as_ref()
            .and_then(|sensitive| sensitive.kept(&arguments.text)),
        args_hash: arguments.hash,
        files: headers.files.clone(),
        original_args: (!arguments.coercions.is_empty()).then(|| submission.sent.clone()),
        coercions: arguments.coercions.clone(),
        // A tool without a cache keeps nothing.
        no_store: headers.no_store && manifest.cache.is_some(),
        session: headers.session.clone(),
        run: headers.run.clone(),
        meta: headers.meta.as_ref().map(|meta| meta.get().to_owned()),
        language: headers.language.unwrap_or(manifest.language),
        trace: trace::current_context(&headers.trace),
        dispatcher,
        done_secret: DoneSecret::generate(),
        deadline_ms: millis(headers.deadline.unwrap_or(manifest.deadline)),
        run_deadline: headers.run_deadline,
        queue_wait_ms: manifest.max_queue_wait.map(millis),
    }
}

/// The hash of the key under which the call can be looked up, if it has one.
pub(crate) fn key_of(submission: &Submission, checked: &Checked) -> Option<[u8; 32]> {
    key::hash_for_call(
        &submission.tenant,
        &submission.tool,
        checked.tool.manifest.key_policy(),
        submission.headers.key.as_ref(),
        &checked.arguments.hash,
    )
}
