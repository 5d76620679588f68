//! `cancel`: a caller cancels a call. A call that waits never runs; the worker of a call that runs is told.

use fleet::{
    arguments::Limits,
    store::cancel::{self, Cancellation},
    wire::{
        cancel::{CancelAnswer, CancelResult},
        code::Code,
        message::Message,
    },
};
use serde::Deserialize;

use crate::{answer::Answer, door::Door, form, news, refusal::Refusal, request::Request};

/// The most characters of a reason.
const REASON_MAX: usize = 2000;
/// Enough for a reason in which every character is escaped, and the members around it.
const LIMITS: Limits = Limits {
    bytes: 32 * 1024,
    ..Limits::DEFAULT
};
/// The actor in the history. The tenant is in the call's row.
const ACTOR: &str = "caller";
/// The first token of the inboxes that callers have.
const CALLERS: &str = "_INBOX";

static FORM: Message = Message::fixed("call_id, and perhaps reason", "call_id，可以再加 reason");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelRequest {
    call_id: String,
    reason: Option<String>,
}

/// Cancels a call of this tenant, as far as its state allows.
pub(crate) async fn cancel(door: &Door, request: &Request<'_>) -> Result<Answer, Refusal> {
    let tenant = request.tenant()?;
    let value = form::parse(request.body, &LIMITS)?;
    let asked: CancelRequest = form::of_form(value, &FORM)?;
    let call = form::call_id(&asked.call_id)?;
    let reason = asked.reason.as_deref();
    if reason.is_some_and(|reason| reason.chars().count() > REASON_MAX) {
        let what = Message::fixed("reason may have 2000 characters", "reason 最多 2000 个字符");
        return Err(Refusal::new(Code::InvalidArguments, what));
    }
    let is_caller = request.inbox.is_none_or(|inbox| inbox == CALLERS);
    let actor = if is_caller {
        ACTOR.to_owned()
    } else {
        request.author(ACTOR)
    };
    let cancellation = Cancellation {
        call,
        tenant: Some(&tenant),
        actor: &actor,
        reason,
    };
    let verdict = cancel::cancel(&door.pool, &cancellation)
        .await
        .map_err(Refusal::undecided)?
        .ok_or_else(Refusal::not_found)?;
    match (verdict.result, verdict.worker, verdict.dispatcher) {
        (CancelResult::CancelRequested, Some(worker), _) => {
            // Only the bell: the worker also reads its own rows.
            let subject = door.bus.subjects.cancel_of_worker(worker);
            news::ring(&door.bus, subject, call.to_string().into()).await;
        }
        (CancelResult::Cancelled | CancelResult::InDoubt, _, Some(dispatcher)) => {
            news::tell_waiters(door, dispatcher, call).await;
        }
        (_, _, _) => {}
    }
    let answer = CancelAnswer {
        call_id: call,
        state: verdict.state,
        result: verdict.result,
    };
    let text = serde_json::to_string(&answer).expect("an answer has only string keys");
    Ok(Answer::json(text))
}
