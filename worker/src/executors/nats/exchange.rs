//! One request, and the wait for the first reply to it.

use std::{pin::pin, time::Duration};

use async_nats::{Client, HeaderMap, PublishErrorKind, Subscriber};
use bytes::Bytes;
use fleet::{
    bus::connect::Bus,
    outcome::ToolFailure,
    taken_back::TakenBack,
    wire::{code::Code, message::Message},
};
use futures_util::StreamExt;
use tokio::time::{sleep_until, timeout};

use super::{
    reply::Reply,
    request::{self, NatsRequest},
    told::ServiceEvents,
};
use crate::executors::{AttemptContext, StopReason, headers};

/// What came of a request.
pub(super) enum Heard {
    /// It was provably not sent.
    NotSent(ToolFailure),
    /// The first reply.
    Reply(Reply),
    /// It may have been sent, and no reply came.
    Nothing {
        /// Why the wait ended.
        end: WaitEnd,
        /// Whether the connection was lost while it waited.
        lost: bool,
        /// Whether the client has provably sent everything that it was given.
        handed_over: bool,
    },
}

/// Why the wait for a reply ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum WaitEnd {
    TimedOut,
    Stopped(StopReason),
    /// The connection was lost, and a new request is better than a longer wait.
    Lost,
}

/// Sends the request once and waits for the first reply, until `context` ends it.
///
/// A reply is lost while this client has no connection. But a service that lost its connection too sends its reply when it is
/// connected again. So a request that may be repeated (`again`) ends here, and any other waits on.
pub(super) async fn exchange(
    bus: &Bus,
    subject: &str,
    request: NatsRequest,
    again: bool,
    context: &AttemptContext,
) -> Heard {
    let mut cut = pin!(cut_off(context));
    // Read before the connection's state, so that a later loss is seen as a change.
    let mut epoch = bus.epoch();
    if !bus.is_connected() {
        let what = Message::fixed(
            "this worker has no connection to NATS at the moment; nothing was sent",
            "这个 worker 目前没有连上 NATS；没有发出任何内容",
        );
        let failure = ToolFailure::new(Code::Unavailable, what);
        return Heard::NotSent(failure.taken_back(TakenBack::BusAway));
    }
    let body = request.body.len();
    let sent = tokio::select! {
        biased;
        end = &mut cut => return Heard::NotSent(not_begun(end)),
        sent = async {
            let events = ServiceEvents::of(bus, context).await;
            (events, send(bus, subject, request).await)
        } => sent,
    };
    let (mut events, sent) = sent;
    let mut replies = match sent {
        Ok(replies) => replies,
        Err(problem) => return Heard::NotSent(problem.failure(body, bus.payload_max())),
    };
    let mut flush = pin!(bus.client.flush());
    let (mut flushing, mut handed_over, mut lost) = (true, false, false);
    let end = loop {
        tokio::select! {
            biased;
            reply = replies.next() => match reply {
                Some(reply) => {
                    events.finish();
                    return Heard::Reply(Reply::read(reply));
                }
                // The client itself has ended.
                None => break WaitEnd::Lost,
            },
            flushed = &mut flush, if flushing => (flushing, handed_over) = (false, flushed.is_ok()),
            end = &mut cut => break end,
            _changed = epoch.changed(), if !lost => {
                lost = true;
                if again {
                    break WaitEnd::Lost;
                }
            }
            () = events.relay() => {}
        }
    };
    Heard::Nothing {
        end,
        lost,
        handed_over,
    }
}

/// Tells the service that the request is cancelled.
pub(super) async fn call_off(bus: &Bus, context: &AttemptContext) {
    let mut headers = HeaderMap::new();
    let name = headers::fact_name(request::ATTEMPT_ID);
    headers.insert(name, context.attempt_id.to_string());
    let subject = bus.subjects.tool_cancel(context.call_id);
    let telling = bus
        .client
        .publish_with_headers(subject, headers, Bytes::new());
    // While its connection is down, the client queues a bounded number of messages and then blocks for ever.
    if !matches!(timeout(CALL_OFF_MAX, telling).await, Ok(Ok(()))) {
        tracing::debug!("a tool's service was not told that its answer is no longer waited for");
    }
}

/// How long that may take: well below the time that an attempt may linger.
const CALL_OFF_MAX: Duration = Duration::from_millis(500);

/// Why a request was not given to the client.
enum NotTaken {
    TooLarge,
    /// The client refused the subject, or has ended.
    Refused,
}

impl NotTaken {
    fn failure(&self, body: usize, payload_max: usize) -> ToolFailure {
        match self {
            Self::TooLarge => request::too_large(body, payload_max),
            Self::Refused => ToolFailure::new(
                Code::Unavailable,
                Message::fixed(
                    "the client of NATS did not take the request; nothing was sent",
                    "NATS 的客户端没有接受请求；没有发出任何内容",
                ),
            ),
        }
    }
}

/// Gives the request to the client, with an inbox of its own that takes one reply. `Err`: not sent. Cancel-safe.
async fn send(bus: &Bus, subject: &str, request: NatsRequest) -> Result<Subscriber, NotTaken> {
    let client: &Client = &bus.client;
    let inbox = bus.private_inbox();
    let subscribed = client.subscribe(inbox.clone()).await;
    let mut replies = subscribed.map_err(|_gone| NotTaken::Refused)?;
    // The server unsubscribes the inbox after one reply, so a service cannot flood it.
    let bounded = replies.unsubscribe_after(1).await;
    bounded.map_err(|_gone| NotTaken::Refused)?;
    let publishing = client.publish_with_reply_and_headers(
        subject.to_owned(),
        inbox,
        request.headers,
        request.body,
    );
    match publishing.await {
        Ok(()) => Ok(replies),
        Err(error) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
            Err(NotTaken::TooLarge)
        }
        Err(_refused) => Err(NotTaken::Refused),
    }
}

/// Resolves when the attempt must end, with the reason.
async fn cut_off(context: &AttemptContext) -> WaitEnd {
    tokio::select! {
        biased;
        reason = context.stop.told() => WaitEnd::Stopped(reason),
        () = sleep_until(context.until) => WaitEnd::TimedOut,
    }
}

fn not_begun(end: WaitEnd) -> ToolFailure {
    match end {
        WaitEnd::Stopped(reason) => reason.before_anything_was_sent(),
        WaitEnd::TimedOut | WaitEnd::Lost => {
            let message = Message::fixed(
                "the attempt's time was over before anything was sent",
                "这次尝试还没有发出任何内容，时间就到了",
            );
            ToolFailure::new(Code::Timeout, message).taken_back(TakenBack::StartedTooLate)
        }
    }
}
