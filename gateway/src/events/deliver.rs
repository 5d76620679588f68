//! Sends one follower what it is told, and ends its stream where that has to end: when the follower is gone, too slow, or may not follow
//! any more, and when the gateway stops.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::Response,
};
use bytes::Bytes;
use fleet::telemetry::metrics;
use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use tokio::{
    sync::oneshot,
    time::{Instant, Interval, MissedTickBehavior, interval, timeout},
};

use super::{
    places::StreamPlace,
    raw::{COME_BACK, KEEP},
    reading::{Reading, ReadingEnd},
    told::Told,
    way::{Gone, Said, Way, way},
};
use crate::{
    auth::principal::Principal,
    edge::peers::Peer,
    headers::{ANSWER, Speaker},
    state::Gateway,
};

/// Has a proxy such as nginx pass on what comes when it comes.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// How often somebody is heard of through whose stream nothing comes.
const KEEP_EVERY: Duration = Duration::from_secs(15);
/// How often it is looked whether the follower's token still holds: with the time in which a revoked one is known, less than two seconds.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// After how long without anything to tell it is looked whether something was missed.
const IDLE: Duration = Duration::from_secs(30);
/// How long a follower may take nothing.
const BEHIND_MAX: Duration = Duration::from_secs(10);
/// How long a follower may take to be told that the gateway stops.
const LAST_MAX: Duration = Duration::from_secs(1);
/// How long it may take to find out that there is nothing more to say to somebody who comes back.
const SAID_MAX: Duration = Duration::from_secs(1);
/// With so many bytes a piece takes no further event.
const PIECE_BYTES: usize = 64 * 1024;

/// How a follower's stream is written.
pub(crate) trait Wording: Send + 'static {
    /// Writes what this is for the follower, if it is something. Dropping the future may lose what it was.
    fn say(&mut self, told: Arc<Told>, to: &mut Said) -> impl Future<Output = StreamGoes> + Send;

    /// Writes what there is to say after [`IDLE`] in which nothing was told. Dropping the future is harmless.
    fn idle(&mut self, _to: &mut Said) -> impl Future<Output = StreamGoes> + Send {
        std::future::ready(StreamGoes::On)
    }
}

/// Whether a stream goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamGoes {
    /// More may come.
    On,
    /// Everything is said.
    Over,
}

/// Whom a stream is for.
#[derive(Debug)]
pub(crate) struct StreamFor {
    pub(crate) principal: Principal,
    pub(crate) peer: Peer,
    /// Free again when the stream has ended.
    pub(crate) _place: StreamPlace,
}

/// Why a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamEnd {
    /// Everything is said.
    Over,
    /// Its follower is gone.
    Gone,
    /// Its follower takes too little.
    Slow,
    /// Its follower may not follow any more.
    Revoked,
    /// What was told before cannot be gone on with here.
    Lost,
    /// The gateway stops.
    Stopping,
}

impl StreamEnd {
    /// The word for it in a metric.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Over => "over",
            Self::Gone => "gone",
            Self::Slow => "slow",
            Self::Revoked => "revoked",
            Self::Lost => "lost",
            Self::Stopping => "stopping",
        }
    }
}

/// A stream that was begun: a task of the gateway's writes it.
pub(crate) struct BegunStream {
    pieces: BoxStream<'static, Result<Bytes, Infallible>>,
    end: oneshot::Receiver<StreamEnd>,
}

impl BegunStream {
    /// As an answer.
    pub(crate) fn stream(self) -> Response {
        streamed(Body::from_stream(self.pieces))
    }

    /// As an answer to somebody who has had something: 204 where there is nothing more to say and never will be, for a reader of
    /// server-sent events comes back after every other end. Waits a little for that, or for the first that is said.
    pub(crate) async fn unless_all_is_said(mut self) -> Response {
        match timeout(SAID_MAX, self.pieces.next()).await {
            Ok(None) => match self.end.await {
                Ok(StreamEnd::Over) => nothing_more(),
                Ok(_) | Err(_) => streamed(Body::empty()),
            },
            Ok(Some(first)) => {
                let first = stream::iter([first]);
                streamed(Body::from_stream(first.chain(self.pieces)))
            }
            Err(_elapsed) => self.stream(),
        }
    }
}

