//! Conversations by reference: the messages of the calls that a model's request goes on from, before the claim.

use std::{sync::Arc, time::Duration};

use fleet::{
    call::State,
    ids::CallId,
    manifest::ChatProtocol,
    outcome::ToolFailure,
    said,
    store::{
        conversations::{self, CONVERSATION_MAX, FoundConversation, TURNS_MAX, WhyLacking},
        read, referents,
    },
    telemetry::report,
    wire::{code::Code, message::Message},
};
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    dispose::{NoArguments, Skip},
    executors::chat::conversation as pure,
    worker::WorkerProcess,
};

/// How long a call waits for its turn to read its conversation. Its message is delivered again after ten seconds.
const TURN_WAIT_MAX: Duration = Duration::from_secs(2);

/// The request with all messages of its conversation; `None`: it has them all.
pub(crate) async fn whole(
    worker: &WorkerProcess,
    call: CallId,
    protocol: ChatProtocol,
    args: Arc<Value>,
) -> Result<Option<Value>, NoArguments> {
    let Some(last) = pure::earlier(protocol, &args).map_err(NoArguments::Never)? else {
        return Ok(None);
    };
    // The same turns as those of references to answers: megabytes, several times over.
    let Ok(turn) = timeout(TURN_WAIT_MAX, referents::turn()).await else {
        return Err(NoArguments::Skip(Skip::NoTurn));
    };
    // By its row and not by the message, which says whose calls are read.
    let row = match read::find(&worker.pool, call).await {
        Ok(Some(row)) => row,
        Ok(None) => return Err(NoArguments::Skip(Skip::Gone)),
        Err(_silent) => return Err(NoArguments::Skip(Skip::StoreSilent)),
    };
    if !matches!(row.state(), State::Queued | State::Running) {
        return Err(NoArguments::Skip(Skip::NotQueued(row.state())));
    }
    let member = pure::member(protocol);
    let found =
        conversations::conversation(&worker.pool, &row.tenant, last, protocol, member).await;
    let turns = match found {
        Ok(FoundConversation::Whole(turns)) => turns,
        Ok(FoundConversation::TooLong) => return Err(NoArguments::Never(too_long())),
        Ok(FoundConversation::Lacks(call, why)) => {
            return Err(NoArguments::Never(lacking(call, why)));
        }
        Err(error) => {
            tracing::debug!(error = report(&error), "a conversation was not read");
            return Err(NoArguments::Skip(Skip::StoreSilent));
        }
    };
    let joining = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        pure::joined(protocol, Arc::unwrap_or_clone(args), &turns)
    });
    match joining.await {
        Ok(joined) => joined.map(Some).map_err(NoArguments::Never),
        Err(_stopping) => Err(NoArguments::Skip(Skip::StoreSilent)),
    }
}

fn too_long() -> ToolFailure {
    let what = said!(
        "the conversation that $call stands for has more than {TURNS_MAX} calls or {CONVERSATION_MAX} bytes: begin a new one with what matters of it",
        "$call 所代表的对话超过 {TURNS_MAX} 次调用或 {CONVERSATION_MAX} 字节：请用其中重要的内容开始新的对话"
    );
    ToolFailure::new(Code::PayloadTooLarge, what)
}

fn lacking(call: CallId, why: WhyLacking) -> ToolFailure {
    let why = match why {
        WhyLacking::Unknown => Message::fixed(
            "there is no such call, or it is no longer kept",
            "没有这次调用，或已不再保存",
        ),
        WhyLacking::Open => Message::fixed(
            "it is not over: wait for its answer first",
            "它还没有结束：请先等待它的结果",
        ),
        WhyLacking::Failed => Message::fixed(
            "it has no answer, because it did not succeed",
            "它没有成功，因此没有回答",
        ),
        WhyLacking::Unfit => Message::fixed(
            "it is no call of a model of the same protocol whose messages may be handed on",
            "它不是同一协议的模型调用，或其消息不允许被引用",
        ),
    };
    let what = said!(
        "the conversation cannot go on from the call {call} ({why}); send the messages themselves",
        "无法接续调用 {call} 的对话（{why}）；请直接发送消息内容",
        why
    );
    ToolFailure::new(Code::NotFound, what)
}
