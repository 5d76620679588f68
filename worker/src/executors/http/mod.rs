//! HTTP tools: one request, one answer, and whether the tool may have acted.
//!
//! `request` builds what is sent, of `part`s and an `address`, which `expand`s the manifest's template. `response` says what an
//! answer means, with `words` for people; `sse` reads one that comes as a stream of events. All of these are pure. `transport` owns
//! the clients and says what their errors prove; `resolve` lets names lead only where requests may go. This file sends the request,
//! bounds it and stops it.

mod address;
mod expand;
pub(in crate::executors) mod part;
mod request;
mod resolve;
pub(in crate::executors) mod response;
pub(in crate::executors) mod sse;
pub(in crate::executors) mod transport;
pub(in crate::executors) mod words;

use std::pin::Pin;

use fleet::{
    call::Effect,
    egress::Egress,
    manifest::{ExecutorSpec, Manifest},
    outcome::{Outcome, ToolFailure},
    said,
    secrets::Secrets,
    taken_back::TakenBack,
    wire::{code::Code, message::Message},
};
use futures_util::{FutureExt, future::BoxFuture};
use reqwest::{
    Client, Response,
    header::{CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
};
use secrecy::SecretString;
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep_until};

use self::{
    part::defect,
    request::{HttpRequest, Template},
    response::{BodyEnd, HttpAnswer, StatusRules},
    sse::EventStream,
};
use super::{
    AttemptContext, Executor, Prepared, Progress, Returned, headers,
    redact::{hidden, veil},
};

pub use self::transport::HttpExecutorError;

/// Only the message of a refusal is read.
const REFUSAL_MAX: usize = 64 * 1024;
/// The most bytes of a stream beside its result: parts have fewer, and what is around them is not much longer.
const STREAM_MAX: usize = 16 * 1024 * 1024;

/// Runs HTTP tools.
#[derive(Debug, Clone)]
pub struct HttpExecutor {
    reads: Client,
    writes: Client,
    egress: Egress,
}

impl HttpExecutor {
    /// Builds the clients, whose requests go where `egress` allows it; reads the machine's CA certificates.
    ///
    /// # Errors
    ///
    /// No TLS provider is installed in this process, or there are no CA certificates.
    pub fn new(egress: Egress) -> Result<Self, HttpExecutorError> {
        Ok(Self {
            reads: transport::reading(&egress)?,
            writes: transport::writing(&egress)?,
            egress,
        })
    }
}

impl Executor for HttpExecutor {
    fn prepare(
        &self,
        manifest: &Manifest,
        arguments: &Value,
        secrets: &Secrets,
    ) -> Result<Box<dyn Prepared>, ToolFailure> {
        let ExecutorSpec::Http(spec) = &manifest.executor else {
            let kind = manifest.executor.kind();
            return Err(defect(said!(
                "a {kind} tool was given to the http executor",
                "一个 {kind} 工具被交给了 http 执行器"
            )));
        };
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let template = Template::new(spec, secrets)?;
        let write = manifest.effect != Effect::Read;
        let rules = StatusRules {
            write,
            business_statuses: manifest.business_statuses.clone(),
            not_applied_statuses: manifest.not_applied_statuses.clone(),
            later_statuses: manifest
                .completion
                .as_ref()
                .map(|completion| completion.statuses.clone())
                .unwrap_or_default(),
            output_limit: manifest.output_limit,
            is_stream: spec.stream,
            secrets: template.secrets(),
        };
        let idempotency = manifest.idempotency.as_ref();
        let key_header = idempotency.and_then(|idempotency| idempotency.header.as_deref());
        let key_argument = idempotency.and_then(|idempotency| idempotency.argument.clone());
        Ok(Box::new(HttpAttempt {
            client: if write {
                self.writes.clone()
            } else {
                self.reads.clone()
            },
            egress: self.egress.clone(),
            draft: HttpDraft::new(template, arguments, key_argument)?,
            key_header: key_header.map(key_header_name).transpose()?,
            hidden: hidden(rules.secrets.clone(), manifest.redact_results),
            rules,
        }))
    }
}

/// `Idempotency-Key` goes out with every request anyway; a manifest may name it too.
fn key_header_name(name: &str) -> Result<HeaderName, ToolFailure> {
    if name.eq_ignore_ascii_case("idempotency-key") {
        return Ok(HeaderName::from_static("idempotency-key"));
    }
    part::header_name(name)
}

