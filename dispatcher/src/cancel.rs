//! `cancel`: a caller cancels a call. A call that waits never runs; the worker of a call that runs is told.

use fleet::{
    arguments::Limits,
    invisible::first_invisible,
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
/// The actor in the history of who does not say who it is. The tenant is in the call's row.
const ACTOR: &str = "caller";
/// The most characters of a name that is said.
const NAME_MAX: usize = 128;
/// The first token of the inboxes that callers have.
const CALLERS: &str = "_INBOX";

static FORM: Message = Message::fixed(
    "call_id, and perhaps reason and actor",
    "call_id，可以再加 reason 和 actor",
);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelRequest {
    call_id: String,
    reason: Option<String>,
    actor: Option<String>,
}

/// Who cancels it, for the history: never only the sender's word, which could be the name of a part of the fleet.
fn actor(request: &Request<'_>, said: Option<&str>) -> Result<String, Refusal> {
    let is_caller = request.inbox.is_none_or(|inbox| inbox == CALLERS);
    match (said, request.inbox) {
        (None, _) if is_caller => Ok(ACTOR.to_owned()),
        (None, _) => Ok(request.author(ACTOR)),
        (Some(said), _)
            if said.trim().is_empty()
                || said.chars().count() > NAME_MAX
                || said.chars().any(char::is_control)
                || first_invisible(said).is_some() =>
        {
            let what = Message::fixed(
                "actor must have 1 to 128 characters that can be seen",
                "actor 必须有 1 到 128 个可见字符",
            );
            Err(Refusal::new(Code::InvalidArguments, what))
        }
        (Some(said), Some(_known)) => Ok(request.author(said)),
        (Some(said), None) => Ok(format!("{said} ({ACTOR})")),
    }
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
    let actor = actor(request, asked.actor.as_deref())?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cancels_is_named_by_what_it_says_and_by_where_it_hears() {
        let by = |inbox, said| {
            let request = Request {
                tenant: "acme",
                name: "",
                headers: Vec::new(),
                body: b"",
                inbox,
            };
            actor(&request, said).map_err(|refused| refused.code)
        };
        let operator = Some("_INBOX_operator");
        for (inbox, said, expected) in [
            (None, None, "caller"),
            (Some("_INBOX"), None, "caller"),
            (operator, None, "caller (_INBOX_operator)"),
            (operator, Some("ann"), "ann (_INBOX_operator)"),
            (Some("_INBOX"), Some("ann"), "ann (_INBOX)"),
            // A part of the fleet is named by nobody else.
            (None, Some("client"), "client (caller)"),
            (Some("_INBOX"), Some("sweep"), "sweep (_INBOX)"),
        ] {
            assert_eq!(by(inbox, said).unwrap(), expected);
        }
        let long = "a".repeat(129);
        for wrong in ["", " ", "a\nb", &long] {
            assert_eq!(by(operator, Some(wrong)), Err(Code::InvalidArguments));
        }
    }
}
