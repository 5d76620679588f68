//! Answers a vendor's client with a stream: the chunks of the call's events as they come, or the whole reply as events where none came.
//!
//! Nothing is sent before the first chunk, the end of the call, or a little while: so a call that fails at once is an error with a
//! status, and a proxy hears of one that takes long.

use std::{sync::Arc, time::Duration};

use axum::{body::Body, http::HeaderValue, response::Response};
use bytes::BytesMut;
use fleet::{
    call::Language,
    ids::{CallId, Label},
    manifest::ChatProtocol,
    telemetry::metrics,
    wire::{code::Code, message::Message},
};
use fleet_client::Answer;
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep_until, timeout, timeout_at},
};
use uuid::Uuid;

use super::{
    ask::{told, until_decided},
    chunks::{CallEvent, ChunkFold, CutOff},
    error::{ModelError, name},
    reply::ModelReply,
    seen::WholeSaid,
    sse,
};
use crate::{
    body::aside,
    events::{
        begin::BeginAt,
        keeper::SessionOf,
        pipe::{PipeEnd, StreamFor, StreamPipe, streamed},
        reading::Reading,
        told::Told,
    },
    forward::OnDisconnect,
    headers::{ANSWER, ROUTE, SESSION, Speaker},
    refusal::Refused,
    state::Gateway,
    submit::{GONE, Submitted, cancel},
};

/// How long it may take to begin to hear of the call.
const OPEN_MAX: Duration = Duration::from_secs(2);
/// How long an answer waits for its first chunk until its head is sent.
const HEAD_MAX: Duration = Duration::from_secs(10);
/// How long chunks may take that were told before the call was over: they come another way than its answer.
const LAST_CHUNKS_MAX: Duration = Duration::from_secs(2);
/// The most events that wait for it to be known which call is meant.
const HELD_MAX: usize = 256;

/// How a vendor's client wants its stream.
#[derive(Debug)]
pub(crate) struct StreamWanted {
    pub(crate) protocol: ChatProtocol,
    pub(crate) wants_usage: bool,
    pub(crate) on_disconnect: OnDisconnect,
    pub(crate) language: Language,
    pub(crate) whom: StreamFor,
}

/// Makes the call, and sends its answer to `caller` as soon as it begins. Runs in a task of its own, which outlives the request.
pub(crate) async fn answered(
    gateway: Arc<Gateway>,
    mut call: Submitted,
    wanted: StreamWanted,
    mut caller: oneshot::Sender<Response>,
) {
    let StreamWanted {
        protocol,
        wants_usage,
        on_disconnect,
        language,
        whom,
    } = wanted;
    let (tell, known) = watch::channel(None);
    call.known = Some(tell);
    let (of, is_own) = session(&mut call);
    let mut chunks = HeardChunks {
        reading: None,
        known: known.clone(),
        is_own,
        held: Vec::new(),
        call: None,
        is_over: false,
        fold: ChunkFold::new(protocol, wants_usage),
    };
    chunks.open(&gateway, of).await;
    let asked = Asking {
        gateway: &gateway,
        call: &call,
        language,
    };
    let mut deciding = Box::pin(until_decided(&gateway.desk, &call));
    let mut to = BytesMut::new();
    let head_at = Instant::now() + HEAD_MAX;
    let begun = loop {
        tokio::select! {
            biased;
            () = caller.closed() => break FirstWord::Left,
            answer = &mut deciding => break FirstWord::Decided(answer),
            event = next_event(&mut chunks.reading) => {
                let heard = chunks.hear(event, &mut to);
                if heard.is_err() || !to.is_empty() {
                    break FirstWord::Chunks(heard.err());
                }
            }
            () = sleep_until(head_at) => break FirstWord::Chunks(None),
        }
    };
    let cut = match begun {
        FirstWord::Left => {
            left(&asked, on_disconnect, known, deciding).await;
            return;
        }
        FirstWord::Decided(answer) => {
            // Whatever was heard of it by now, the reply says it all.
            let response = match asked.told(answer).await {
                Ok(reply) => at_once(&asked, reply, protocol, wants_usage).await,
                Err(error) => error.response(protocol),
            };
            drop(caller.send(response));
            return;
        }
        FirstWord::Chunks(cut) => cut,
    };
    let (pipe, pieces) = StreamPipe::open(Arc::clone(&gateway), whom);
    let response = head(streamed(Body::from_stream(pieces)), &chunks, protocol);
    // Where nobody takes it, the pipe finds its other end closed.
    drop(caller.send(response));
    let mut stream = ModelStream {
        pipe,
        chunks,
        protocol,
        wants_usage,
    };
    let ended = stream.run(&asked, to, cut, &mut deciding).await;
    metrics().ended_stream(match ended {
        Ok(()) => "over",
        Err(PipeEnd::Gone) => "gone",
        Err(PipeEnd::Slow) => "slow",
        Err(PipeEnd::Revoked) => "revoked",
    });
    match ended {
        Ok(()) | Err(PipeEnd::Revoked) => {}
        Err(PipeEnd::Slow) => stream.pipe.cut(),
        Err(PipeEnd::Gone) => left(&asked, on_disconnect, known, deciding).await,
    }
}

