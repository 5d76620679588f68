//! The NATS service: the endpoints, one task per request, a bound on how many, and the answer.

use std::{sync::Arc, time::Duration};

use async_nats::{
    HeaderMap, PublishError,
    service::{Request, Service, ServiceExt, endpoint::Endpoint, error::Error as ServiceError},
};
use bytes::Bytes;
use fleet::{
    bus::BusError,
    checkpoint::{Checkpoint, reached},
    ids::Label,
    telemetry::metrics,
    wire::{code::Code, headers::RequestHeaders},
};
use futures_util::{FutureExt, StreamExt};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    accept::{BAD_TENANT, Door, lines},
    answer::{Answer, Refusal},
    batch, cancel, get, listing, settle,
    slots::{Held, Slots},
};

/// The endpoints of one dispatcher.
pub(crate) struct Endpoints {
    service: Service,
    call: Endpoint,
    batch: Endpoint,
    get: Endpoint,
    tools: Endpoint,
    cancel: Endpoint,
    settle: Endpoint,
}

impl Endpoints {
    /// Announces the service. From here on requests arrive.
    pub(crate) async fn start(door: &Door) -> Result<Self, BusError> {
        let failed = |source| BusError::Unavailable {
            doing: "start the NATS service",
            source: Some(source),
        };
        let service = door
            .bus
            .client
            .service_builder()
            .description("Toolfleet dispatcher: takes tool calls and answers them")
            .queue_group("toolfleet-dispatchers")
            .start("toolfleet", env!("CARGO_PKG_VERSION"))
            .await
            .map_err(failed)?;
        let subjects = &door.bus.subjects;
        let endpoint = async |name: &str, subject: String| {
            let builder = service.endpoint_builder().name(name);
            builder.add(subject).await.map_err(failed)
        };
        let call = endpoint("call", subjects.call_endpoint()).await?;
        let batch = endpoint("batch", subjects.batch_endpoint()).await?;
        let get = endpoint("get", subjects.get_endpoint()).await?;
        let tools = endpoint("tools", subjects.tools_endpoint()).await?;
        let cancel = endpoint("cancel", subjects.cancel_endpoint()).await?;
        let settle = endpoint("admin-settle", subjects.settle_endpoint()).await?;
        Ok(Self {
            service,
            call,
            batch,
            get,
            tools,
            cancel,
            settle,
        })
    }

    /// Answers requests until `intake` is cancelled; then ends the service and waits for the requests in hand, which end
    /// by their own waits or when `work` is cancelled.
    ///
    /// An endpoint leaves its queue group only while it is polled, and until then gets its share of the requests. So all
    /// are polled until they end, and what they still hand out is answered.
    pub(crate) async fn serve(
        self,
        door: Arc<Door>,
        requests_max: usize,
        intake: CancellationToken,
        work: CancellationToken,
    ) {
        let Self {
            service,
            mut call,
            mut batch,
            mut get,
            mut tools,
            mut cancel,
            mut settle,
        } = self;
        let mut service = Some(service);
        let slots = Slots::new(requests_max);
        let mut requests = JoinSet::new();
        loop {
            // Looked for here and not waited for: being woken for each that ends costs more than most of them do.
            while requests.try_join_next().is_some() {}
            let (asked, request) = tokio::select! {
                () = intake.cancelled(), if service.is_some() => {
                    if let Some(service) = service.take()
                        && let Err(error) = service.stop().await
                    {
                        tracing::debug!(%error, "service was not stopped in order");
                    }
                    continue;
                }
                Some(request) = call.next() => (Asked::Call, request),
                Some(request) = batch.next() => (Asked::Batch, request),
                Some(request) = get.next() => (Asked::Get, request),
                Some(request) = tools.next() => (Asked::Tools, request),
                Some(request) = cancel.next() => (Asked::Cancel, request),
                Some(request) = settle.next() => (Asked::Settle, request),
                else => break,
            };
            take(&door, &slots, &mut requests, asked, request).await;
            // What came together is taken together: a look at all endpoints costs as much as taking several calls.
            for _ in 0..CALLS_TOGETHER_MAX {
                let Some(Some(request)) = call.next().now_or_never() else {
                    break;
                };
                take(&door, &slots, &mut requests, Asked::Call, request).await;
            }
        }
        let ended =
            work.run_until_cancelled(async { while requests.join_next().await.is_some() {} });
        if ended.await.is_none() {
            requests.shutdown().await;
        }
    }
}