/// A request that is rendered, or that lacks only the key that one of its arguments carries.
enum HttpDraft {
    Ready(Box<HttpRequest>),
    AwaitsKey {
        template: Box<Template>,
        arguments: Map<String, Value>,
        argument: String,
    },
}

impl HttpDraft {
    fn new(
        template: Template,
        mut arguments: Map<String, Value>,
        key_argument: Option<String>,
    ) -> Result<Self, ToolFailure> {
        let Some(argument) = key_argument else {
            return Ok(Self::Ready(Box::new(template.render(&arguments)?)));
        };
        // Only the attempt knows the key. Any visible text shows every other mistake now, before the claim.
        arguments.insert(argument.clone(), Value::from("key"));
        template.render(&arguments)?;
        Ok(Self::AwaitsKey {
            template: Box::new(template),
            arguments,
            argument,
        })
    }

    fn with_key(self, key: &str) -> Result<HttpRequest, ToolFailure> {
        match self {
            Self::Ready(request) => Ok(*request),
            Self::AwaitsKey {
                template,
                mut arguments,
                argument,
            } => {
                arguments.insert(argument, Value::from(key));
                template.render(&arguments)
            }
        }
    }
}

struct HttpAttempt {
    client: Client,
    egress: Egress,
    draft: HttpDraft,
    key_header: Option<HeaderName>,
    rules: StatusRules,
    /// Masked in the answer.
    hidden: Vec<SecretString>,
}

impl Prepared for HttpAttempt {
    fn run(mut self: Box<Self>, context: AttemptContext) -> BoxFuture<'static, Returned> {
        let hidden = std::mem::take(&mut self.hidden);
        context.progress.hide(&hidden);
        let veiled = move |outcome| Returned::from(veil(outcome, &hidden));
        self.attempt(context).map(veiled).boxed()
    }
}

impl HttpAttempt {
    async fn attempt(self, context: AttemptContext) -> Outcome {
        let key = &context.idempotency_key;
        let carried = self.draft.with_key(key).and_then(|mut request| {
            carry(&mut request.headers, self.key_header.as_ref(), &context)?;
            Ok(request)
        });
        let request = match carried {
            Ok(request) => request,
            Err(failure) => return Outcome::NotStarted(failure),
        };
        // Of names the resolver asks the same.
        if let Some(address) = self.egress.forbidden_literal(request.url.as_str()) {
            return Outcome::NotStarted(transport::denied(&request.url, address));
        }
        if let Some(reason) = context.stop.asked() {
            return Outcome::NotStarted(reason.before_anything_was_sent());
        }
        if Instant::now() >= context.until {
            let message = Message::fixed(
                "the attempt's time was over before anything was sent",
                "这次尝试还没有发出任何内容，时间就到了",
            );
            let failure = ToolFailure::new(Code::Timeout, message);
            return Outcome::NotStarted(failure.taken_back(TakenBack::StartedTooLate));
        }
        exchange(&self.client, request, &self.rules, &context).await
    }
}

/// Adds the headers that every request carries. They replace what the manifest put there.
fn carry(
    message: &mut HeaderMap,
    key_header: Option<&HeaderName>,
    context: &AttemptContext,
) -> Result<(), ToolFailure> {
    for (name, value) in headers::headers(context)? {
        let value = HeaderValue::try_from(value).expect("only visible ASCII and spaces are left");
        if let Some(named) = key_header.filter(|_| name == headers::KEY) {
            message.insert(named, value.clone());
        }
        let name = HeaderName::try_from(name).expect("what we say has names that fit");
        message.insert(name, value);
    }
    Ok(())
}

/// Sends the request once and reads the answer, until `context` ends it. Dropping it closes the connection.
async fn exchange(
    client: &Client,
    request: HttpRequest,
    rules: &StatusRules,
    context: &AttemptContext,
) -> Outcome {
    let origin = request.url.origin().ascii_serialization();
    let mut message = reqwest::Request::new(request.method, request.url);
    *message.headers_mut() = request.headers;
    *message.body_mut() = request.body.map(Into::into);

    let mut cut = Box::pin(cut_off(context));
    let sent = tokio::select! {
        biased;
        sent = client.execute(message) => sent,
        end = &mut cut => return unanswered(end, &origin),
    };
    match sent {
        Ok(response) => {
            let status = response.status().as_u16();
            let answer = if rules.later_statuses.contains(&status) {
                // What it says of itself does not count, and may never end.
                HttpAnswer {
                    status,
                    ..HttpAnswer::default()
                }
            } else if rules.is_stream && is_stream(&response) {
                read_stream(response, rules.output_limit, &context.progress, cut).await
            } else {
                read(response, rules.output_limit, cut).await
            };
            response::class(rules, &answer)
        }
        Err(error) => transport::failed(error, &origin),
    }
}