/// What comes first.
enum FirstWord {
    /// The caller is gone.
    Left,
    Decided(Result<Answer, Refused>),
    /// The first chunks, or why there will be none, or nothing for a while.
    Chunks(Option<CutOff>),
}

/// The call that is asked for.
struct Asking<'a> {
    gateway: &'a Gateway,
    call: &'a Submitted,
    language: Language,
}

impl Asking<'_> {
    async fn told(&self, answer: Result<Answer, Refused>) -> Result<ModelReply, ModelError> {
        told(self.gateway, self.call, answer, self.language).await
    }
}

/// The session whose events tell of the call, which gets one of its own where its caller names none; whether it is its own. `None`:
/// nothing is heard.
fn session(call: &mut Submitted) -> (Option<SessionOf>, bool) {
    let given = call.headers.get(SESSION.as_str());
    let is_own = given.is_none();
    let session: Option<Label> = match given {
        Some(given) => given.as_str().parse().ok(),
        None => {
            let own = format!("model_{}", Uuid::new_v4().simple());
            call.headers.insert(SESSION.as_str(), own.as_str());
            own.parse().ok()
        }
    };
    let tenant = call.tenant.clone();
    (session.map(|session| SessionOf { tenant, session }), is_own)
}

/// The caller is gone before its call is over: it is kept, or cancelled as soon as it is known.
async fn left(
    asked: &Asking<'_>,
    on_disconnect: OnDisconnect,
    mut known: watch::Receiver<Option<CallId>>,
    deciding: impl Future<Output = Result<Answer, Refused>>,
) {
    if on_disconnect == OnDisconnect::Keep {
        return;
    }
    let accepted = async {
        let known = known.wait_for(Option::is_some).await;
        known.ok().and_then(|known| *known)
    };
    let id = tokio::select! {
        biased;
        id = accepted => id,
        _over = deciding => None,
    };
    if let Some(id) = id {
        let Submitted {
            tenant, principal, ..
        } = asked.call;
        cancel(&asked.gateway.desk, tenant, id, GONE, principal.as_deref()).await;
    }
}

/// The chunks that are heard of a call.
struct HeardChunks {
    /// `None`: nothing is heard any more.
    reading: Option<Reading>,
    known: watch::Receiver<Option<CallId>>,
    /// Whether the session is that of the call alone.
    is_own: bool,
    /// What was heard before it was known which call is meant.
    held: Vec<Arc<Told>>,
    call: Option<CallId>,
    /// Whether the call has said that it is over.
    is_over: bool,
    fold: ChunkFold,
}

