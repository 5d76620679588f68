//! Makes the call of a vendor's request, and waits for its end: as long as the call has, for a vendor's client knows no answer that
//! says that it goes on.

use std::time::Duration;

use fleet::{
    call::Language,
    ids::CallId,
    manifest::Manifest,
    wire::{code::Code, headers::RequestHeaders, message::Message},
};
use fleet_client::Answer;
use tokio::{sync::oneshot, time::Instant};

use super::{
    error::ModelError,
    kept::whole,
    reply::{ModelAnswer, ModelReply},
};
use crate::{
    answer::Glimpse,
    desk::CallDesk,
    forward::{OnDisconnect, Preference},
    refusal::Refused,
    state::Gateway,
    submit::{GONE, Submitted, cancel, submit, submit_while, undecided},
    wait::{WaitUntil, wait},
};

/// How long a call may take beyond its deadline until it is decided.
const SLACK: Duration = Duration::from_secs(60);

/// How a vendor's client waits: for the outcome, in waits as long as may be.
pub(crate) fn patient() -> Preference {
    Preference::waiting(RequestHeaders::WAIT_MAX.as_secs())
}

/// Makes the call, and waits until it is decided or its caller is gone: then it becomes what `on_disconnect` says. Runs in a task
/// of its own, which outlives the request.
pub(crate) async fn answered(
    gateway: &Gateway,
    call: Submitted,
    on_disconnect: OnDisconnect,
    language: Language,
    mut caller: oneshot::Sender<Result<ModelReply, ModelError>>,
) {
    let answered = decided(&gateway.desk, &call, &mut caller).await;
    let open = undecided(&answered);
    let told = told(gateway, &call, answered, language).await;
    if caller.send(told).is_err()
        && on_disconnect == OnDisconnect::Cancel
        && let Some(id) = open
    {
        let principal = call.principal.as_deref();
        cancel(&gateway.desk, &call.tenant, id, GONE, principal).await;
    }
}

/// The answer when the call is decided, its caller is gone, or the gateway stops.
async fn decided<T>(
    desk: &CallDesk,
    call: &Submitted,
    caller: &mut oneshot::Sender<T>,
) -> Result<Answer, Refused> {
    let answered = submit_while(desk, call, caller).await;
    let Some(id) = undecided(&answered) else {
        return answered;
    };
    tokio::select! {
        () = caller.closed() => answered,
        ended = end(desk, call, id) => ended.or(answered),
    }
}

/// Makes the call, and waits until it is decided, or the gateway stops. Dropping the future leaves the call alone.
///
/// # Errors
///
/// No dispatcher answers.
pub(super) async fn until_decided(desk: &CallDesk, call: &Submitted) -> Result<Answer, Refused> {
    let answered = submit(desk, call).await;
    match undecided(&answered) {
        None => answered,
        Some(id) => end(desk, call, id).await.or(answered),
    }
}

/// The end of a call that is accepted.
async fn end(desk: &CallDesk, call: &Submitted, id: CallId) -> Result<Answer, Refused> {
    let until = Instant::now() + Manifest::DEADLINE_MAX + SLACK;
    wait(desk, &call.tenant, id, until, WaitUntil::Decided).await
}

/// The reply in an answer, all of it.
///
/// # Errors
///
/// There is none.
pub(super) async fn told(
    gateway: &Gateway,
    call: &Submitted,
    answered: Result<Answer, Refused>,
    language: Language,
) -> Result<ModelReply, ModelError> {
    let answer = answered.map_err(|refused| {
        let refused = refused.of_tool(call.tool.as_str());
        ModelError::refused(&refused, language)
    })?;
    let glimpse = Glimpse::of(answer.bytes());
    if glimpse.is_open() {
        return Err(ModelError::of_call(
            Code::NoAnswer,
            &GOES_ON,
            glimpse.call_id,
            language,
        ));
    }
    match ModelAnswer::read(answer.bytes(), language) {
        ModelAnswer::Reply(reply) => Ok(reply),
        ModelAnswer::Failed(error) => Err(error),
        ModelAnswer::Kept(part) => whole(&gateway.views, &call.tenant, *part, language).await,
    }
}

const GOES_ON: Message = Message::fixed(
    "This gateway is about to stop, and the call goes on: ask for its reply by its id, or, if the request had an Idempotency-Key, send it again with that.",
    "这个网关即将停止，而调用仍在继续：请用它的 id 查询回复，如果请求带有 Idempotency-Key，也可以带上它再次发送。",
);