/// Begins a stream, which a task of the gateway's writes.
pub(crate) fn answer(
    gateway: Arc<Gateway>,
    whom: StreamFor,
    reading: Reading,
    wording: impl Wording,
) -> BegunStream {
    let (way, pieces) = way();
    let (ended, end) = oneshot::channel();
    let tasks = gateway.tasks.clone();
    let delivery = Delivery {
        gateway,
        whom,
        way,
        told_at: Instant::now(),
        looks: looks(),
    };
    tasks.spawn(delivery.run(reading, wording, ended));
    BegunStream {
        pieces: pieces.boxed(),
        end,
    }
}

fn nothing_more() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
        .headers_mut()
        .insert(ANSWER, Speaker::Gateway.value());
    response
}

fn streamed(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    headers.insert(ANSWER, Speaker::Gateway.value());
    response
}

fn looks() -> Interval {
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}

/// One stream on its way.
struct Delivery {
    gateway: Arc<Gateway>,
    whom: StreamFor,
    way: Way,
    /// When the follower last heard something.
    told_at: Instant,
    looks: Interval,
}

impl Delivery {
    async fn run(
        mut self,
        mut reading: Reading,
        mut wording: impl Wording,
        ended: oneshot::Sender<StreamEnd>,
    ) {
        let Err(end) = self.tell(&mut reading, &mut wording).await;
        // Before the pieces end. Hardly anybody waits for it.
        ended.send(end).ok();
        drop(reading);
        tracing::debug!(?end, "a stream ends");
        metrics().ended_stream(end.as_str());
        match end {
            StreamEnd::Stopping => {
                let telling = self.way.send(Bytes::from_static(COME_BACK));
                if !matches!(timeout(LAST_MAX, telling).await, Ok(Ok(()))) {
                    tracing::debug!("a follower that takes nothing is not told to come back");
                }
            }
            // What is written already would wait for it.
            StreamEnd::Slow => self.whom.peer.close(),
            StreamEnd::Over | StreamEnd::Gone | StreamEnd::Revoked | StreamEnd::Lost => {}
        }
    }

    async fn tell(
        &mut self,
        reading: &mut Reading,
        wording: &mut impl Wording,
    ) -> Result<Infallible, StreamEnd> {
        loop {
            let mut said = Said::default();
            let next = timeout(IDLE, reading.next());
            let Ok(told) = self.meanwhile(next).await? else {
                let goes = self.meanwhile(wording.idle(&mut said)).await?;
                self.send(&mut said).await?;
                if goes == StreamGoes::Over {
                    return Err(StreamEnd::Over);
                }
                continue;
            };
            let mut told = told.map_err(|end| match end {
                ReadingEnd::Lagging => StreamEnd::Slow,
                ReadingEnd::Lost => StreamEnd::Lost,
            })?;
            loop {
                if matches!(&*told, Told::Gap(_)) {
                    metrics().told_gap();
                }
                let saying = wording.say(told, &mut said);
                let goes = self.meanwhile(saying).await?;
                if goes == StreamGoes::Over {
                    self.send(&mut said).await?;
                    return Err(StreamEnd::Over);
                }
                match reading.ready() {
                    Some(next) if said.len() < PIECE_BYTES => told = next,
                    Some(next) => {
                        self.send(&mut said).await?;
                        told = next;
                    }
                    None => break,
                }
            }
            self.send(&mut said).await?;
        }
    }

    /// Waits for something, and ends where the stream has to end meanwhile.
    async fn meanwhile<T>(&mut self, waited: impl Future<Output = T>) -> Result<T, StreamEnd> {
        let mut waited = std::pin::pin!(waited);
        loop {
            tokio::select! {
                biased;
                () = self.gateway.stopping.cancelled() => return Err(StreamEnd::Stopping),
                () = self.way.closed() => return Err(StreamEnd::Gone),
                _ = self.looks.tick() => {
                    if !self.gateway.authority.still_knows(&self.whom.principal) {
                        return Err(StreamEnd::Revoked);
                    }
                    if self.told_at.elapsed() >= KEEP_EVERY {
                        self.told_at = Instant::now();
                        self.way.hint(KEEP);
                    }
                }
                done = &mut waited => return Ok(done),
            }
        }
    }

    /// Sends what was said, which may take a while.
    async fn send(&mut self, said: &mut Said) -> Result<(), StreamEnd> {
        for piece in said.take() {
            let way = self.way.clone();
            let sent = self.meanwhile(timeout(BEHIND_MAX, way.send(piece)));
            match sent.await? {
                Ok(Ok(())) => self.told_at = Instant::now(),
                Ok(Err(Gone)) => return Err(StreamEnd::Gone),
                Err(_elapsed) => return Err(StreamEnd::Slow),
            }
        }
        Ok(())
    }
}
