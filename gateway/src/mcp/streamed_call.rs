//! A call whose client hears of it while it runs: a stream of notifications with the answer at its end.
//!
//! A client of an older revision that can be asked is asked there, in its session.
//!
//! The call is the same as without a stream. What is heard of it are the events of its session: of one that its client names, those of this
//! call; else of one of its own, which nobody else can name. Where they cannot be heard, the answer comes all the same.

use std::{sync::Arc, time::Duration};

use axum::{body::Body, response::Response};
use fleet::{
    ids::{CallId, Label},
    telemetry::metrics,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, timeout, timeout_at},
};
use uuid::Uuid;

use super::{
    answered::note,
    called::CalledTool,
    client_sessions::{ClientAnswer, ClientSession},
    exchange::{AskingCall, CallExchange, CallStanding, CallStart},
    get,
    members::RawMembers,
    message::RpcRequest,
    notices::Notices,
    rpc::{RpcReply, taken},
    serve::{BegunCall, NoResult, ServedRequest},
    wishes::Wishes,
};
use crate::{
    edge::peers::Peer,
    events::{
        begin::BeginAt,
        keeper::SessionOf,
        pipe::{PipeEnd, StreamPipe, streamed},
        raw,
        reading::Reading,
        told::{SessionEvent, Told},
        way::Said,
    },
    follower::stream_from,
    headers::SESSION,
    state::Gateway,
    when_left::{CancelSwitch, WhenLeft},
};

/// The method.
const CALL: &str = "tools/call";
/// How long it may take to begin to hear the events.
const OPEN_MAX: Duration = Duration::from_secs(1);
/// How long the last events may take that were told before the call was over: they come another way than its answer.
const LAST_EVENTS_MAX: Duration = Duration::from_millis(500);
/// How long a client may take to answer what it is asked.
const ASKED_MAX: Duration = Duration::from_secs(10 * 60);
/// The most events that wait for it to be known which call is meant.
const HELD_MAX: usize = 256;

/// A request of a session, which a message may cancel.
#[derive(Debug, Clone)]
struct OfSession {
    session: Arc<ClientSession>,
    switch: Arc<CancelSwitch>,
}

/// What a request is answered with.
enum CallResponse {
    Whole(Response),
    /// The request is answered at its end.
    Stream(Response),
}

/// The answer to a call: a stream where its client wants to hear of it, and there is a place for one, else JSON. Dropping the
/// future, and once there is a stream its end, leaves the call as a client that goes away does. A request of a session that is
/// cancelled has no answer.
///
/// # Errors
///
/// The request is not right, or the token is not for what it asks for.
pub(super) async fn answer(
    gateway: &Arc<Gateway>,
    peer: Peer,
    session: Option<Arc<ClientSession>>,
    mut serving: ServedRequest<'_>,
    request: &RpcRequest,
) -> Result<Response, NoResult> {
    let of = session.map(|session| OfSession {
        switch: session.requests.begin(request.id.0.get()),
        session,
    });
    let Some(OfSession { session, switch }) = of.clone() else {
        let response = respond(gateway, peer, None, serving, request).await?;
        return Ok(response.into_response());
    };
    serving.when_left = WhenLeft::GoesOn(Some(Arc::clone(&switch)));
    let responding = Box::pin(respond(gateway, peer, of, serving, request));
    let response = tokio::select! {
        biased;
        () = switch.pulled() => return Ok(taken()),
        response = responding => response,
    };
    if !matches!(response, Ok(CallResponse::Stream(_))) {
        session.requests.end(&switch);
    }
    response.map(CallResponse::into_response)
}

async fn respond(
    gateway: &Arc<Gateway>,
    peer: Peer,
    of: Option<OfSession>,
    serving: ServedRequest<'_>,
    request: &RpcRequest,
) -> Result<CallResponse, NoResult> {
    let whole = |reply: RpcReply| CallResponse::Whole(reply.over_http());
    let session = of.as_ref().map(|of| &of.session);
    let log = session.and_then(|session| session.log());
    let wishes = Wishes::of(request, serving.revision, log)?;
    let called = CalledTool::read(request)?;
    if (!wishes.is_any() && session.is_none()) || called.name == get::NAME {
        return Ok(whole(serving.answer(request).await?));
    }
    let mut exchange = match serving.begin(request, called).await? {
        BegunCall::Exchange(exchange) => exchange,
        BegunCall::Over(reply) => return Ok(whole(reply)),
    };
    if let Some(session) = session {
        exchange.askable = session.askable;
    }
    // Who only may be asked gets a stream where that is so.
    let first = match wishes.is_any() {
        true => None,
        false => match exchange.begin().await {
            CallStanding::Told(told) => return Ok(whole(told.reply)),
            CallStanding::Asks(asking) => Some(asking),
        },
    };
    let Ok(whom) = stream_from(gateway, peer, &serving.client.principal) else {
        let told = match first {
            Some(asking) => exchange.told_as_text(*asking),
            None => exchange.answer().await,
        };
        return Ok(whole(told.reply));
    };
    let (pipe, pieces) = StreamPipe::open(Arc::clone(gateway), whom);
    let streamed_call = StreamedCall {
        pipe,
        of,
        heard: HeardEvents::of(&mut exchange),
        notices: Notices::new(wishes, exchange.tool.to_string()),
    };
    let running = streamed_call.run(Arc::clone(gateway), *exchange, first);
    gateway.tasks.spawn(running);
    let response = streamed(Body::from_stream(pieces));
    Ok(CallResponse::Stream(response))
}