impl HeardChunks {
    async fn open(&mut self, gateway: &Gateway, of: Option<SessionOf>) {
        let Some(of) = of else { return };
        let opening = Reading::open(&gateway.sessions, &of, BeginAt::Now);
        let opened = timeout(OPEN_MAX, opening).await;
        self.reading = opened.ok().and_then(Result::ok);
        if self.reading.is_none() {
            tracing::debug!("the chunks of a model cannot be heard: its reply is told as a whole");
        }
    }

    /// Hears an event, and all that are there; `None`: there are no more.
    fn hear(&mut self, event: Option<Arc<Told>>, to: &mut BytesMut) -> Result<(), CutOff> {
        let Some(event) = event else {
            self.reading = None;
            return self.fold.lose();
        };
        let mut next = Some(event);
        while let Some(event) = next {
            self.held.push(event);
            self.hear_held(to)?;
            next = self.reading.as_mut().and_then(Reading::ready);
        }
        Ok(())
    }

    fn hear_held(&mut self, to: &mut BytesMut) -> Result<(), CutOff> {
        let known = *self.known.borrow();
        if !self.is_own && known.is_none() {
            if self.held.len() > HELD_MAX {
                self.held.remove(0);
            }
            return Ok(());
        }
        for told in std::mem::take(&mut self.held) {
            let Told::Event(event) = &*told else {
                self.fold.lose()?;
                continue;
            };
            let Some(event) = CallEvent::read(&event.payload) else {
                continue;
            };
            if known.is_some_and(|known| known != event.call_id) {
                continue;
            }
            self.call = Some(event.call_id);
            self.is_over |= event.is_end();
            self.fold.hear(&event, to)?;
        }
        Ok(())
    }

    /// The call, as far as it is known.
    fn call(&self) -> Option<CallId> {
        self.known.borrow().or(self.call)
    }
}

/// The next event; `None`: there are no more. Waits for ever where none are heard.
async fn next_event(reading: &mut Option<Reading>) -> Option<Arc<Told>> {
    match reading {
        Some(reading) => reading.next().await.ok(),
        None => std::future::pending().await,
    }
}

/// What comes next in a stream.
enum NextOfModel {
    Decided(Result<Answer, Refused>),
    Event(Option<Arc<Told>>),
}

/// A stream on its way.
struct ModelStream {
    pipe: StreamPipe,
    chunks: HeardChunks,
    protocol: ChatProtocol,
    wants_usage: bool,
}

impl ModelStream {
    async fn run(
        &mut self,
        asked: &Asking<'_>,
        mut to: BytesMut,
        mut cut: Option<CutOff>,
        mut deciding: &mut (impl Future<Output = Result<Answer, Refused>> + Unpin),
    ) -> Result<(), PipeEnd> {
        let answer = loop {
            self.send(&mut to).await?;
            if let Some(why) = cut {
                return self.cut_off(asked, why).await;
            }
            let reading = &mut self.chunks.reading;
            let next = async {
                tokio::select! {
                    answer = &mut deciding => NextOfModel::Decided(answer),
                    event = next_event(reading) => NextOfModel::Event(event),
                }
            };
            match self.pipe.meanwhile(next).await? {
                NextOfModel::Decided(answer) => break answer,
                NextOfModel::Event(event) => cut = self.chunks.hear(event, &mut to).err(),
            }
        };
        let reply = match asked.told(answer).await {
            Ok(reply) => reply,
            Err(error) => return self.fail(&error).await,
        };
        if !self.chunks.fold.has_sent() {
            let streams = &asked.gateway.whole_streams;
            let making = streams.made(&reply, self.protocol, self.wants_usage, asked.language);
            return match self.pipe.meanwhile(making).await? {
                Ok(bytes) => self.pipe.send_piece(bytes).await,
                Err(error) => self.fail(&error).await,
            };
        }
        let until = Instant::now() + LAST_CHUNKS_MAX;
        while !self.chunks.is_over && self.chunks.reading.is_some() {
            let next = timeout_at(until, next_event(&mut self.chunks.reading));
            let Ok(event) = self.pipe.meanwhile(next).await? else {
                break;
            };
            let heard = self.chunks.hear(event, &mut to);
            self.send(&mut to).await?;
            if let Err(why) = heard {
                return self.cut_off(asked, why).await;
            }
        }
        if !self.chunks.fold.has_ended() {
            // Its vendor may have ended it without a word on why.
            let bytes = reply.bytes.clone();
            let reading = aside(bytes.len(), move || WholeSaid::read(&bytes));
            let whole = self.pipe.meanwhile(reading).await?;
            if !whole.is_ok_and(|whole| self.chunks.fold.has_told(&whole)) {
                return self.cut_off(asked, CutOff::Gap).await;
            }
        }
        sse::write_end(self.protocol, &mut to);
        self.send(&mut to).await
    }

