//! A call of one request, from its submission to the message that answers it. It owns what it needs, so that it may go on where the
//! request's own future has ended: in a stream.

use std::sync::Arc;

use bytes::Bytes;
use fleet_client::Answer;

use super::{
    attempts::{self, CallKey},
    envelope::McpEnvelope,
    result::Telling,
    rpc::{RpcError, RpcId, RpcReply, completed},
};
use crate::{
    answer::Glimpse, desk::CallDesk, headers::Speaker, refusal::Refused, submit::Submitted,
};

/// A call that is to be submitted.
#[derive(Debug)]
pub(super) struct CallExchange {
    pub(super) desk: Arc<CallDesk>,
    /// Of the request.
    pub(super) id: RpcId,
    pub(super) telling: Telling,
    pub(super) call: Submitted,
    pub(super) key: CallKey,
    /// Of the request, whose room the arguments take.
    pub(super) body: Bytes,
}

/// The end of a call, or of the wait for it.
#[derive(Debug)]
pub(super) struct ToldCall {
    pub(super) reply: RpcReply,
    /// Whether it was made by this request and is over: its events have been told.
    pub(super) is_made_and_over: bool,
}

impl CallExchange {
    /// Submits the call and waits for it. Dropping the future cancels the call, unless the program itself stops.
    pub(super) async fn answer(self) -> ToldCall {
        let Self {
            desk,
            id,
            telling,
            call,
            key,
            body,
        } = self;
        let tool = call.tool.clone();
        let answered = attempts::answer(desk, call, key, body).await;
        let answered = answered.map_err(|refused| refused.of_tool(tool.as_str()));
        let glimpse = answered
            .as_ref()
            .map(|answer| Glimpse::of(answer.bytes()))
            .unwrap_or_default();
        let is_over = glimpse.call_id.is_some() && !glimpse.is_open();
        ToldCall {
            reply: told(&id, &answered, telling),
            is_made_and_over: is_over && !glimpse.replayed,
        }
    }
}

/// What became of a call, as the answer to its request.
pub(super) fn told(id: &RpcId, answered: &Result<Answer, Refused>, telling: Telling) -> RpcReply {
    let refusal;
    let (bytes, speaker): (&[u8], Speaker) = match answered {
        Ok(answer) if Glimpse::of(answer.bytes()).is_refused() => (answer.bytes(), Speaker::Door),
        Ok(answer) => (answer.bytes(), Speaker::Call),
        Err(refused) => {
            refusal = refused.envelope(telling.language).to_bytes();
            (&refusal, Speaker::Gateway)
        }
    };
    let envelope = McpEnvelope::of(bytes);
    if envelope.is_of_unknown_tool() {
        return RpcError::unknown_tool(&envelope.tool).told(Some(id), telling.language);
    }
    completed(id, &telling.result(&envelope), speaker)
}
