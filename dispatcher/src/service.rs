//! The NATS service: listens at the endpoints, takes a slot for each request, and answers it in a task of its own.
//!
//! A NATS message becomes a [`Request`] here; the verbs know no messages.

use std::{future::poll_fn, sync::Arc, task::Poll};

use async_nats::{
    HeaderMap,
    service::{Request as Message, Service, ServiceExt, endpoint::Endpoint as Messages},
};
use fleet::{
    bus::{BusError, connect::Bus, malformed::is_malformed},
    checkpoint::{Checkpoint, reached},
    telemetry::metrics,
    wire::{code::Code, message::Message as Words},
};
use futures_util::{FutureExt, StreamExt};
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    admission::{self, Facts, NoSlot},
    door::Door,
    endpoints::{ENDPOINTS, Endpoint, refused},
    refusal::Refusal,
    request::Request,
    respond::respond,
    slots::Slots,
    work,
};

/// The endpoints of one dispatcher, subscribed.
pub(crate) struct Endpoints {
    service: Service,
    heard: Heard,
}

impl Endpoints {
    /// Announces the service. From here on requests arrive.
    pub(crate) async fn start(bus: &Bus) -> Result<Self, BusError> {
        let failed = |source| BusError::Unavailable {
            doing: "start the NATS service",
            source: Some(source),
        };
        let service = bus
            .client
            .service_builder()
            .description("Toolfleet dispatcher: takes tool calls and answers them")
            .queue_group("toolfleet-dispatchers")
            .start("toolfleet", env!("CARGO_PKG_VERSION"))
            .await
            .map_err(failed)?;
        let mut endpoints = Vec::with_capacity(ENDPOINTS.len());
        for endpoint in &ENDPOINTS {
            let subject = (endpoint.subject)(&bus.subjects);
            let builder = service.endpoint_builder().name(endpoint.name);
            endpoints.push((endpoint, builder.add(subject).await.map_err(failed)?));
        }
        let heard = Heard { endpoints, turn: 0 };
        Ok(Self { service, heard })
    }

    /// Answers requests until `intake` is cancelled; then ends the service and waits for the requests in hand, which end by
    /// their own waits or when `work` is cancelled.
    ///
    /// An endpoint leaves its queue group only while it is polled, and gets its share of the requests until then. So all of
    /// them are polled until they end, and the requests that they still return are answered.
    pub(crate) async fn serve(
        self,
        door: Arc<Door>,
        slots: Slots,
        intake: CancellationToken,
        work: CancellationToken,
    ) {
        let Self { service, mut heard } = self;
        let mut service = Some(service);
        let refusing = Refusing::new();
        let mut requests = JoinSet::new();
        loop {
            // Collected here and not waited for: a wake-up for each request that ends costs more than most requests do.
            while requests.try_join_next().is_some() {}
            let (place, message) = tokio::select! {
                () = intake.cancelled(), if service.is_some() => {
                    if let Some(service) = service.take()
                        && let Err(error) = service.stop().await
                    {
                        tracing::debug!(%error, "service was not stopped in order");
                    }
                    continue;
                }
                Some(next) = heard.next() => next,
                else => break,
            };
            let (endpoint, messages) = &mut heard.endpoints[place];
            take(&door, &slots, &refusing, &mut requests, endpoint, message);
            for _ in 0..endpoint.more_at_once {
                let Some(Some(message)) = messages.next().now_or_never() else {
                    break;
                };
                take(&door, &slots, &refusing, &mut requests, endpoint, message);
            }
        }
        let ended =
            work.run_until_cancelled(async { while requests.join_next().await.is_some() {} });
        if ended.await.is_none() {
            requests.shutdown().await;
        }
    }
}

