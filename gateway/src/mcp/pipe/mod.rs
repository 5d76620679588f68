//! MCP over a pipe: a message a line on the input, and a message a line on the output, as desktop clients start servers.
//!
//! The handler is the same as over HTTP. What HTTP says in headers a pipe says in the messages: the revision stands in `_meta`, or was
//! agreed on by `initialize`; a client that does not want an answer any more says so with `notifications/cancelled`, and one that is
//! gone closes its end. Who asks is the program that holds the other end: its rights are those of the user at NATS.

mod lines;

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::http::HeaderMap;
use bytes::Bytes;
use fleet::{
    bus::connect::Bus,
    call::Language,
    ids::Label,
    wire::{code::Code, message::Message},
};
use fleet_client::AskError;
use tokio::{
    io::{AsyncBufRead, AsyncWrite, AsyncWriteExt},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::JoinSet,
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::lines::{Line, Lines};
use super::{
    answered::note,
    client::McpClient,
    content::McpContent,
    message::{CANCELLED, RpcMessage, RpcNotification, RpcRequest},
    methods::{OTHER, ServedMethod},
    negotiate::over_a_pipe,
    revision::Revision,
    rpc::{RpcError, RpcId, RpcReply},
    serve::{NoResult, ServedRequest},
};
use crate::{
    ask::Dispatchers,
    auth::principal::Principal,
    body::{MESSAGE_MAX, aside},
    desk::CallDesk,
    headers::LANGUAGE,
    refusal::Refused,
    when_left::WhenLeft,
};

/// The most requests that are answered at a time.
const REQUESTS_MAX: usize = 64;
/// How many answers wait to be written.
const ANSWERS: usize = 16;
/// How long requests go on whose client has closed its end: those that only look are answered by then.
const END_GRACE: Duration = Duration::from_millis(500);
/// How long requests in hand may take once the program is to stop.
const STOP_GRACE: Duration = Duration::from_secs(4);
/// How long it may take to cancel the calls of a client that is gone: the id of a call is known after two seconds at the latest.
const CANCEL_MAX: Duration = Duration::from_secs(5);
/// How long the last answers may take to be written.
const WRITE_MAX: Duration = Duration::from_secs(1);

/// For whom a pipe is served.
#[derive(Debug)]
pub struct PipeClient {
    /// By which name the history knows who asks.
    pub principal: String,
    /// Whose calls they are.
    pub tenant: Label,
    /// The language of messages.
    pub language: Language,
    /// What a folder has beside the tools.
    pub content: McpContent,
}

/// What ends a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The client has closed its end.
    Gone,
    /// The program is to stop.
    Stop,
}

/// Serves the client at the other end of a pipe until it closes its end, or until `stop` resolves.
///
/// Once it is to stop, no call is cancelled: requests that wait are answered with where their calls stand. A client that is gone has its
/// calls cancelled.
///
/// # Errors
///
/// The connection to NATS is closed.
pub async fn serve_pipe(
    client: PipeClient,
    bus: &Bus,
    input: impl AsyncBufRead + Unpin + Send,
    output: impl AsyncWrite + Unpin + Send + 'static,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), AskError> {
    let dispatchers = Dispatchers::new(bus).await?;
    let desk = CallDesk::new(
        dispatchers,
        client.content,
        CancellationToken::new(),
        TaskTracker::new(),
    );
    let mut headers = HeaderMap::new();
    headers.insert(
        LANGUAGE,
        axum::http::HeaderValue::from_static(client.language.as_str()),
    );
    let pipe = Arc::new(Pipe {
        desk: Arc::new(desk),
        client: McpClient {
            principal: Principal::Named(client.principal.into()),
            tenant: client.tenant,
            headers,
            language: client.language,
        },
        running: Mutex::default(),
        places: Arc::new(Semaphore::new(REQUESTS_MAX)),
    });
    let (answers, written) = mpsc::channel(ANSWERS);
    let mut writing = JoinSet::new();
    writing.spawn(write(output, written));
    let mut requests = JoinSet::new();
    let mut reading = PipeReading {
        pipe: Arc::clone(&pipe),
        answers,
        has_greeted: false,
    };
    let end = reading.read(input, &mut requests, stop).await;
    let grace = match end {
        End::Gone => END_GRACE,
        End::Stop => {
            pipe.desk.stopping.cancel();
            STOP_GRACE
        }
    };
    let all = async { while requests.join_next().await.is_some() {} };
    if timeout(grace, all).await.is_err() {
        requests.shutdown().await;
    }
    pipe.desk.tasks.close();
    if timeout(CANCEL_MAX, pipe.desk.tasks.wait()).await.is_err() {
        tracing::warn!("a call whose client is gone is left as it is");
    }
    drop(reading);
    if timeout(WRITE_MAX, writing.join_next()).await.is_err() {
        tracing::debug!("the client does not read the last answers");
    }
    bus.flush().await;
    Ok(())
}

