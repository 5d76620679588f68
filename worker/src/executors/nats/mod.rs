//! Tools that are a request to a NATS service.
//!
//! `request` builds what is sent, `reply` says what a reply means; both are pure. `exchange` sends once and waits, and `told`
//! hears what the service tells meanwhile. This file
//! puts them together, and says what a missing reply means.
//!
//! Certainty rests on three facts about the client. First, it sends in the order in which it was given messages, and a flush
//! says that everything before it has been sent. Second, a message that it is given while its connection is down is kept and
//! sent later, as long as the process lives. So the executor gives it nothing then; where it may have kept something all the
//! same, the attempt says `left_behind`. Third, the server answers *no responders* only to a client that it can hear, after it
//! looked for subscribers: then no service got the request.

mod exchange;
mod reply;
mod request;
mod told;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use fleet::{
    bus::connect::Bus,
    call::Effect,
    fencing::WorkerLock,
    manifest::{ExecutorSpec, Manifest},
    outcome::{Outcome, ToolFailure},
    said,
    secrets::Secrets,
    wire::{code::Code, message::Message},
};
use futures_util::{FutureExt, future::BoxFuture};
use serde_json::Value;

use self::{
    exchange::{Heard, WaitEnd},
    request::{FILES_MAX, HEADERS_MAX, NatsDraft},
};
use super::{AttemptContext, Executor, Prepared, Returned};

/// Runs nats tools.
#[derive(Debug, Clone)]
pub struct NatsExecutor {
    bus: Bus,
    kept: Kept,
}

/// Holds the worker's lock while the client may still send a request.
#[derive(Debug, Clone, Default)]
struct Kept {
    lock: Option<Arc<WorkerLock>>,
    held: Arc<AtomicBool>,
}

impl Kept {
    /// Holds a share of the worker's lock until the process ends: until then the worker cannot be proven gone.
    fn to_the_end(&self) {
        if let Some(lock) = &self.lock
            && !self.held.swap(true, Ordering::SeqCst)
        {
            std::mem::forget(Arc::clone(lock));
        }
    }
}

impl NatsExecutor {
    /// Over this connection. Give it one of its own: the fleet's own messages must not wait for what services answer.
    pub fn new(bus: Bus) -> Self {
        Self {
            bus,
            kept: Kept::default(),
        }
    }

    /// With the worker's lock. A request that may still leave this process holds a share, so the worker is not taken for gone.
    #[must_use]
    pub fn holding(mut self, lock: Arc<WorkerLock>) -> Self {
        self.kept.lock = Some(lock);
        self
    }
}

impl Executor for NatsExecutor {
    fn prepare(
        &self,
        manifest: &Manifest,
        arguments: &Value,
        _secrets: &Secrets,
    ) -> Result<Box<dyn Prepared>, ToolFailure> {
        let ExecutorSpec::Nats(spec) = &manifest.executor else {
            let what = Message::fixed(
                "this version of the tool is not a NATS service",
                "工具的这个版本不是 NATS 服务",
            );
            return Err(ToolFailure::new(Code::ToolGone, what));
        };
        if !self.bus.subjects.is_for_tools(&spec.subject) {
            let what = Message::fixed(
                "the manifest's subject belongs to the fleet or to the server, or is not one subject: apply a version of the tool with the service's own",
                "清单中的 subject 属于本系统或服务器，或者不是单个 subject：请改用服务自己的 subject，并应用工具的新版本",
            );
            return Err(ToolFailure::new(Code::ToolGone, what));
        }
        let idempotency = manifest.idempotency.as_ref();
        let draft = NatsDraft::new(
            arguments,
            idempotency.and_then(|how| how.argument.clone()),
            idempotency.and_then(|how| how.header.as_deref()),
        )?;
        let of_files = if manifest.files.is_some() {
            FILES_MAX
        } else {
            0
        };
        draft.fits(HEADERS_MAX + of_files, self.bus.payload_max())?;
        if !self.bus.is_connected() {
            let what = Message::fixed(
                "this worker has no connection to NATS at the moment",
                "这个 worker 目前没有连上 NATS",
            );
            return Err(ToolFailure::new(Code::Unavailable, what));
        }
        Ok(Box::new(PreparedNats {
            bus: self.bus.clone(),
            kept: self.kept.clone(),
            subject: spec.subject.clone(),
            draft,
            output_limit: manifest.output_limit,
            effect: manifest.effect,
        }))
    }
}

/// A request without the values that only the attempt knows.
struct PreparedNats {
    bus: Bus,
    kept: Kept,
    subject: String,
    draft: NatsDraft,
    output_limit: usize,
    effect: Effect,
}

impl Prepared for PreparedNats {
    fn run(self: Box<Self>, context: AttemptContext) -> BoxFuture<'static, Returned> {
        async move {
            let events = || self.bus.subjects.tool_event(context.call_id);
            let events = context.progress.is_heard().then(events);
            let request = match self.draft.fill(&context, events) {
                Ok(request) => request,
                Err(failure) => return Outcome::NotStarted(failure).into(),
            };
            let again = match self.effect {
                Effect::Read | Effect::Idempotent => true,
                Effect::Once | Effect::Transaction => false,
            };
            match exchange::exchange(&self.bus, &self.subject, request, again, &context).await {
                Heard::NotSent(failure) => Outcome::NotStarted(failure).into(),
                Heard::Reply(reply) => reply::class(&reply, self.output_limit).into(),
                Heard::Nothing {
                    end,
                    lost,
                    handed_over,
                } => {
                    if !handed_over {
                        self.kept.to_the_end();
                    }
                    exchange::call_off(&self.bus, &context).await;
                    Returned {
                        left_behind: !handed_over,
                        ..Outcome::Unknown(silence(end, lost, &self.subject)).into()
                    }
                }
            }
        }
        .boxed()
    }
}

/// The outcome of a request that got no reply.
fn silence(end: WaitEnd, lost: bool, subject: &str) -> ToolFailure {
    let meanwhile = if lost {
        Message::fixed(
            "; the connection to NATS was lost meanwhile",
            "；其间与 NATS 的连接曾经断开",
        )
    } else {
        Message::fixed("", "")
    };
    match end {
        WaitEnd::Stopped(reason) => {
            let word = reason.word();
            let message = said!(
                "the attempt was {word} before the service on {subject} answered{meanwhile}",
                "这次尝试在 {subject} 上的服务响应之前{word}{meanwhile}",
                word,
                meanwhile
            );
            ToolFailure::new(reason.code(), message)
        }
        WaitEnd::TimedOut => {
            let message = said!(
                "the service on {subject} did not answer in time{meanwhile}",
                "{subject} 上的服务没有按时响应{meanwhile}",
                meanwhile
            );
            ToolFailure::new(Code::Timeout, message)
        }
        WaitEnd::Lost => {
            let message = said!(
                "the connection to NATS was lost before the service on {subject} answered",
                "{subject} 上的服务还没有响应，与 NATS 的连接就断了"
            );
            ToolFailure::new(Code::Unavailable, message)
        }
    }
}