/// The requests that arrive at the endpoints.
struct Heard {
    endpoints: Vec<(&'static Endpoint, Messages)>,
    /// Which endpoint is looked at first: the one after the last that had a request.
    turn: usize,
}

impl Heard {
    /// The next message and the index of its endpoint; `None` when all have ended. Cancel-safe.
    async fn next(&mut self) -> Option<(usize, Message)> {
        poll_fn(|context| {
            let (all, mut open) = (self.endpoints.len(), false);
            for step in 0..all {
                let place = (self.turn + step) % all;
                match self.endpoints[place].1.poll_next_unpin(context) {
                    Poll::Ready(Some(message)) => {
                        self.turn = (place + 1) % all;
                        return Poll::Ready(Some((place, message)));
                    }
                    Poll::Ready(None) => {}
                    Poll::Pending => open = true,
                }
            }
            if open {
                Poll::Pending
            } else {
                Poll::Ready(None)
            }
        })
        .await
    }
}

/// Answers a message in a task of its own, or refuses it where no slot is free. Never waits.
fn take(
    door: &Arc<Door>,
    slots: &Slots,
    refusing: &Refusing,
    requests: &mut JoinSet<()>,
    endpoint: &'static Endpoint,
    mut message: Message,
) {
    let named = door.bus.subjects.request(&message.message.subject);
    let (tenant, _) = named.unwrap_or_default();
    if !can_be_answered(door, tenant, &message) {
        return;
    }
    if is_malformed(&message.message) {
        let refusal = Refusal::new(Code::HeaderInvalid, MALFORMED);
        refusing.send(requests, refuse(Arc::clone(door), message, refusal));
        return;
    }
    let bytes = message.message.length;
    let reply = message.message.reply.as_deref().unwrap_or_default();
    let sender = endpoint.sender(reply);
    let too_fast = door.rates.pass(sender, tenant, bytes, Instant::now());
    let too_fast = too_fast.err();
    // A request that is refused already takes none.
    let slot = too_fast.is_none().then(|| slots.one(tenant, bytes));
    let no_slot = match slot {
        Some(Ok(mut permit)) => {
            let door = Arc::clone(door);
            // Boxed, for the runtime moves a task's future twice more when it has ended.
            requests.spawn(Box::pin(async move {
                let request = request(&door.bus, &message);
                let answering = endpoint.answer(&door, &request, &mut permit);
                let answer = if door.rates.are_bounded() {
                    let (answer, kept) = work::timed(answering).await;
                    let now = Instant::now();
                    door.rates.worked(sender, request.tenant, kept, now);
                    answer
                } else {
                    answering.await
                };
                drop(request);
                respond(&door.bus, &mut message, answer).await;
                reached(Checkpoint::Answered);
                drop(permit);
            }));
            return;
        }
        Some(Err(full)) => Some(NoSlot::Request(full)),
        None => None,
    };
    let known = Facts {
        too_fast,
        no_slot,
        ..Facts::default()
    };
    if let Err(refusal) = admission::comes_in(&known) {
        refusing.send(requests, refuse(Arc::clone(door), message, refusal));
    }
}

/// Refuses a message that has no slot.
async fn refuse(door: Arc<Door>, mut message: Message, refusal: Refusal) {
    let answer = refused(&door, &request(&door.bus, &message), &refusal);
    respond(&door.bus, &mut message, answer).await;
}

/// The refusals that are being sent without a slot. Most are sent at once; the others get a task each, up to a bound, so that a
/// connection that takes no answers stops no intake.
struct Refusing(Arc<Semaphore>);

impl Refusing {
    /// The most refusals that wait for the connection. Further ones are dropped: a caller without an answer asks again.
    const WAITING_MAX: usize = 1_024;

    fn new() -> Self {
        Self(Arc::new(Semaphore::new(Self::WAITING_MAX)))
    }

    fn send(&self, requests: &mut JoinSet<()>, sending: impl Future<Output = ()> + Send + 'static) {
        let mut sending = Box::pin(sending);
        if sending.as_mut().now_or_never().is_some() {
            return;
        }
        match Arc::clone(&self.0).try_acquire_owned() {
            Ok(waiting) => drop(requests.spawn(async move {
                sending.await;
                drop(waiting);
            })),
            Err(_full) => tracing::debug!("a refusal was dropped; the caller can ask again"),
        }
    }
}

/// Of a request whose headers cannot be read it is not known which key it has: nothing is done by it.
const MALFORMED: Words = Words::fixed(
    "the subject or the headers of the request cannot be read: they have to be UTF-8, and the headers a line NATS/1.0 and then one name: value on each of at most 64 lines",
    "无法读取请求的 subject 或请求头：必须是 UTF-8；请求头的第一行是 NATS/1.0，之后每行一个 name: value，最多 64 行",
);

/// The request in a message.
fn request<'a>(bus: &Bus, message: &'a Message) -> Request<'a> {
    let message = &message.message;
    let (tenant, name) = bus.subjects.request(&message.subject).unwrap_or_default();
    let headers = message.headers.iter().flat_map(HeaderMap::iter);
    let headers = headers.flat_map(|(name, values)| {
        let values = values.iter();
        values.map(move |value| (name.as_ref(), value.as_str().trim()))
    });
    Request {
        tenant,
        name,
        headers: headers.collect(),
        body: &message.payload,
        inbox: message
            .reply
            .as_ref()
            .and_then(|reply| reply.split('.').next()),
    }
}

/// Whether a message names a reply subject that its caller may name (`replies.rs`).
fn can_be_answered(door: &Door, tenant: &str, message: &Message) -> bool {
    let Some(reply) = &message.message.reply else {
        return false;
    };
    let allowed = door.replies.allow(&door.bus.subjects, tenant, reply);
    if !allowed {
        metrics().refused_reply();
        tracing::debug!(
            "a request was dropped: DISPATCHER_REPLIES does not allow its reply subject"
        );
    }
    allowed
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn refusals_that_cannot_be_sent_stop_no_intake_and_are_bounded() {
        let (refusing, mut waiting) = (Refusing::new(), JoinSet::new());
        for _ in 0..2 * Refusing::WAITING_MAX {
            refusing.send(&mut waiting, pending());
        }
        assert_eq!(waiting.len(), Refusing::WAITING_MAX);
        refusing.send(&mut waiting, ready(()));
        waiting.shutdown().await;
        refusing.send(&mut waiting, pending());
        assert_eq!(waiting.len(), 1, "their places are free again");
    }
}