/// Calls that are taken before another look at the other endpoints.
const CALLS_TOGETHER_MAX: usize = 64;

/// Answers a request in a task of its own, or refuses it where there is no slot for it.
async fn take(
    door: &Arc<Door>,
    slots: &Slots,
    requests: &mut JoinSet<()>,
    asked: Asked,
    mut request: Request,
) {
    if !can_be_answered(door, &request) {
        return;
    }
    match slots.one(tenant_in(&request.message.subject)) {
        Ok(mut slot) => {
            let door = Arc::clone(door);
            // In a box, for the runtime moves a task's future twice more when it has ended.
            requests.spawn(Box::pin(async move {
                handle(&door, asked, &mut request, &mut slot).await;
                drop(slot);
            }));
        }
        Err(full) => {
            door.count_refusal(Code::Overloaded, tool_of(&request.message.subject));
            let full = Refusal::new(Code::Overloaded, full.message());
            let answer = refused(door, &request, &full);
            respond(door, &mut request, answer).await;
        }
    }
}

/// Whether a request names a subject to answer on, and none that its caller could not speak on itself: answers are published
/// with the dispatcher's own permissions.
fn can_be_answered(door: &Door, request: &Request) -> bool {
    let Some(reply) = &request.message.reply else {
        return false;
    };
    let accepted = door.bus.subjects.accepts_reply(reply);
    if !accepted {
        tracing::warn!(
            "a request named a reply subject of ours or of the server's and was dropped"
        );
    }
    accepted
}

/// The tool that a submission's subject names; empty for another subject.
pub(crate) fn tool_of(subject: &str) -> &str {
    let mut tokens = subject.splitn(5, '.').skip(3);
    match tokens.next() {
        Some("call") => tokens.next().unwrap_or_default(),
        Some(_) | None => "",
    }
}

/// The tenant that a subject names, whether or not it can be one.
fn tenant_in(subject: &str) -> &str {
    subject.split('.').nth(2).unwrap_or_default()
}

/// Which endpoint heard a request.
#[derive(Debug, Clone, Copy)]
enum Asked {
    Call,
    Batch,
    Get,
    Tools,
    Cancel,
    Settle,
}

async fn handle(door: &Door, asked: Asked, request: &mut Request, slots: &mut Held) {
    let message = &request.message;
    let (subject, body) = (message.subject.as_str(), &message.payload);
    let tenant = || tenant(door, subject);
    let verdict = |said| verdict(door, request, said);
    // What is rarer than calls is in boxes: the future of a call has no room for it.
    let answer = match asked {
        Asked::Call => door.submit(subject, message.headers.as_ref(), body).await,
        Asked::Batch => {
            verdict(async { Box::pin(batch::batch(door, &tenant()?, message, slots)).await }.await)
        }
        Asked::Get => verdict(async { Box::pin(get::get(door, &tenant()?, body)).await }.await),
        Asked::Tools => verdict(tenant().and_then(|_tenant| listing::tools(door, body))),
        Asked::Cancel => {
            verdict(async { Box::pin(cancel::cancel(door, &tenant()?, body)).await }.await)
        }
        Asked::Settle => {
            verdict(async { Box::pin(settle::settle(door, &tenant()?, body)).await }.await)
        }
    };
    respond(door, request, answer).await;
    reached(Checkpoint::Answered);
}

fn verdict(door: &Door, request: &Request, answer: Result<Answer, Refusal>) -> Answer {
    answer.unwrap_or_else(|refusal| {
        metrics().rejected(refusal.code, None);
        refused(door, request, &refusal)
    })
}

