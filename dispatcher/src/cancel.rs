//! `cancel`: a caller takes a call back. One that waits never runs; the worker of one that runs is told.

use std::time::Duration;

use bytes::Bytes;
use fleet::{
    arguments::Limits,
    ids::{CallId, DispatcherId, Label},
    store::cancel::{self, Cancellation},
    wire::{
        cancel::{CancelAnswer, CancelResult},
        code::Code,
        message::Message,
    },
};
use serde::Deserialize;
use tokio::time::timeout;

use crate::{
    accept::Door,
    answer::{Answer, Refusal},
    news, request,
};

/// Characters of a reason.
const REASON_MAX: usize = 2000;
/// A reason, escaped as far as JSON allows, and what stands around it.
const LIMITS: Limits = Limits {
    bytes: 32 * 1024,
    ..Limits::DEFAULT
};
/// Who it is in the history: the tenant stands in the call's row.
const ACTOR: &str = "caller";

static FORM: Message = Message::fixed("call_id, and perhaps reason", "call_id，可以再加 reason");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelRequest {
    call_id: String,
    reason: Option<String>,
}

/// Takes a call of this tenant back, as far as that is possible.
pub(crate) async fn cancel(door: &Door, tenant: &Label, body: &[u8]) -> Result<Answer, Refusal> {
    let value = request::parse(body, &LIMITS)?;
    let asked: CancelRequest = request::of_form(value, &FORM)?;
    let call = request::call_id(&asked.call_id)?;
    let reason = asked.reason.as_deref();
    if reason.is_some_and(|reason| reason.chars().count() > REASON_MAX) {
        let what = Message::fixed("reason may have 2000 characters", "reason 最多 2000 个字符");
        return Err(Refusal::new(Code::InvalidArguments, what));
    }
    let cancellation = Cancellation {
        call,
        tenant: Some(tenant),
        actor: ACTOR,
        reason,
    };
    let verdict = cancel::cancel(&door.pool, &cancellation)
        .await
        .map_err(Refusal::undecided)?
        .ok_or_else(Refusal::not_found)?;
    match (verdict.result, verdict.worker, verdict.dispatcher) {
        (CancelResult::CancelRequested, Some(worker), _) => {
            // Only the bell: the worker also looks at its own rows.
            let subject = door.bus.subjects.cancel_of_worker(worker);
            door.ring(subject, call.to_string().into()).await;
        }
        (CancelResult::Cancelled | CancelResult::InDoubt, _, Some(dispatcher)) => {
            if let Ok(decided) = door.as_it_stands(call, tenant, false).await {
                door.tell_waiters(dispatcher, call, &decided).await;
            }
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

/// Larger answers are read from the row by whoever waits.
const TELL_MAX: usize = 512 * 1024;
/// A connection that is down takes a bounded number of messages and then blocks for ever.
const RING_MAX: Duration = Duration::from_secs(1);

impl Door {
    /// Tells the dispatcher that accepted a call, and whoever else listens for it, that it is decided.
    pub(crate) async fn tell_waiters(
        &self,
        dispatcher: DispatcherId,
        call: CallId,
        decided: &Answer,
    ) {
        // Empty rings the bell only.
        let small = decided.body.len() <= TELL_MAX.min(self.payload_max());
        let body = if small {
            decided.body.clone()
        } else {
            Bytes::new()
        };
        self.ring(self.bus.subjects.done(dispatcher, call), body)
            .await;
        news::tell_decided(&self.events, &self.pool, call).await;
    }

    /// Says something that is also in the ledger: if it gets lost, it is found there.
    async fn ring(&self, subject: String, body: Bytes) {
        let ringing = self.bus.client.publish(subject, body);
        if !matches!(timeout(RING_MAX, ringing).await, Ok(Ok(()))) {
            tracing::debug!("a bell was not rung; what it says is found in the ledger");
        }
    }
}