/// Writes answers, a line each, until there are no more or nobody reads them.
async fn write(mut output: impl AsyncWrite + Unpin, mut answers: mpsc::Receiver<Bytes>) {
    while let Some(answer) = answers.recv().await {
        let written = async {
            output.write_all(&on_one_line(answer)).await?;
            output.write_all(b"\n").await?;
            output.flush().await
        };
        if let Err(problem) = written.await {
            tracing::debug!(%problem, "nobody reads the answers any more");
            return;
        }
    }
}

/// A message without line ends: within a text they are written in another way, so those that there are stand between values.
fn on_one_line(message: Bytes) -> Bytes {
    let ends_line = |byte: &u8| matches!(byte, b'\n' | b'\r');
    if !message.iter().any(ends_line) {
        return message;
    }
    let mut line = Vec::from(message);
    for byte in line.iter_mut().filter(|byte| ends_line(byte)) {
        *byte = b' ';
    }
    line.into()
}

/// What all requests of a pipe share.
#[derive(Debug)]
struct Pipe {
    desk: Arc<CallDesk>,
    client: McpClient,
    /// The requests that are being answered, by their ids as they were sent; cancelled by their client.
    running: Mutex<HashMap<String, CancellationToken>>,
    /// One for each request that has no answer yet which was taken.
    places: Arc<Semaphore>,
}

/// The side of a pipe that reads.
struct PipeReading {
    pipe: Arc<Pipe>,
    answers: mpsc::Sender<Bytes>,
    /// Whether the client has said `initialize`.
    has_greeted: bool,
}

impl PipeReading {
    async fn read(
        &mut self,
        input: impl AsyncBufRead + Unpin,
        requests: &mut JoinSet<()>,
        stop: impl Future<Output = ()>,
    ) -> End {
        let mut lines = Lines::new(input, MESSAGE_MAX);
        let mut stop = std::pin::pin!(stop);
        loop {
            let line = tokio::select! {
                biased;
                () = &mut stop => return End::Stop,
                () = self.answers.closed() => return End::Gone,
                Some(_ended) = requests.join_next() => continue,
                line = lines.next() => line,
            };
            let taken = match line {
                Ok(Some(Line::Whole(line))) if line.trim_ascii().is_empty() => continue,
                Ok(Some(Line::Whole(line))) => self.take(line, requests).await,
                Ok(Some(Line::TooLong)) => Err(self.refused(OTHER, None, &too_long())),
                Ok(None) => return End::Gone,
                Err(problem) => {
                    tracing::debug!(%problem, "the input cannot be read any more");
                    return End::Gone;
                }
            };
            let Err(refused) = taken else {
                continue;
            };
            // A client that does not read is not read from.
            tokio::select! {
                biased;
                () = &mut stop => return End::Stop,
                sent = self.answers.send(refused.body) => if sent.is_err() {
                    return End::Gone;
                },
            }
        }
    }

    /// Takes the message on a line; else the answer to it.
    async fn take(&mut self, line: Bytes, requests: &mut JoinSet<()>) -> Result<(), RpcReply> {
        let read = aside(line.len(), move || RpcMessage::read(&line)).await;
        let read = read.map_err(|stopped| self.refused(OTHER, None, &self.internal(&stopped)))?;
        let request = match read {
            Ok(RpcMessage::Request(request)) => request,
            Ok(RpcMessage::Notification(notification)) => {
                self.pipe.cancel(&notification);
                return Ok(());
            }
            Err(none) => return Err(self.refused(OTHER, none.id.as_ref(), &none.error)),
        };
        let method = ServedMethod::counted_as(&request.method);
        let revision = over_a_pipe(&request, self.has_greeted)
            .map_err(|error| self.refused(method, Some(&request.id), &error))?;
        self.has_greeted |= request.method == "initialize";
        let mut running = self
            .pipe
            .run(&request.id)
            .map_err(|error| self.refused(method, Some(&request.id), &error))?;
        let (pipe, answers) = (Arc::clone(&self.pipe), self.answers.clone());
        requests.spawn(async move {
            let reply = tokio::select! {
                biased;
                () = running.cancelled.cancelled() => return,
                reply = Box::pin(pipe.answer(&request, revision)) => reply,
            };
            pipe.note(method, &reply);
            // Its id may be used again as soon as its answer is there; its place is taken until a client that reads has room for it.
            let _place = running.place.take();
            drop(running);
            // Else nobody reads it.
            answers.send(reply.body).await.ok();
        });
        Ok(())
    }