/// Resolves when the attempt must end, with the reason.
pub(in crate::executors) async fn cut_off(context: &AttemptContext) -> BodyEnd {
    tokio::select! {
        biased;
        reason = context.stop.told() => BodyEnd::Stopped(reason),
        () = sleep_until(context.until) => BodyEnd::TimedOut,
    }
}

pub(in crate::executors) fn unanswered(end: BodyEnd, origin: &str) -> Outcome {
    Outcome::Unknown(match end {
        BodyEnd::Stopped(reason) => {
            let word = reason.word();
            let what = said!(
                "the attempt was {word} before {origin} answered",
                "这次尝试在 {origin} 响应之前{word}",
                word
            );
            ToolFailure::new(reason.code(), what)
        }
        BodyEnd::Whole
        | BodyEnd::TooLarge
        | BodyEnd::Broken
        | BodyEnd::NoResult
        | BodyEnd::TimedOut => {
            let what = said!(
                "the attempt's time was over before {origin} answered",
                "{origin} 还没有响应，这次尝试的时间就到了"
            );
            ToolFailure::new(Code::Timeout, what)
        }
    })
}

/// An answer, as far as its head says what it is.
pub(in crate::executors) fn without_body(response: &Response) -> HttpAnswer {
    let header = |name| {
        response
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    HttpAnswer {
        status: response.status().as_u16(),
        content_type: header(CONTENT_TYPE),
        retry_after: header(RETRY_AFTER),
        date: header(DATE),
        ..HttpAnswer::default()
    }
}

/// Reads the body up to its limit. Headers need no limit of ours: the library stops at 100 of them and about 400 KiB.
pub(in crate::executors) async fn read<F: Future<Output = BodyEnd>>(
    mut response: Response,
    output_limit: usize,
    mut cut: Pin<Box<F>>,
) -> HttpAnswer {
    let success = response.status().is_success();
    let limit = if success { output_limit } else { REFUSAL_MAX };
    let mut answer = without_body(&response);
    answer.end = loop {
        let chunk = tokio::select! {
            biased;
            chunk = response.chunk() => chunk,
            end = &mut cut => break end,
        };
        match chunk {
            Ok(Some(chunk)) if answer.body.len() + chunk.len() > limit => {
                let room = limit - answer.body.len();
                answer.body.extend_from_slice(&chunk[..room]);
                break BodyEnd::TooLarge;
            }
            Ok(Some(chunk)) => answer.body.extend_from_slice(&chunk),
            Ok(None) => break BodyEnd::Whole,
            Err(_broken) => break BodyEnd::Broken,
        }
    };
    answer
}

/// Whether the response is a success that comes as a stream of events.
pub(in crate::executors) fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    response.status().is_success() && kind.eq_ignore_ascii_case("text/event-stream")
}

/// Reads a stream of events up to its result, which is the body, and tells the parts before it.
async fn read_stream<F: Future<Output = BodyEnd>>(
    mut response: Response,
    output_limit: usize,
    progress: &Progress,
    mut cut: Pin<Box<F>>,
) -> HttpAnswer {
    let mut answer = HttpAnswer {
        status: response.status().as_u16(),
        ..HttpAnswer::default()
    };
    let mut events = EventStream::up_to(output_limit);
    let mut room = output_limit.saturating_add(STREAM_MAX);
    answer.end = loop {
        let chunk = tokio::select! {
            biased;
            chunk = response.chunk() => chunk,
            end = &mut cut => break end,
        };
        match chunk {
            Ok(Some(chunk)) => {
                if let Some(result) = events.feed(&chunk, |part| progress.relay(part)) {
                    let is_whole = !result.is_cut && result.body.len() <= output_limit;
                    answer.body = result.body;
                    answer.body.truncate(output_limit);
                    break if is_whole {
                        BodyEnd::Whole
                    } else {
                        BodyEnd::TooLarge
                    };
                }
                match room.checked_sub(chunk.len()) {
                    Some(left) => room = left,
                    None => break BodyEnd::NoResult,
                }
            }
            Ok(None) => break BodyEnd::NoResult,
            Err(_broken) => break BodyEnd::Broken,
        }
    };
    answer
}