    async fn send(&mut self, to: &mut BytesMut) -> Result<(), PipeEnd> {
        if to.is_empty() {
            return Ok(());
        }
        self.pipe.send_piece(to.split().freeze()).await
    }

    /// Ends the stream, whose call goes on or is kept.
    async fn cut_off(&mut self, asked: &Asking<'_>, why: CutOff) -> Result<(), PipeEnd> {
        let call = self.chunks.call();
        let error = ModelError::of_call(Code::Unavailable, &said(why), call, asked.language);
        self.fail(&error).await
    }

    async fn fail(&mut self, error: &ModelError) -> Result<(), PipeEnd> {
        let (kind, event) = error.event(self.protocol, self.chunks.fold.number());
        let mut to = BytesMut::new();
        sse::write(self.protocol, kind, &event.to_string(), &mut to);
        self.send(&mut to).await
    }
}

/// Why a stream ends before its call.
const fn said(why: CutOff) -> Message {
    match why {
        CutOff::Restarted => Message::fixed(
            "The model's answer begins anew, and what this stream has told of it is void. The call goes on: ask for its reply by its id, or, if the request had an Idempotency-Key, send it again with that.",
            "模型重新开始回答，这个流已发送的内容作废。调用仍在继续：请用它的 id 查询回复，如果请求带有 Idempotency-Key，也可以带上它再次发送。",
        ),
        CutOff::Gap => Message::fixed(
            "A part of the stream was lost, so what it has told is not all. The call goes on or is over, and its reply is kept: ask for it by its id, or, if the request had an Idempotency-Key, send it again with that.",
            "流的一部分丢失，已发送的内容不完整。调用仍在继续或已结束，回复会被保存：请用它的 id 查询，如果请求带有 Idempotency-Key，也可以带上它再次发送。",
        ),
    }
}

/// The head of a stream, with what is known of its call.
fn head(mut response: Response, chunks: &HeardChunks, protocol: ChatProtocol) -> Response {
    let headers = response.headers_mut();
    headers.insert(ANSWER, Speaker::Call.value());
    if let Some(call) = chunks.call() {
        name(headers, call, protocol);
    }
    let route = chunks.fold.route();
    if let Some(route) = route.and_then(|route| HeaderValue::try_from(route).ok()) {
        headers.insert(ROUTE, route);
    }
    response
}

/// The answer to a call that was over before a chunk of it was heard.
async fn at_once(
    asked: &Asking<'_>,
    reply: ModelReply,
    protocol: ChatProtocol,
    wants_usage: bool,
) -> Response {
    let streams = &asked.gateway.whole_streams;
    let making = streams.made(&reply, protocol, wants_usage, asked.language);
    match making.await {
        Ok(events) => {
            let mut response = streamed(Body::from(events));
            let headers = response.headers_mut();
            headers.insert(ANSWER, Speaker::Call.value());
            reply.mark(headers, protocol);
            response
        }
        Err(error) => error.response(protocol),
    }
}