    /// The answer to what is not served, which is noted.
    fn refused(&self, method: &'static str, id: Option<&RpcId>, error: &RpcError) -> RpcReply {
        let reply = error.told(id, self.pipe.client.language);
        self.pipe.note(method, &reply);
        reply
    }

    fn internal(&self, refused: &Refused) -> RpcError {
        RpcError::refused(refused, self.pipe.client.language)
    }
}

impl Pipe {
    async fn answer(&self, request: &RpcRequest, revision: Revision) -> RpcReply {
        let serving = ServedRequest {
            desk: Arc::clone(&self.desk),
            client: &self.client,
            revision,
            when_left: WhenLeft::Cancelled,
        };
        let language = self.client.language;
        let error = match serving.answer(request).await {
            Ok(reply) => return reply,
            Err(NoResult::Rpc(error)) => error,
            Err(NoResult::Refused(refused)) => RpcError::refused(&refused, language),
        };
        error.told(Some(&request.id), language)
    }

    /// Notes the answer to a request, for who operates the fleet.
    fn note(&self, method: &'static str, reply: &RpcReply) {
        let McpClient {
            principal, tenant, ..
        } = &self.client;
        note(method, reply.code, Some(tenant), principal.name());
    }

    /// Notes that a request is being answered.
    fn run(self: &Arc<Self>, id: &RpcId) -> Result<Running, RpcError> {
        let id = id.0.get().to_owned();
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let what = Message::fixed(
                "too many requests are being answered; send it again when some are",
                "正在处理的请求太多；请在部分请求完成后再发送",
            );
            return Err(self.later(Code::Overloaded, what));
        };
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let Entry::Vacant(free) = running.entry(id.clone()) else {
            let what = Message::fixed(
                "a request with this id is being answered",
                "使用这个 id 的请求正在处理中",
            );
            return Err(RpcError::invalid_request(what));
        };
        let cancelled = free.insert(CancellationToken::new()).clone();
        Ok(Running {
            pipe: Arc::clone(self),
            id,
            cancelled,
            place: Some(place),
        })
    }

    fn later(&self, code: Code, what: Message) -> RpcError {
        RpcError::refused(&Refused::later(code, what), self.client.language)
    }

    /// Ends the request that its client does not want answered any more. Its call is cancelled as that of a client that hangs up.
    fn cancel(&self, notification: &RpcNotification) {
        if notification.method != CANCELLED {
            return;
        }
        let id = notification.params.get("requestId");
        let id = id.and_then(|id| str::from_utf8(id).ok());
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cancelled) = id.and_then(|id| running.get(id)) {
            cancelled.cancel();
        }
    }
}

/// A request that is being answered.
struct Running {
    pipe: Arc<Pipe>,
    id: String,
    cancelled: CancellationToken,
    /// One of [`REQUESTS_MAX`].
    place: Option<OwnedSemaphorePermit>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let running = &self.pipe.running;
        let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
        running.remove(&self.id);
    }
}

fn too_long() -> RpcError {
    RpcError::invalid_request(Message::fixed(
        "a message has 320 KiB at most",
        "一条消息最多 320 KiB",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_and_says_the_same() {
        let plain = Bytes::from_static(b"{\"a\":\"x\\n\"}");
        assert_eq!(on_one_line(plain.clone()), plain);
        let pretty = Bytes::from_static(b"{\n  \"a\": [1,\r\n 1.10]}");
        let line = on_one_line(pretty);
        assert_eq!(&line[..], b"{   \"a\": [1,   1.10]}");
    }
}