impl CallResponse {
    fn into_response(self) -> Response {
        match self {
            Self::Whole(response) | Self::Stream(response) => response,
        }
    }
}

/// A call that is told of.
struct StreamedCall {
    pipe: StreamPipe,
    /// Of a session, in which its client is asked; `None`: by its result.
    of: Option<OfSession>,
    heard: HeardEvents,
    notices: Notices,
}

/// Which events are those of the call.
struct HeardEvents {
    /// `None`: nothing is heard.
    session: Option<SessionOf>,
    /// The call, where others have the same session; `None`: it has one of its own.
    call: Option<watch::Receiver<Option<CallId>>>,
    /// What was heard before it was known which call is meant.
    held: Vec<Arc<Told>>,
}

/// What comes next.
enum NextOfCall {
    Stands(CallStanding),
    Event(Arc<Told>),
    /// No more events.
    Silence,
}

impl StreamedCall {
    async fn run(
        mut self,
        gateway: Arc<Gateway>,
        exchange: CallExchange,
        first: Option<Box<AskingCall>>,
    ) {
        let of = self.of.clone();
        let end = {
            let telling = self.tell(&gateway, exchange, first);
            match &of {
                None => telling.await,
                Some(of) => tokio::select! {
                    biased;
                    // A request that is cancelled has no answer.
                    () = of.switch.pulled() => Ok(()),
                    end = telling => end,
                },
            }
        };
        // One whose client is gone can still be cancelled.
        if let (Some(of), Ok(())) = (&of, &end) {
            of.session.requests.end(&of.switch);
        }
        metrics().ended_stream(match end {
            Ok(()) => "over",
            Err(PipeEnd::Gone) => "gone",
            Err(PipeEnd::Slow) => "slow",
            Err(PipeEnd::Revoked) => "revoked",
        });
        if end == Err(PipeEnd::Slow) {
            self.pipe.cut();
        }
    }

    async fn tell(
        &mut self,
        gateway: &Gateway,
        mut exchange: CallExchange,
        first: Option<Box<AskingCall>>,
    ) -> Result<(), PipeEnd> {
        let mut reading = self.open(gateway).await?;
        let mut stands = match first {
            Some(asking) => CallStanding::Asks(asking),
            None => self.while_heard(&mut reading, exchange.begin()).await?,
        };
        let told = loop {
            let asking = match stands {
                CallStanding::Told(told) => break told,
                CallStanding::Asks(asking) => asking,
            };
            let Some(OfSession { session, .. }) = self.of.clone() else {
                break exchange.asked_by_result(&asking).await;
            };
            let answers = match self.ask(gateway, &session, &asking).await {
                Ok(answers) => answers,
                Err(end) => {
                    exchange.left(asking.question.call).await;
                    return Err(end);
                }
            };
            match answers {
                Some(answers) if exchange.is_answered(&asking.question, &answers) => {
                    let going_on = exchange.go_on(*asking, &answers);
                    stands = self.while_heard(&mut reading, going_on).await?;
                }
                Some(_) | None => break exchange.told_as_text(*asking),
            }
        };
        if told.is_made_and_over {
            let until = Instant::now() + LAST_EVENTS_MAX;
            while reading.is_some() {
                let next = timeout_at(until, next_event(&mut reading));
                match self.pipe.meanwhile(next).await? {
                    Ok(Some(event)) => {
                        if self.hear(event, &mut reading).await? {
                            break;
                        }
                    }
                    Ok(None) | Err(_) => break,
                }
            }
        }
        let (code, tenant) = (told.reply.code, Some(&exchange.tenant));
        note(CALL, code, tenant, exchange.principal.as_deref());
        let mut said = Said::default();
        raw::write_message(&told.reply.body, said.text());
        self.pipe.send(&mut said).await
    }

    /// Tells of events until it is known where the call stands. Where the stream ends before, what makes the call is dropped, and
    /// the call left.
    async fn while_heard(
        &mut self,
        reading: &mut Option<Reading>,
        standing: impl Future<Output = CallStanding>,
    ) -> Result<CallStanding, PipeEnd> {
        let mut standing = std::pin::pin!(standing);
        loop {
            let next = async {
                tokio::select! {
                    stands = &mut standing => NextOfCall::Stands(stands),
                    event = next_event(reading) => event.map_or(NextOfCall::Silence, NextOfCall::Event),
                }
            };
            match self.pipe.meanwhile(next).await? {
                NextOfCall::Stands(stands) => return Ok(stands),
                NextOfCall::Event(event) => self.hear(event, reading).await.map(drop)?,
                NextOfCall::Silence => *reading = None,
            }
        }
    }