/// A refusal in the caller's language, which is read whatever else is wrong with its request.
fn refused(door: &Door, request: &Request, refusal: &Refusal) -> Answer {
    let message = &request.message;
    let asked = RequestHeaders::language_of(&lines(message.headers.as_ref()));
    let named = tool_of(&message.subject);
    Answer::refusal(named, refusal, door.language_of(asked, named))
}

async fn respond(door: &Door, request: &mut Request, answer: Answer) {
    // Empty for all but refusals, and then they are not sent.
    let mut headers = HeaderMap::new();
    let mut counted = None;
    if let Some((code, message)) = &answer.refused {
        let message: String = message
            .chars()
            .map(|c| match c {
                _ if c.is_control() => ' ',
                _ if c.is_ascii() => c,
                _ => '?',
            })
            .take(200)
            .collect();
        headers.insert("Nats-Service-Error", message.as_str());
        let number = service_code(*code);
        headers.insert("Nats-Service-Error-Code", number.to_string().as_str());
        // Statistics are for everybody to read, so they name the code and nothing that a caller has said.
        counted = Some(ServiceError {
            status: code.to_string(),
            code: usize::from(number),
        });
    }
    let responding = send(door, request, answer.body, headers, counted);
    // A connection that is down takes a bounded number of messages and then blocks for ever.
    if !matches!(
        tokio::time::timeout(Duration::from_secs(5), responding).await,
        Ok(Ok(()))
    ) {
        tracing::debug!("an answer was not sent; the caller can ask again");
    }
}

/// Sends an answer, counted in the statistics of the service (`$SRV.STATS`): as an error where it is a refusal.
///
/// The library counts an error only with an answer that it sends itself, and that one has no body. So the answer goes to the
/// caller from here, and the counted one to where nobody listens.
async fn send(
    door: &Door,
    request: &mut Request,
    body: Bytes,
    headers: HeaderMap,
    refusal: Option<ServiceError>,
) -> Result<(), PublishError> {
    let Some(refusal) = refusal else {
        return request.respond_with_headers(Ok(body), headers).await;
    };
    let counted = door.bus.subjects.counted();
    let Some(reply) = request.message.reply.replace(counted.into()) else {
        return Ok(());
    };
    let client = &door.bus.client;
    client.publish_with_headers(reply, headers, body).await?;
    request.respond(Err(refusal)).await
}

/// The number in `Nats-Service-Error-Code`, in the sense of HTTP.
const fn service_code(code: Code) -> u16 {
    match code {
        Code::UnknownTool | Code::UnknownToolVersion | Code::NotFound => 404,
        Code::IdempotencyKeyReused | Code::Conflict | Code::WorkerNotFenced => 409,
        Code::ToolRetired => 410,
        Code::PayloadTooLarge => 413,
        Code::QuotaExceeded => 429,
        Code::Overloaded | Code::StoreUnavailable => 503,
        Code::MalformedJson
        | Code::TruncatedArguments
        | Code::InvalidUnicode
        | Code::NulNotAllowed
        | Code::DuplicateKey
        | Code::DepthExceeded
        | Code::TooManyNodes
        | Code::KeyTooLong
        | Code::StringTooLong
        | Code::NumberOutOfRange
        | Code::NumberTooLong
        | Code::InvalidArguments
        | Code::InvalidToolName
        | Code::InvalidTenant
        | Code::MissingIdempotencyKey
        | Code::InvalidIdempotencyKey
        | Code::DeadlineInvalid
        | Code::HeaderInvalid
        | Code::InvalidId => 400,
        Code::Timeout
        | Code::Unavailable
        | Code::ToolCrashed
        | Code::ToolError
        | Code::OutputInvalid
        | Code::OutputTooLarge
        | Code::RetriesExhausted
        | Code::DeadlineExceeded
        | Code::Cancelled
        | Code::InDoubt
        | Code::NotApplied
        | Code::ToolGone => 500,
    }
}

fn tenant(door: &Door, subject: &str) -> Result<Label, Refusal> {
    let tenant = door.bus.subjects.tenant_of(subject);
    tenant
        .map(|(tenant, _)| tenant)
        .map_err(|code| Refusal::new(code, BAD_TENANT))
}
