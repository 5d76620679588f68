//! A tool is told what it has asked for, and the call is queued with it.

use bytes::Bytes;
use fleet::{
    checkpoint::{Checkpoint, reached},
    ids::{CallId, Label},
    said,
    store::{
        park,
        read::{CallRow, CallState},
    },
    wire::{code::Code, message::Message, token::HandedAs},
};
use serde_json::json;

use super::{
    CLIENT,
    holder::{TokenHolder, holder},
};
use crate::{answer::Answer, door::Door, news, refusal::Refusal, replay};

/// Gives the tool what it wants to know, and returns the call as it stands then.
pub(super) async fn take(
    door: &Door,
    call: CallId,
    token: &str,
    input: &str,
    tenant: &Label,
) -> Result<Answer, Refusal> {
    let row = replay::find(door, call, tenant).await?;
    let TokenHolder::Asked(rev) = holder(door, &row, token).await? else {
        return Err(not_asked(&row));
    };
    if !asks_at(&row, rev) {
        return again(door, &row, input).await;
    }
    let given = park::give_input(&door.pool, call, rev, input, CLIENT).await;
    if given.map_err(|error| Refusal::unreadable(&error))? {
        reached(Checkpoint::InputTaken);
        // Its line has a call more: whoever releases calls looks at once.
        news::ring(&door.bus, door.bus.subjects.room(), Bytes::new()).await;
        return replay::as_it_stands(door, call, tenant, false).await;
    }
    let row = replay::find(door, call, tenant).await?;
    again(door, &row, input).await
}

/// An answer to a question for a tool that has asked for no answer but for something else.
pub(super) fn not_answered() -> Refusal {
    let what = Message::fixed(
        "the tool of this call has asked for something and is run again with it: hand it in as input; only the tool gives a result",
        "这次调用的工具询问了一些内容，并会带着答复再次运行：请以 input 提交答复；结果只由工具给出",
    );
    Refusal::new(Code::InvalidArguments, what)
}

/// Something to know for a tool that has not asked.
fn not_asked(row: &CallRow) -> Refusal {
    let what = Message::fixed(
        "the tool of this call has not asked for anything, so there is no input to hand in: it waits for a result or an error",
        "这次调用的工具没有询问任何内容，因此没有 input 可以提交：它等待的是结果或错误",
    );
    match &row.state {
        CallState::Awaiting(_) => Refusal::of_output(Code::InvalidArguments, what),
        CallState::Queued { .. }
        | CallState::Running { .. }
        | CallState::InDoubt(_)
        | CallState::Ended(_) => Refusal::new(Code::InvalidArguments, what),
    }
}

fn asks_at(row: &CallRow, rev: i32) -> bool {
    match &row.state {
        CallState::Awaiting(awaiting) => awaiting.handed.turn == HandedAs::Revision(rev),
        CallState::Queued { .. }
        | CallState::Running { .. }
        | CallState::InDoubt(_)
        | CallState::Ended(_) => false,
    }
}

/// The call does not wait for it any more: the same input again is told where the call stands, any other that it is too late.
async fn again(door: &Door, row: &CallRow, input: &str) -> Result<Answer, Refusal> {
    let state = row.state();
    if row.told.as_deref() == Some(input) {
        return replay::as_it_stands(door, row.call_id, &row.tenant, false).await;
    }
    let code = if state.is_terminal() {
        Code::AlreadyTerminal
    } else {
        Code::Conflict
    };
    let what = said!(
        "the call does not wait for this any more: it is {state}",
        "这次调用已不再等待这个答复：状态是 {state}"
    );
    Err(Refusal::new(code, what).with_details(|_| json!({ "state": state })))
}