    /// Asks over the stream, and waits for the answers; `None`: too much is asked in the session, nobody answers, or the gateway stops.
    async fn ask(
        &mut self,
        gateway: &Gateway,
        session: &Arc<ClientSession>,
        asking: &AskingCall,
    ) -> Result<Option<RawMembers>, PipeEnd> {
        let mut said = Said::default();
        let mut asked = Vec::new();
        for (name, request) in &asking.requests {
            let Some(one) = session.ask() else {
                return Ok(None);
            };
            let mut message: Value =
                serde_json::from_str(request.get()).expect("a request was read before");
            message["jsonrpc"] = json!("2.0");
            message["id"] = json!(one.id);
            raw::write_message(message.to_string().as_bytes(), said.text());
            asked.push((name, one));
        }
        self.pipe.send(&mut said).await?;
        let until = Instant::now() + ASKED_MAX;
        let mut answers = Vec::new();
        for (name, mut one) in asked {
            let answer = async {
                tokio::select! {
                    () = gateway.stopping.cancelled() => None,
                    answer = timeout_at(until, one.answer()) => answer.ok().flatten(),
                }
            };
            match self.pipe.meanwhile(answer).await? {
                Some(ClientAnswer::Result(result)) => answers.push((name.as_str(), result)),
                Some(ClientAnswer::Error) => {}
                None => return Ok(None),
            }
        }
        Ok(Some(RawMembers::made(&answers)))
    }

    /// Begins to hear the events of the call, which is not made yet.
    async fn open(&mut self, gateway: &Gateway) -> Result<Option<Reading>, PipeEnd> {
        let Some(of) = &self.heard.session else {
            return Ok(None);
        };
        let opening = Reading::open(&gateway.sessions, of, BeginAt::Now);
        let opened = self.pipe.meanwhile(timeout(OPEN_MAX, opening)).await?;
        if !matches!(opened, Ok(Ok(_))) {
            tracing::debug!("the events of a call cannot be heard, so its client is told of none");
        }
        Ok(opened.ok().and_then(Result::ok))
    }

    /// Tells of an event, and of all that are there; whether the call is over by them.
    async fn hear(
        &mut self,
        event: Arc<Told>,
        reading: &mut Option<Reading>,
    ) -> Result<bool, PipeEnd> {
        let mut said = Said::default();
        let mut is_over = false;
        let mut next = Some(event);
        while let Some(event) = next {
            for event in self.heard.those_of_call(event) {
                is_over |= event.kind == "finished";
                for notice in self.notices.of_event(&event.payload) {
                    raw::write_message(notice.to_string().as_bytes(), said.text());
                }
            }
            next = reading.as_mut().and_then(Reading::ready);
        }
        self.pipe.send(&mut said).await?;
        Ok(is_over)
    }
}

impl HeardEvents {
    /// Of a call that is about to be made, which gets a session of its own where its client names none.
    fn of(exchange: &mut CallExchange) -> Self {
        let CallStart::Submit(call, _key) = &mut exchange.start else {
            // Its events are those of an earlier request.
            return Self {
                session: None,
                call: None,
                held: Vec::new(),
            };
        };
        let given = call.headers.get(SESSION.as_str());
        let (session, known) = match given {
            Some(session) => {
                let (tell, known) = watch::channel(None);
                call.known = Some(tell);
                (session.as_str().parse().ok(), Some(known))
            }
            None => {
                let session = format!("mcp_{}", Uuid::new_v4().simple());
                call.headers.insert(SESSION.as_str(), session.as_str());
                (session.parse::<Label>().ok(), None)
            }
        };
        let tenant = call.tenant.clone();
        Self {
            session: session.map(|session| SessionOf { tenant, session }),
            call: known,
            held: Vec::new(),
        }
    }

    /// What is known to be of the call by now.
    fn those_of_call(&mut self, event: Arc<Told>) -> impl Iterator<Item = SessionEvent> + use<> {
        self.held.push(event);
        let call = match &self.call {
            None => None,
            Some(known) => match *known.borrow() {
                Some(call) => Some(call),
                None => {
                    // The oldest say least.
                    let surplus = self.held.len().saturating_sub(HELD_MAX);
                    self.held.drain(..surplus);
                    return Vec::new().into_iter();
                }
            },
        };
        let events = std::mem::take(&mut self.held).into_iter();
        let events = events.filter_map(|told| match &*told {
            Told::Event(event) => Some(event.clone()),
            Told::Gap(_) => None,
        });
        let is_its =
            |event: &SessionEvent| call.is_none_or(|call| call_of(&event.payload) == Some(call));
        events.filter(is_its).collect::<Vec<_>>().into_iter()
    }
}

/// The call that an event is of.
fn call_of(payload: &[u8]) -> Option<CallId> {
    #[derive(Deserialize)]
    struct OfCall {
        call_id: CallId,
    }

    let read: OfCall = serde_json::from_slice(payload).ok()?;
    Some(read.call_id)
}

/// The next event; `None`: there are no more. Waits for ever where none are heard.
async fn next_event(reading: &mut Option<Reading>) -> Option<Arc<Told>> {
    match reading {
        Some(reading) => reading.next().await.ok(),
        None => std::future::pending().await,
    }
}
